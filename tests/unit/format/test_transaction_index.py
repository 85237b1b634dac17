"""The file of a segment's aborted transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord
from eoslog.format.kafka_files import decode_transaction_index, encode_transaction_index
from eoslog.state.partition_state import AbortedTransaction

FIRST = AbortedTransaction(producer_id=7, first_offset=10, last_offset=19, last_stable_offset=12)
SECOND = AbortedTransaction(producer_id=2**40, first_offset=12, last_offset=30, last_stable_offset=31)
LONGS = st.integers(0, 2**63 - 1)


@st.composite
def indexes(draw: st.DrawFn) -> list[AbortedTransaction]:
    last_offsets = sorted(draw(st.sets(LONGS, max_size=6)))
    return [AbortedTransaction(draw(LONGS), draw(st.integers(0, last)), last, draw(LONGS)) for last in last_offsets]


def test_the_bytes_are_those_of_kafka() -> None:
    body = encode_transaction_index([AbortedTransaction(1, 2, 3, 4)])

    assert body.hex() == "0000" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000004"


@pytest.mark.scenario(1)
@given(indexes())
def test_a_transaction_index_is_read_as_it_was_written(entries: list[AbortedTransaction]) -> None:
    assert decode_transaction_index(encode_transaction_index(entries), "x.txnindex") == entries


@pytest.mark.scenario(6)
def test_a_segment_without_aborted_transactions_has_an_empty_index() -> None:
    assert encode_transaction_index([]) == b""
    assert decode_transaction_index(b"", "x.txnindex") == []


def test_a_file_cut_off_within_an_entry_is_corrupt() -> None:
    body = encode_transaction_index([FIRST, SECOND])

    for length in range(len(body)):
        if length in (0, 34):
            continue  # Cut between entries, only the length in the log tells.
        with pytest.raises(CorruptRecord, match=r"^\[EOSLOG_CORRUPT_RECORD\] a/b.txnindex: "):
            decode_transaction_index(body[:length], "a/b.txnindex")


def test_another_version_is_corrupt() -> None:
    with pytest.raises(CorruptRecord, match="entry 0 has version 1"):
        decode_transaction_index(b"\x00\x01" + encode_transaction_index([FIRST])[2:], "x.txnindex")


@pytest.mark.scenario(3)
@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([SECOND, FIRST], "last offset 19 is not after the previous entry's, 30"),
        ([FIRST, FIRST], "last offset 19 is not after the previous entry's, 19"),
        ([AbortedTransaction(1, 5, 4, 6)], "last offset 4 is before first offset 5"),
        ([AbortedTransaction(-1, 5, 6, 7)], "negative"),
        ([AbortedTransaction(1, 5, 6, -1)], "negative"),
    ],
)
def test_entries_out_of_order_are_neither_written_nor_read(entries: list[AbortedTransaction], fault: str) -> None:
    body = b"".join(
        b"\x00\x00"
        + b"".join(
            number.to_bytes(8, "big", signed=True)
            for number in (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
        )
        for entry in entries
    )

    with pytest.raises(ValueError, match=fault):
        encode_transaction_index(entries)
    with pytest.raises(CorruptRecord, match=fault):
        decode_transaction_index(body, "x.txnindex")


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        encode_transaction_index([AbortedTransaction(2**63, 0, 1, 2)])


@given(st.binary(max_size=34 * 3))
def test_arbitrary_bytes_are_an_index_or_corrupt(body: bytes) -> None:
    try:
        entries = decode_transaction_index(body, "x.txnindex")
    except CorruptRecord:
        return
    assert encode_transaction_index(entries) == body
