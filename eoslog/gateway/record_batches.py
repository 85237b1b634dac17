"""Kafka's record batches (version 2) as Arrow rows, and back.

A batch has a header of 61 bytes (``DefaultRecordBatch``):

    BaseOffset: int64, BatchLength: int32, PartitionLeaderEpoch: int32, Magic: int8, CRC: uint32,
    Attributes: int16, LastOffsetDelta: int32, BaseTimestamp: int64, MaxTimestamp: int64,
    ProducerId: int64, ProducerEpoch: int16, BaseSequence: int32, RecordCount: int32

Its records follow, and may be compressed together. A record consists of varints and bytes (``DefaultRecord``). A
negative size stands for null:

    Length, Attributes: int8, TimestampDelta, OffsetDelta, KeySize, Key, ValueSize, Value,
    HeaderCount, and for each header KeySize, Key, ValueSize, Value

Only the length of a record leads to the next one, so a loop finds the positions of records. The fields are then read
one field of many records at a time, which is several times as fast as one record at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.format.topic_schemas import HEADERS_TYPE, RECORDS_SCHEMA
from eoslog.gateway.batch_errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidBatchEpoch,
    InvalidBatchTimestamp,
    UnsupportedBatch,
)
from eoslog.gateway.decompression import decompress
from eoslog.gateway.varints import (
    MOST_BYTES_OF_LONG,
    Flags,
    Numbers,
    read_varint,
    read_varints,
    varint_sizes,
    write_varints,
)

Column: TypeAlias = Any
"""An array of Arrow's. The types of pyarrow's stubs are narrower than what it takes."""
_HEADERS: Any = HEADERS_TYPE

NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE = -1, -1, -1

_MAGIC, _MAGIC_AT = 2, 16
_TO_CRC = struct.Struct(">qiibI")
"""The fields up to the checksum, which is that of all bytes behind it."""
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_HEADER_BYTES = _TO_CRC.size + _FROM_ATTRIBUTES.size
_BEFORE_LENGTH = struct.calcsize(">qi")
"""The length of a batch does not count itself and the base offset."""
_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""
_ATTRIBUTES_END = _TO_CRC.size + struct.calcsize(">h")
_ABORT, _COMMIT = 0, 1
_MOST_EXPANSION = 9
"""Rows and their records without compression have at most this many times the bytes of the records. The smallest record
has 7 bytes."""
_RECORDS_AT_ONCE = 16 << 10
"""The numbers of a record take many times the bytes of a small record. This bounds the memory for them."""
_MOST_HEADERS = 1 << 20
"""The largest number of headers in a batch. They may have to be read one by one, and this bounds the time of that."""
_RECORDS_TOGETHER = 32
"""The headers of fewer records are read one by one: that costs less than the calls that read them together."""
_MOST_BYTES = (1 << 31) - 1
"""Arrow's positions within keys and values have 32 bits."""


@dataclass(frozen=True)
class DecodedBatch:
    """A record batch: its producer, and its records as rows."""

    producer_id: int
    """-1 for a producer without idempotence."""
    producer_epoch: int
    base_sequence: int
    """The sequence number of the first record. Those of the other records follow."""
    is_transactional: bool
    is_control: bool
    rows: pa.Table
    """The records with the columns of ``RECORDS_SCHEMA``."""
    records: bytes
    """The records in Kafka's form, without compression."""
    base_timestamp: int

    def at_offset(self, offset: int) -> bytes:
        """Return the records as the batch without producer that ``encode`` makes of the rows.

        Args:
            offset: the offset of the first record.
        """
        timestamps = self.rows["timestamp"].cast(pa.int64())
        header = _Header(
            attributes=0,
            last_offset_delta=self.rows.num_rows - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=pc.max(timestamps).as_py(),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=self.rows.num_rows,
        )
        return _batch(offset, header, self.records)


class _Header(NamedTuple):
    """The fields of a batch from its attributes on."""

    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def most_decoded_bytes(batch: memoryview | bytes, *, max_bytes: int) -> int:
    """Return how many bytes the rows and records of a decoded batch take at most, before it is decoded.

    Args:
        max_bytes: the most bytes of the records without compression.
    """
    # The bits of the compression are in the second byte of the attributes.
    is_compressed = len(batch) >= _ATTRIBUTES_END and batch[_ATTRIBUTES_END - 1] & _COMPRESSION
    return _MOST_EXPANSION * (max_bytes if is_compressed else len(batch))


def decode(batch: memoryview | bytes, *, max_bytes: int) -> DecodedBatch:
    """Return the batch that a producer sent, after the checks that a broker makes.

    Args:
        batch: the data of a partition in a produce request. It is one batch, as Kafka demands since version 3.
        max_bytes: the most bytes of the records without compression.

    Raises:
        BatchError
    """
    data = bytes(batch)
    header = _checked_header(data)
    body = decompress(header.attributes & _COMPRESSION, data[_HEADER_BYTES:], max_bytes=min(max_bytes, _MOST_BYTES))
    return DecodedBatch(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=bool(header.attributes & _TRANSACTIONAL),
        is_control=bool(header.attributes & _CONTROL),
        rows=pa.Table.from_batches(_rows(body, header), RECORDS_SCHEMA),
        records=body,
        base_timestamp=header.base_timestamp,
    )


def _checked_header(data: bytes) -> _Header:
    """Return a header after the checks of ``DefaultRecordBatch.ensureValid`` and ``LogValidator.validateBatch``."""
    # All versions have this byte at this position.
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] != _MAGIC:
        raise UnsupportedBatch(f"record batches of version {data[_MAGIC_AT]} are not supported. Use version {_MAGIC}")
    if len(data) < _HEADER_BYTES:
        raise CorruptBatch(f"{len(data)} bytes are less than the header of a record batch")
    _, length, _, _, checksum = _TO_CRC.unpack_from(data)
    size = _BEFORE_LENGTH + length
    if not _HEADER_BYTES <= size <= len(data):
        raise CorruptBatch(f"a record batch of {len(data)} bytes has a length of {size}")
    if size < len(data):
        raise InvalidBatch(f"a request has one record batch a partition, but {len(data) - size} bytes follow the first")
    if google_crc32c.value(data[_TO_CRC.size :]) != checksum:
        raise CorruptBatch("the checksum of a record batch is wrong")
    header = _Header._make(_FROM_ATTRIBUTES.unpack_from(data, _TO_CRC.size))
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatch(
            f"a record batch has {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and not header.attributes & _CONTROL:
        if header.base_sequence < 0:
            raise InvalidBatch(f"a record batch of producer id {header.producer_id} has no sequence number")
        if header.producer_epoch < 0:
            raise InvalidBatchEpoch(f"a record batch of producer id {header.producer_id} has no epoch")
    if header.attributes & _LOG_APPEND_TIME:
        raise InvalidBatchTimestamp("a record batch has the timestamp type LogAppendTime. Producers use CreateTime")
    return header


def _rows(body: bytes, header: _Header) -> Iterator[pa.RecordBatch]:
    """Yield the records as rows, some thousands at a time."""
    at, headers_left = 0, _MOST_HEADERS
    for first in range(0, header.record_count, _RECORDS_AT_ONCE):
        count = min(header.record_count - first, _RECORDS_AT_ONCE)
        rows, at = _rows_at(body, _positions(body, at, count), first, header, headers_left)
        headers: Column = rows.column("headers")
        headers_left -= len(headers.values)
        yield rows
    if at != len(body):
        raise InvalidBatch(f"{len(body) - at} bytes follow the last record of a batch")


def _positions(body: bytes, at: int, count: int) -> Numbers:
    """Return the positions of ``count`` records. The first one is at ``at``."""
    positions = []
    try:
        for _ in range(count):
            positions.append(at)
            # Nearly all lengths have one or two bytes. A call of `read_varint` for each would double the time.
            byte = body[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
            elif (second := body[at + 1]) < 0x80:
                at += 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                length, at = read_varint(body, at)
                at += max(length, 0)
    except IndexError:
        raise InvalidBatch("a record batch has fewer records than it says") from None
    return np.array(positions, np.int64)


def _rows_at(
    body: bytes, positions: Numbers, first: int, header: _Header, most_headers: int
) -> tuple[pa.RecordBatch, int]:
    """Return the records at these positions as rows, and the position behind the last one.

    Args:
        first: the offset delta of the first of these records.
    """
    data = np.frombuffer(body, np.uint8)
    length, attributes_at = read_varints(data, positions)
    end = attributes_at + length
    timestamp_delta, at = read_varints(data, attributes_at + 1, MOST_BYTES_OF_LONG)
    offset_delta, at = read_varints(data, at)
    key_size, key_at = read_varints(data, at)
    value_size, value_at = read_varints(data, key_at + np.maximum(key_size, 0))
    header_count, headers_at = read_varints(data, value_at + np.maximum(value_size, 0))
    # No position comes before that of the field in front. So all fields are within their record if the last one is.
    if (length < 0).any() or end[-1] > len(body) or (headers_at > end).any():
        raise InvalidBatch("a field of a record ends behind its record")
    if (offset_delta != np.arange(first, first + len(positions))).any():
        raise InvalidBatch("the offset deltas of the records of a batch are not 0, 1, 2 and so on")
    columns = [
        _slices(body, key_at, key_size),
        _slices(body, value_at, value_size),
        _headers(body, headers_at, end, header_count, most_headers),
        pa.array(np.int64(header.base_timestamp) + timestamp_delta).view(RECORDS_SCHEMA.field("timestamp").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS_SCHEMA), int(end[-1])


def _headers(body: bytes, at: Numbers, end: Numbers, counts: Numbers, most_headers: int) -> Column:
    """Return the headers of each record, null for none.

    Args:
        at: the positions of the first headers of records.
        end: the ends of records, where their last headers must end.
    """
    if not counts.any():
        if (at != end).any():
            raise InvalidBatch("the fields of a record end before the record")
        return pa.nulls(len(counts), _HEADERS)
    # A header has two bytes at least.
    if (counts < 0).any() or (counts > (end - at) // 2).any():
        raise InvalidBatch("a record has a negative number of headers, or more than it has room for")
    if counts.sum() > most_headers:
        raise BatchTooLarge(f"the records of a batch have more than {_MOST_HEADERS} headers. Send smaller batches")
    key_at, key_size, value_at, value_size = _header_fields(body, at, end, counts)
    if key_size.min() < 0:
        raise InvalidBatch("the key of a header is null")
    try:
        keys = _slices(body, key_at, key_size).cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidBatch("the key of a header is not UTF-8") from None
    values = _slices(body, value_at, value_size)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADERS.value_type))
    buffers = [_validity(counts > 0), _buffer(_bounds(counts))]
    return pa.Array.from_buffers(_HEADERS, len(counts), buffers, children=[pairs])


def _header_fields(body: bytes, at: Numbers, end: Numbers, counts: Numbers) -> tuple[Numbers, ...]:
    """Return the position and size of the key of each header, and those of its value."""
    data = np.frombuffer(body, np.uint8)
    firsts = _bounds(counts)
    key_at, key_size, value_at, value_size = np.empty((4, firsts[-1]), np.int64)
    position = at.copy()
    number, records = 0, np.flatnonzero(counts)
    # Most records have few headers, so all first headers are read at once, then all second ones, and so on.
    while len(records) >= _RECORDS_TOGETHER:
        place = firsts[records] + number
        key_size[place], key_at[place] = read_varints(data, position[records])
        value_size[place], value_at[place] = read_varints(data, key_at[place] + np.maximum(key_size[place], 0))
        position[records] = value_at[place] + np.maximum(value_size[place], 0)
        number += 1
        records = records[counts[records] > number]
    for record in records.tolist():
        after = int(position[record])
        for header in range(int(firsts[record]) + number, int(firsts[record + 1])):
            key_size[header], key_at[header] = size, after = read_varint(body, after)
            value_size[header], value_at[header] = size, after = read_varint(body, after + max(size, 0))
            after += max(size, 0)
        position[record] = after
    if (position != end).any():
        raise InvalidBatch("the headers of a record end before or behind it")
    return key_at, key_size, value_at, value_size


def _slices(data: bytes, at: Numbers, sizes: Numbers) -> Column:
    """Return slices of the data, which follow one another, maybe with bytes between. One of a negative size is null."""
    # An array over the data itself has the slices at the even places, and the bytes between them at the odd ones.
    bounds = np.stack((at, at + np.maximum(sizes, 0)), axis=1).astype(np.int32)
    all_bytes = _strings(bounds.ravel(), pa.py_buffer(data))
    even = _buffer(np.arange(0, 2 * len(at), 2, dtype=np.int32))
    return all_bytes.take(pa.Array.from_buffers(pa.int32(), len(at), [_validity(sizes >= 0), even]))


def _validity(is_valid: Flags) -> pa.Buffer | None:
    """Return Arrow's bitmap of the values that are not null; None if all are not."""
    return None if is_valid.all() else _buffer(np.packbits(is_valid, bitorder="little"))


def _bounds(sizes: Numbers) -> npt.NDArray[np.int32]:
    """Return the bounds of values that follow one another, in Arrow's form."""
    bounds = np.zeros(len(sizes) + 1, np.int32)
    sizes.cumsum(out=bounds[1:])
    return bounds


def encode(
    rows: pa.RecordBatch,
    *,
    base_offset: int,
    offsets: Numbers,
    timestamps: Numbers,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return rows as a batch without compression.

    Args:
        rows: at least one row with the columns ``key``, ``value`` and ``headers`` of ``RECORDS_SCHEMA``.
        base_offset: the offset of the batch, at most that of the first row.
        offsets: the ascending offsets of the rows. Offsets may be left out.
        timestamps: the timestamps of the rows (ms).
    """
    base_timestamp = int(timestamps[0])
    header = _Header(
        attributes=0,
        last_offset_delta=int(offsets[-1]) - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=int(timestamps.max()),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=rows.num_rows,
    )
    return _batch(base_offset, header, _records(rows, timestamps - base_timestamp, offsets - base_offset))


def row_count(batch: bytes) -> int:
    """Return the number of rows in the bytes of a batch. A control batch has none."""
    header = _Header._make(_FROM_ATTRIBUTES.unpack_from(batch, _TO_CRC.size))
    return 0 if header.attributes & _CONTROL else header.record_count


def control_batch(offset: int, producer_id: int, epoch: int, commit: bool) -> bytes:
    """Return the marker that ends a transaction of a producer: a batch with one control record."""
    version, coordinator_epoch = 0, 0
    key = struct.pack(">hh", version, _COMMIT if commit else _ABORT)
    value = struct.pack(">hi", version, coordinator_epoch)
    row = pa.RecordBatch.from_arrays(
        [pa.array([key]), pa.array([value]), pa.nulls(1, _HEADERS)], schema=RECORDS_SCHEMA.remove(3)
    )
    header = _Header(
        attributes=_TRANSACTIONAL | _CONTROL,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    zero = np.zeros(1, np.int64)
    return _batch(offset, header, _records(row, zero, zero))


def _batch(base_offset: int, header: _Header, records: bytes) -> bytes:
    checked = _FROM_ATTRIBUTES.pack(*header)
    checksum = google_crc32c.extend(google_crc32c.value(checked), records)
    length = _HEADER_BYTES - _BEFORE_LENGTH + len(records)
    leader_epoch = 0
    return b"".join((_TO_CRC.pack(base_offset, length, leader_epoch, _MAGIC, checksum), checked, records))


def _records(rows: pa.RecordBatch, timestamp_delta: Numbers, offset_delta: Numbers) -> bytes:
    """Return rows as records."""
    keys, values = rows.column("key"), rows.column("value")
    headers = _encoded_headers(rows.column("headers"))
    key_size, value_size = _sizes(keys), _sizes(values)
    # The attributes of a record are one byte without bits, as is the varint of 0.
    attributes = np.zeros_like(key_size)
    numbers = np.stack((attributes, timestamp_delta, offset_delta, key_size, value_size), axis=1)
    length = varint_sizes(numbers).sum(axis=1) + np.maximum(key_size, 0) + np.maximum(value_size, 0) + _sizes(headers)
    before_key = _varints(length, attributes, timestamp_delta, offset_delta, key_size)
    records = _joined(before_key, keys, _varints(value_size), values, headers)
    _, bounds, data = records.buffers()
    content: bytes = data.slice(0, int(np.frombuffer(bounds, np.int32)[len(records)])).to_pybytes()
    return content


def _encoded_headers(headers: Column) -> Column:
    """Return for each row the number of its headers and the headers, as at the end of a record."""
    counts = headers.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    if not counts.any():
        # The varint of 0 is a byte without bits.
        return _strings(np.arange(len(counts) + 1, dtype=np.int32), pa.py_buffer(bytes(len(counts))))
    keys, values = headers.flatten().flatten()
    # A column of a store may have null for a header. Kafka has no null keys of headers.
    keys = keys.fill_null("").cast(pa.binary())
    pairs = _joined(_varints(_sizes(keys)), keys, _varints(_sizes(values)), values)
    _, bounds, data = pairs.buffers()
    of_rows = np.frombuffer(bounds, np.int32)[_bounds(counts)]
    return _joined(_varints(counts), _strings(of_rows, data))


def _sizes(column: Column) -> Numbers:
    """Return the sizes of byte strings, -1 for null."""
    lengths: Column = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    sizes: Numbers = lengths.to_numpy().astype(np.int64)
    return sizes


def _varints(*columns: Numbers) -> Column:
    """Return a byte string for each row: the varints of its numbers."""
    written, is_taken = write_varints(np.stack(columns, axis=1))
    return _strings(_bounds(is_taken.sum(axis=(1, 2))), _buffer(written[is_taken]))


def _strings(bounds: npt.NDArray[np.int32], data: pa.Buffer | None) -> Column:
    """Return the byte strings between these bounds in the data."""
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, _buffer(bounds), data])


def _buffer(numbers: Any) -> pa.Buffer:
    return pa.py_buffer(numbers)


def _joined(*columns: Column) -> Column:
    """Return a byte string for each row: the byte strings of its columns, one behind the other. Null has no bytes."""
    count = len(columns[0])
    # Of the columns one below the other, the first row has the places 0, count, 2 · count and so on.
    places = np.arange(count * len(columns), dtype=np.int32).reshape(len(columns), count).T.ravel()
    _, bounds, data = pa.concat_arrays(columns).take(pa.array(places)).buffers()
    of_rows = np.frombuffer(bounds, np.int32)[: len(places) + 1 : len(columns)].copy()
    return _strings(of_rows, data)
