"""Record batches of two Kafka clients, and their parts."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa
from aiokafka.record._crecords.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.gateway.decompression import decompress
from eoslog.gateway.record_batches import decode

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = [
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
]
CHECKED_FROM = 21
MOST_BYTES = 1 << 20
BUILDERS: dict[str, Any] = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
READERS: dict[str, Any] = {"aiokafka": AiokafkaBatch, "kafka-python": KafkaPythonBatch}

Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)


_BYTES = st.none() | st.binary(max_size=20) | st.builds(bytes, st.integers(50, 200))
_NAMES = st.sampled_from(["", "a", "content-type", "é" * 40]) | st.text(max_size=8)
# 61 bits and a sign, so that no difference needs 65 bits: the clients cannot write such differences.
_TIMESTAMPS = st.one_of(
    st.just(-1), st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-(2**61), 2**61), st.integers(-3, 3)
)
RECORDS = st.lists(
    st.builds(Record, _TIMESTAMPS, _BYTES, _BYTES, st.lists(st.tuples(_NAMES, _BYTES), max_size=4)),
    min_size=1,
    max_size=20,
)


def built(
    records: Sequence[Record],
    *,
    client: str = "kafka-python",
    compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
) -> bytes:
    """Return the batch that a client writes."""
    builder = BUILDERS[client](2, compression, int(is_transactional), *producer, 1 << 30)
    for offset, each in enumerate(records):
        assert builder.append(offset, each.timestamp, each.key, each.value, each.headers) is not None
    return bytes(builder.build())


def read_by(client: str, batch: bytes) -> list[tuple[int, Record]]:
    """Return the records that a client reads, with their offsets."""
    reader = READERS[client](bytes(batch))
    assert reader.validate_crc()
    return [(each.offset, Record(each.timestamp, each.key, each.value, list(each.headers))) for each in reader]


def read_plainly(batch: bytes) -> list[Record]:
    """Return the records of an intact batch, read byte by byte as Kafka's ``DefaultRecord.readFrom`` does.

    Clients differ from Kafka in damaged records: kafka-python takes the attributes of a record for a varint.
    """
    header = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))
    body, at = decompress(header["attributes"] & 7, batch[HEADER.size :], max_bytes=MOST_BYTES), 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                value &= 2**64 - 1
                return (value >> 1) ^ -(value & 1)

    def sized() -> bytes | None:
        nonlocal at
        size = number()
        found = None if size < 0 else body[at : at + size]
        at += max(size, 0)
        return found

    records = []
    for _ in range(header["record_count"]):
        end = number() + at
        at += 1
        timestamp = header["base_timestamp"] + number()
        number()
        key, value = sized(), sized()
        headers = [((sized() or b"").decode(), sized()) for _ in range(number())]
        assert at == end
        wrapped = (timestamp + 2**63) % 2**64 - 2**63
        records.append(Record(wrapped, key, value, headers))
    assert at == len(body)
    return records


def changed(batch: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """Return a batch with other fields in its header, or other records, and a length and a checksum that fit."""
    header = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    body = batch[HEADER.size :] if body is None else body
    if "length" not in fields:
        header["length"] = HEADER.size - 12 + len(body)
    batch = HEADER.pack(*header.values()) + body
    if "crc" not in fields:
        header["crc"] = google_crc32c.value(batch[CHECKED_FROM:])
    return HEADER.pack(*header.values()) + body


def records_of(rows: pa.Table) -> list[Record]:
    rows.validate(full=True)
    assert rows.schema == RECORDS_SCHEMA
    columns = [rows["timestamp"].cast(pa.int64()), rows["key"], rows["value"], rows["headers"]]
    return [
        Record(timestamp, key, value, [(each["key"], each["value"]) for each in headers or ()])
        for timestamp, key, value, headers in zip(*(each.to_pylist() for each in columns), strict=True)
    ]


def decoded(batch: bytes, *, max_bytes: int = MOST_BYTES) -> list[Record]:
    return records_of(decode(batch, max_bytes=max_bytes).rows)


def rows_of(records: Sequence[Record]) -> pa.RecordBatch:
    columns = [
        [each.key for each in records],
        [each.value for each in records],
        [[{"key": key, "value": value} for key, value in each.headers] or None for each in records],
        pa.array([each.timestamp for each in records], pa.int64()),
    ]
    arrays = [pa.array(each, kind.type) for each, kind in zip(columns[:3], RECORDS_SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, columns[3].view(RECORDS_SCHEMA[3].type)], schema=RECORDS_SCHEMA)


def timestamps_of(records: Sequence[Record]) -> Any:
    return np.array([each.timestamp for each in records], np.int64)


def varint(number: int) -> bytes:
    """Return the shortest varint of a number."""
    zigzag, found = (number << 1) ^ (number >> 63), bytearray()
    while zigzag >= 0x80:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*found, zigzag))


def longest(number: int, size: int) -> bytes:
    """Return the varint of a number with needless bytes."""
    short = varint(number)
    return bytes((*(each | 0x80 for each in short), *[0x80] * (size - len(short) - 1), 0))
