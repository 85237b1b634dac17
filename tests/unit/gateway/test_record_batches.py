"""The gateway and two other implementations of Kafka's record batches read each other's batches."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.gateway import record_batches
from eoslog.gateway.batch_errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidBatchEpoch,
    InvalidBatchTimestamp,
    UnsupportedBatch,
)
from eoslog.gateway.record_batches import control_batch, decode, encode, most_decoded_bytes
from tests.depth import sweep
from tests.unit.gateway.kafka_batches import (
    FIELDS,
    HEADER,
    MOST_BYTES,
    READERS,
    RECORDS,
    Record,
    built,
    changed,
    decoded,
    longest,
    read_by,
    read_plainly,
    rows_of,
    timestamps_of,
    varint,
)

_LEADER_EPOCH_END = 16
"""A broker sets the leader epoch. Clients write 0 or -1."""
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CLIENTS = pytest.mark.parametrize("client", ["aiokafka", "kafka-python"])
CLIENT = st.sampled_from(["aiokafka", "kafka-python"])
KINDS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
COMPRESSION = st.sampled_from(KINDS)
COMPRESSIONS = pytest.mark.parametrize("compression", KINDS)
SOME = [Record(5, b"k", b"v", [("h", b"x")]), Record(4, None, b""), Record(7, b"", None)]


@pytest.fixture(scope="module", params=[1, 1 << 30], ids=["together", "one by one"])
def headers_together_or_not(request: pytest.FixtureRequest) -> Iterator[None]:
    """The headers of many records are read together, or all headers are read one by one."""
    with patch.object(record_batches, "_RECORDS_TOGETHER", request.param):
        yield


def encoded(records: list[Record], *, base_offset: int = 0, offsets: list[int] | None = None, **producer: int) -> bytes:
    given = range(len(records)) if offsets is None else offsets
    return encode(
        rows_of(records),
        base_offset=base_offset,
        offsets=np.array(given, np.int64),
        timestamps=timestamps_of(records),
        **producer,
    )


@pytest.mark.usefixtures("headers_together_or_not")
@given(client=CLIENT, compression=COMPRESSION, records=RECORDS)
def test_rows_are_the_records_that_a_client_wrote(client: str, compression: int, records: list[Record]) -> None:
    # aiokafka takes a first timestamp of -1 for none, and loses it.
    assume(client != "aiokafka" or records[0].timestamp != -1)

    assert decoded(built(records, client=client, compression=compression)) == records


@given(records=RECORDS)
def test_a_batch_is_that_of_other_clients_byte_for_byte(records: list[Record]) -> None:
    found = encoded(records)

    assert found == built(records, client="kafka-python")
    if records[0].timestamp != -1:
        assert found[_LEADER_EPOCH_END:] == built(records, client="aiokafka")[_LEADER_EPOCH_END:]


@given(client=CLIENT, compression=COMPRESSION, records=RECORDS, base=st.integers(0, 2**60))
def test_the_batch_of_a_client_is_that_of_its_rows(
    client: str, compression: int, records: list[Record], base: int
) -> None:
    assume(client != "aiokafka" or records[0].timestamp != -1)
    batch = built(records, client=client, compression=compression, producer=(5, 3, 7))

    found = decode(batch, max_bytes=MOST_BYTES).at_offset(base)

    offsets = [base + index for index in range(len(records))]
    assert found == encoded(records, base_offset=base, offsets=offsets)


@CLIENTS
@given(records=RECORDS, gaps=st.lists(st.integers(0, 2**24), min_size=20, max_size=20), base=st.integers(0, 2**60))
def test_a_client_reads_rows_with_their_offsets(client: str, records: list[Record], gaps: list[int], base: int) -> None:
    offsets = [base + gap + index for index, gap in enumerate(np.cumsum(gaps[: len(records)]).tolist())]
    batch = encoded(records, base_offset=base, offsets=offsets)

    assert read_by(client, batch) == list(zip(offsets, records, strict=True))
    reader = READERS[client](batch)
    assert (reader.base_offset, reader.next_offset) == (base, offsets[-1] + 1)
    assert reader.max_timestamp == max(each.timestamp for each in records)


@given(records=RECORDS)
def test_a_slice_of_rows_is_encoded_as_rows_of_its_own(records: list[Record]) -> None:
    whole = rows_of([*SOME, *records, *SOME])
    offsets, timestamps = np.arange(len(records)), timestamps_of(records)
    part = whole.slice(len(SOME), len(records))

    assert encode(part, base_offset=0, offsets=offsets, timestamps=timestamps) == encoded(records)


@CLIENTS
@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_names_its_producer(client: str, transactional: bool) -> None:
    found = decode(
        built(SOME, client=client, producer=(2**40, 7, 2**31 - 1), is_transactional=transactional), max_bytes=MOST_BYTES
    )

    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (2**40, 7, 2**31 - 1)
    assert (found.is_transactional, found.is_control) == (transactional, False)


@CLIENTS
def test_a_client_reads_the_producer_of_a_batch(client: str) -> None:
    reader = READERS[client](encoded(SOME, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1))

    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (2**40, 7, 2**31 - 1)


@CLIENTS
def test_a_client_without_idempotence_has_no_producer_id(client: str) -> None:
    found = decode(built(SOME, client=client), max_bytes=MOST_BYTES)

    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)


def test_a_client_gives_no_times_of_a_broker() -> None:
    with pytest.raises(InvalidBatchTimestamp):
        decode(changed(built(SOME), attributes=8), max_bytes=MOST_BYTES)


@pytest.mark.parametrize("epoch", [-1, -(2**15)])
def test_a_producer_id_comes_with_an_epoch(epoch: int) -> None:
    with pytest.raises(InvalidBatchEpoch):
        decode(changed(built(SOME, producer=(1, 0, 0)), producer_epoch=epoch), max_bytes=MOST_BYTES)


@pytest.mark.parametrize("commit", [True, False])
def test_clients_read_a_marker(commit: bool) -> None:
    batch = control_batch(2**40, 5, 3, commit)

    for client in READERS:
        reader = READERS[client](batch)
        assert reader.validate_crc()
        assert (reader.is_control_batch, reader.is_transactional, reader.next_offset) == (True, True, 2**40 + 1)
        assert (reader.producer_id, reader.producer_epoch) == (5, 3)
        (marker,) = reader
        assert (marker.offset, marker.key) == (2**40, struct.pack(">hh", 0, int(commit)))
        if client == "kafka-python":
            assert (marker.commit, marker.abort) == (commit, not commit)


def test_a_marker_is_a_control_batch() -> None:
    found = decode(control_batch(2**40, 5, 3, True), max_bytes=MOST_BYTES)

    assert (found.is_control, found.is_transactional, found.producer_id) == (True, True, 5)


@pytest.mark.parametrize("size", [0, 1, 50, 56, 57, 58, 63, 64, 8_170, 8_180, 8_191, 8_192, 1_048_570, 1_048_576])
def test_sizes_around_those_of_varints(size: int) -> None:
    records = [Record(1, bytes(size), b"v"), Record(2, None, bytes(size)), Record(3, None, None, [("n", bytes(size))])]
    batch = built(records, client="aiokafka")

    assert decoded(batch, max_bytes=4 << 20) == records
    assert encoded(records)[_LEADER_EPOCH_END:] == batch[_LEADER_EPOCH_END:]


@pytest.mark.parametrize("compression", sweep(KINDS, quick=[GZIP]))
def test_batches_of_many_records(compression: int) -> None:
    # The records are read and written in several parts.
    headers = [[], [("a", b"1")], [("a", None), ("b", b"")]]
    records = [Record(index % 1_000, b"%d" % index, None, headers[index % 3]) for index in range(40_000)]
    batch = built(records, client="aiokafka", compression=compression)

    assert decoded(batch) == records
    assert [record for _, record in read_by("aiokafka", encoded(records))] == records


_FIELDS = [b"\0", 1, 0, 1, b"k", 2, b"vv", 1, 1, b"n", 1, b"x"]
"""The fields of a record: its numbers, and bytes."""
_NUMBERS = [index for index, each in enumerate(_FIELDS) if isinstance(each, int)]


def batch_of(*fields: int | bytes, length: bytes | None = None) -> bytes:
    """Return a batch with a record of these fields. Its base timestamp is 7."""
    body = b"".join(varint(each) if isinstance(each, int) else each for each in fields)
    return changed(built([Record(7)]), (varint(len(body)) if length is None else length) + body)


def test_the_fields_of_a_record() -> None:
    assert decoded(batch_of(*_FIELDS)) == [Record(8, b"k", b"vv", [("n", b"x")])]


@pytest.mark.parametrize("at", _NUMBERS)
def test_a_number_may_have_needless_bytes_up_to_its_width(at: int) -> None:
    width = 10 if at == 1 else 5
    number = _FIELDS[at]
    assert isinstance(number, int)

    padded = batch_of(*_FIELDS[:at], longest(number, width), *_FIELDS[at + 1 :])
    assert decoded(padded) == decoded(batch_of(*_FIELDS))

    with pytest.raises(InvalidBatch):
        decoded(batch_of(*_FIELDS[:at], longest(number, width + 1), *_FIELDS[at + 1 :]))


def test_a_length_may_have_needless_bytes_up_to_its_width() -> None:
    size = len(batch_of(*_FIELDS)) - HEADER.size - 1
    assert decoded(batch_of(*_FIELDS, length=longest(size, 5))) == decoded(batch_of(*_FIELDS))

    with pytest.raises(InvalidBatch):
        decoded(batch_of(*_FIELDS, length=longest(size, 6)))


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, -1, 0, 63, 64, -64, -65, 2**34])
def test_extreme_timestamps(number: int) -> None:
    (found,) = decoded(changed(batch_of(*_FIELDS[:1], number, *_FIELDS[2:]), base_timestamp=0))

    assert found.timestamp == number


def test_null_sizes() -> None:
    assert decoded(batch_of(b"\0", 0, 0, -1, -1, 1, 0, -1)) == [Record(7, None, None, [("", None)])]
    # As Kafka, any negative size is null.
    assert decoded(batch_of(b"\0", 0, 0, -9, -7, 1, 0, -5)) == [Record(7, None, None, [("", None)])]


_UNFIT = {
    "a negative length": batch_of(*_FIELDS, length=varint(-1)),
    "a length of 0": batch_of(*_FIELDS, length=varint(0)),
    "a length too short": batch_of(*_FIELDS, length=varint(12)),
    "a length too long": batch_of(*_FIELDS, length=varint(14)),
    "bytes behind the fields": batch_of(*_FIELDS, b"\0"),
    "bytes behind the record": changed(batch_of(*_FIELDS), batch_of(*_FIELDS)[HEADER.size :] + b"\0"),
    "a second record": changed(batch_of(*_FIELDS), batch_of(*_FIELDS)[HEADER.size :] * 2),
    "no second record": changed(batch_of(*_FIELDS), last_offset_delta=1, record_count=2),
    "no record": changed(batch_of(*_FIELDS), b""),
    "an empty batch": changed(batch_of(*_FIELDS), b"", last_offset_delta=-1, record_count=0),
    "an empty batch that keeps an offset": changed(batch_of(*_FIELDS), b"", last_offset_delta=0, record_count=0),
    "a negative count": changed(batch_of(*_FIELDS), record_count=-1, last_offset_delta=-2),
    "a huge count": changed(batch_of(*_FIELDS), record_count=2**31 - 1, last_offset_delta=2**31 - 2),
    "a wrong last offset": changed(batch_of(*_FIELDS), last_offset_delta=1),
    "an offset delta of 1": batch_of(*_FIELDS[:2], 1, *_FIELDS[3:]),
    "a key behind the record": batch_of(*_FIELDS[:3], 9, *_FIELDS[4:]),
    "a value behind the record": batch_of(*_FIELDS[:5], 8, *_FIELDS[6:]),
    "a huge key": batch_of(*_FIELDS[:3], 2**31 - 1, *_FIELDS[4:]),
    "a huge value": batch_of(*_FIELDS[:5], 2**31 - 1, *_FIELDS[6:]),
    "a negative number of headers": batch_of(*_FIELDS[:7], -1),
    "too many headers": batch_of(*_FIELDS[:7], 2, *_FIELDS[8:]),
    "a huge number of headers": batch_of(*_FIELDS[:7], 2**31 - 1, *_FIELDS[8:]),
    "too few headers": batch_of(*_FIELDS[:7], 0, *_FIELDS[8:]),
    "a null key of a header": batch_of(*_FIELDS[:8], -1, 1, b"x"),
    "a key of a header behind the record": batch_of(*_FIELDS[:8], 8, *_FIELDS[9:]),
    "a value of a header behind the record": batch_of(*_FIELDS[:10], 2, *_FIELDS[11:]),
    "a key of a header that is not UTF-8": batch_of(*_FIELDS[:9], b"\xff", *_FIELDS[10:]),
    "no sequence": changed(batch_of(*_FIELDS), producer_id=1, producer_epoch=0, base_sequence=-1),
    "two batches": batch_of(*_FIELDS) * 2,
    "a byte behind the batch": batch_of(*_FIELDS) + b"\0",
}


@pytest.mark.usefixtures("headers_together_or_not")
@pytest.mark.parametrize("batch", _UNFIT.values(), ids=list(_UNFIT))
def test_an_intact_batch_that_breaks_a_rule_is_invalid(batch: bytes) -> None:
    with pytest.raises(InvalidBatch):
        decode(batch, max_bytes=MOST_BYTES)


def test_damaged_batches_are_corrupt() -> None:
    batch = built(SOME)
    for size in (*range(17), HEADER.size - 1, HEADER.size, len(batch) - 1):
        with pytest.raises(CorruptBatch):
            decode(batch[:size], max_bytes=MOST_BYTES)
    for length in (-(2**31), -1, 0, 48, len(batch), 2**31 - 1):
        with pytest.raises(CorruptBatch, match="length"):
            decode(changed(batch, length=length), max_bytes=MOST_BYTES)
    for place in range(21, len(batch)):
        with pytest.raises(CorruptBatch, match="checksum"):
            decode(batch[:place] + bytes([batch[place] ^ 1]) + batch[place + 1 :], max_bytes=MOST_BYTES)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_versions_are_not_supported(magic: int) -> None:
    with pytest.raises(UnsupportedBatch, match=f"version {magic % 256}"):
        decode(changed(built(SOME), magic=magic), max_bytes=MOST_BYTES)


@pytest.mark.parametrize("compression", [5, 6, 7])
def test_unknown_compressions_are_not_supported(compression: int) -> None:
    with pytest.raises(UnsupportedBatch, match=f"compression {compression}"):
        decode(changed(built(SOME), attributes=compression), max_bytes=MOST_BYTES)


@COMPRESSIONS
def test_records_have_at_most_the_allowed_bytes(compression: int) -> None:
    records = [Record(1, None, bytes(100))] * 100
    size = len(built(records)) - HEADER.size
    batch = built(records, compression=compression)

    assert decoded(batch, max_bytes=size) == records
    with pytest.raises(BatchTooLarge):
        decode(batch, max_bytes=size - 1)


def test_rows_of_a_store_may_have_null_headers() -> None:
    """A column of Spark has room for a null header, and for a null key that a null header hides."""
    element = RECORDS_SCHEMA.field("headers").type.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(["a", "hidden"]), pa.array([b"1", b"2"])], fields=list(element), mask=pa.array([False, True])
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 2]), pairs).cast(RECORDS_SCHEMA.field("headers").type)
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(1, pa.binary()), pa.nulls(1, pa.binary()), headers], schema=RECORDS_SCHEMA.remove(3)
    )

    batch = encode(rows, base_offset=0, offsets=np.zeros(1, np.int64), timestamps=np.zeros(1, np.int64))

    assert decoded(batch) == [Record(0, None, None, [("a", b"1"), ("", None)])]


_SMALL_HEADERS = varint(100_000) + (varint(0) + varint(-1)) * 100_000


@given(compression=COMPRESSION, records=RECORDS)
def test_the_bytes_of_the_rows_have_a_bound_before_they_are_decoded(compression: int, records: list[Record]) -> None:
    batch, size = built(records, compression=compression), len(built(records))

    bound = most_decoded_bytes(memoryview(batch), max_bytes=size)

    found = decode(batch, max_bytes=size)
    assert bound == 9 * size
    assert found.rows.nbytes + len(found.records) <= bound


@pytest.mark.parametrize(
    "made",
    [
        lambda: built([Record(7)] * 100_000),
        lambda: batch_of(b"\0", 0, 0, -1, -1, _SMALL_HEADERS),
    ],
    ids=["records", "headers"],
)
def test_small_records_and_headers_take_few_times_their_bytes(made: Callable[[], bytes]) -> None:
    batch = made()
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        rows = decode(batch, max_bytes=MOST_BYTES).rows
        _, peak = tracemalloc.get_traced_memory()
        size = len(batch) - HEADER.size
        assert pool.bytes_allocated() - before < 8 * size + 10_000
        assert rows.nbytes <= 8 * size
        assert peak < 40 * size + (4 << 20)
    finally:
        tracemalloc.stop()


def test_headers_are_limited() -> None:
    headers = varint(2**20 + 1) + (varint(0) + varint(-1)) * (2**20 + 1)

    with pytest.raises(BatchTooLarge, match="headers"):
        decode(batch_of(b"\0", 0, 0, -1, -1, headers), max_bytes=4 << 20)


def spoiled(batch: bytes, chance: random.Random) -> bytes:
    """Return a batch with wrong bytes, but often with a header that fits them."""
    body = bytearray(batch[HEADER.size :])
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(4):
            case 0:
                del body[at : at + chance.randrange(1, 9)]
            case 1:
                body[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                body[at : at + 1] = bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            case _:
                body[at:at] = body[chance.randrange(len(body) + 1) :][: chance.randrange(1, 99)]
    fields = {}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        name = chance.choice(FIELDS)
        size = {"magic": 7, "attributes": 15, "producer_epoch": 15, "crc": 31}.get(name, 31)
        fields[name] = chance.choice((-1, 0, 1, 2, chance.getrandbits(size), 2**size - 1)) & 2**31 - 1
        if size < 31:
            fields[name] = min(fields[name], 2**size - 1)
    found = changed(batch, bytes(body), **fields)
    return found[: chance.randrange(len(found))] if chance.random() < 0.05 else found


@pytest.mark.usefixtures("headers_together_or_not")
@given(compression=COMPRESSION, records=RECORDS, seed=st.integers(0, 2**32))
def test_spoiled_batches_are_read_byte_by_byte_alike_or_refused(
    compression: int, records: list[Record], seed: int
) -> None:
    chance = random.Random(seed)
    batch = built(records, compression=compression)
    for _ in range(20):
        found = spoiled(batch, chance)
        try:
            read = decoded(found)
        except BatchError:
            continue
        assert read_plainly(found) == read
