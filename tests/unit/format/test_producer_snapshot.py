"""The file of the producers' states at the start of a segment."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord
from eoslog.format.kafka_files import ProducerSnapshotEntry, decode_producer_snapshot, encode_producer_snapshot

ENTRY = ProducerSnapshotEntry(
    producer_id=1,
    epoch=2,
    last_sequence=3,
    last_offset=4,
    offset_delta=5,
    timestamp=6,
    coordinator_epoch=0,
    current_txn_first_offset=-1,
)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
ENTRIES = st.builds(
    ProducerSnapshotEntry,
    producer_id=LONGS,
    epoch=st.integers(-(2**15), 2**15 - 1),
    last_sequence=INTS,
    last_offset=LONGS,
    offset_delta=INTS,
    timestamp=LONGS,
    coordinator_epoch=INTS,
    current_txn_first_offset=LONGS,
)


def test_the_bytes_are_those_of_kafka() -> None:
    entries = bytes.fromhex(
        "00000001"  # one entry
        "0000000000000001"
        "0002"
        "00000003"
        "0000000000000004"
        "00000005"
        "0000000000000006"
        "00000000"
        "ffffffffffffffff"
    )

    body = encode_producer_snapshot([ENTRY])

    assert body == b"\x00\x01" + google_crc32c.value(entries).to_bytes(4, "big") + entries


@pytest.mark.scenario(40)
@given(st.lists(ENTRIES, max_size=4))
def test_a_producer_snapshot_is_read_as_it_was_written(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_producer_snapshot(encode_producer_snapshot(entries), "x.snapshot") == entries


def test_a_file_cut_off_anywhere_is_corrupt() -> None:
    body = encode_producer_snapshot([ENTRY, replace(ENTRY, producer_id=2)])

    for length in range(len(body)):
        with pytest.raises(CorruptRecord, match=r"^\[EOSLOG_CORRUPT_RECORD\] a/b.snapshot: "):
            decode_producer_snapshot(body[:length], "a/b.snapshot")


@pytest.mark.scenario(40)
def test_any_changed_byte_is_noticed() -> None:
    body = encode_producer_snapshot([ENTRY])

    for position in range(len(body)):
        changed = bytearray(body)
        changed[position] ^= 0x40
        with pytest.raises(CorruptRecord):
            decode_producer_snapshot(bytes(changed), "x.snapshot")


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_a_count_that_the_bytes_do_not_hold_is_corrupt(count: int) -> None:
    entries = struct.pack(">i", count) + encode_producer_snapshot([ENTRY])[10:]
    body = struct.pack(">hI", 1, google_crc32c.value(entries)) + entries

    with pytest.raises(CorruptRecord, match="do not hold"):
        decode_producer_snapshot(body, "x.snapshot")


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        encode_producer_snapshot([replace(ENTRY, epoch=2**15)])


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_producer_snapshot(body, "x.snapshot")
