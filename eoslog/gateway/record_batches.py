"""Kafka's record batches (version 2) as Arrow rows, and back."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from typing import Any

import google_crc32c
import pyarrow as pa

from eoslog.format.topic_schemas import RECORDS_SCHEMA

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH = 12
_BEFORE_CRC = 21


class CorruptBatch(Exception):
    """The bytes are no record batch."""


class UnsupportedBatch(Exception):
    """A record batch of a version or compression that is not supported."""


@dataclass(frozen=True)
class DecodedBatch:
    """A record batch: its producer, and its records as rows."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    timestamp_type: int
    rows: pa.Table | pa.RecordBatch


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise CorruptBatch("a record ends beyond its batch")
    return data[at : at + size], at + size


def decode(batch: memoryview | bytes, *, max_bytes: int) -> DecodedBatch:
    """Return the batch that these bytes are."""
    data = bytes(batch)
    try:
        header = _HEADER.unpack_from(data)
    except struct.error:
        raise CorruptBatch("a batch has fewer bytes than its header") from None
    if header[3] != 2:
        raise UnsupportedBatch(f"version {header[3]} of batches is not supported")
    if len(data) != _BEFORE_LENGTH + header[1] or google_crc32c.value(data[_BEFORE_CRC:]) != header[4]:
        raise CorruptBatch("a batch has a wrong length or checksum")
    attributes, body = header[5], data[_HEADER.size :]
    if attributes & 7 == 1:
        body = gzip.decompress(body)
    elif attributes & 7:
        raise UnsupportedBatch("this compression is not supported")
    keys, values, headers, times, at = [], [], [], [], 0
    try:
        for _ in range(header[12]):
            _, at = _varint(body, at)
            delta, at = _varint(body, at + 1)
            _, at = _varint(body, at)
            key, at = _bytes(body, at)
            value, at = _bytes(body, at)
            count, at = _varint(body, at)
            pairs: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                name, at = _bytes(body, at)
                content, at = _bytes(body, at)
                pairs.append(((name or b"").decode(), content))
            keys.append(key)
            values.append(value)
            headers.append(pairs or None)
            times.append(header[7] + delta)
    except (IndexError, UnicodeDecodeError):
        raise CorruptBatch("a record is damaged") from None
    parts: Any = (keys, values, headers, times)
    columns: Any = [pa.array(each, field.type) for each, field in zip(parts, RECORDS_SCHEMA, strict=True)]
    return DecodedBatch(
        producer_id=header[9],
        producer_epoch=header[10],
        base_sequence=header[11],
        is_transactional=bool(attributes & 16),
        is_control=bool(attributes & 32),
        timestamp_type=(attributes >> 3) & 1,
        rows=pa.Table.from_arrays(columns, schema=RECORDS_SCHEMA),
    )


def _encoded(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _sized(value: bytes | None) -> bytes:
    return _encoded(-1) if value is None else _encoded(len(value)) + value


def encode(rows: Any, *, base_offset: int, offsets: Any, timestamps: Any, producer_id: int = -1) -> bytes:
    """Return rows as a batch."""
    records = []
    keys, values, headers = (rows.column(name).to_pylist() for name in ("key", "value", "headers"))
    for key, value, pairs, offset, time in zip(keys, values, headers, offsets, timestamps, strict=True):
        body = b"\0" + _encoded(int(time) - int(timestamps[0])) + _encoded(int(offset) - base_offset)
        body += _sized(key) + _sized(value) + _encoded(len(pairs or ()))
        for pair in pairs or ():
            body += _sized(pair["key"].encode()) + _sized(pair["value"])
        records.append(_encoded(len(body)) + body)
    return _batch(
        base_offset,
        0,
        int(offsets[-1]) - base_offset,
        int(timestamps[0]),
        int(max(timestamps)),
        producer_id,
        -1,
        records,
    )


def _batch(
    base_offset: int, attributes: int, last: int, first_ms: int, last_ms: int, producer: int, epoch: int, records: Any
) -> bytes:
    tail = struct.pack(">hiqqqhii", attributes, last, first_ms, last_ms, producer, epoch, -1, len(records))
    tail += b"".join(records)
    crc = google_crc32c.value(tail)
    return struct.pack(">qiibI", base_offset, len(tail) + _BEFORE_CRC - _BEFORE_LENGTH, 0, 2, crc) + tail


def control_batch(offset: int, producer_id: int, epoch: int, commit: bool) -> bytes:
    """Return a batch with one control record."""
    body = b"\0\0\0" + _sized(struct.pack(">hh", 0, int(commit))) + _sized(struct.pack(">hi", 0, 0)) + _encoded(0)
    return _batch(offset, 48, 0, 0, 0, producer_id, epoch, [_encoded(len(body)) + body])
