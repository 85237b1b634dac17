"""Records as a consumer hands them out, made from the Arrow rows of data files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.read.columns import PLACE_COLUMNS, stored_schema
from eoslog.rules.state import Topic

_OFFSET = pa.field("offset", pa.int64())
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class ConsumerRecord(NamedTuple):
    """A row of a topic, at its place in the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """ms since the epoch: the record's own; of a topic of columns, the time at which its batch was written."""
    key: Any
    """bytes or None; of a topic of columns, the tuple of its key columns' values, None if it has no key columns."""
    value: Any
    """bytes or None (a tombstone); of a topic of columns, a dict of the row by column name."""
    headers: Sequence[tuple[str, bytes | None]]
    """Empty for a topic of columns."""


def columns_to_read(topic: Topic) -> pa.Schema:
    """The columns from which ``to_records`` makes records."""
    if topic.topic_schema.kind == "records":
        return stored_schema(topic).append(_OFFSET)
    return pa.schema([*stored_schema(topic), PLACE_COLUMNS.field("_offset"), PLACE_COLUMNS.field("_timestamp")])


def to_records(topic: Topic, partition: int, rows: pa.RecordBatch) -> list[ConsumerRecord]:
    """The records of rows that were read with ``columns_to_read``."""
    if topic.topic_schema.kind == "records":
        return _kafka_records(topic.topic, partition, rows)
    return _rows_of_columns(topic, partition, rows)


def _kafka_records(topic: str, partition: int, rows: pa.RecordBatch) -> list[ConsumerRecord]:
    parts = zip(
        _integers(rows.column("offset")),
        _integers(rows.column("timestamp").cast(pa.int64())),
        rows.column("key").to_pylist(),
        rows.column("value").to_pylist(),
        rows.column("headers").to_pylist(),
        strict=True,
    )
    return [
        ConsumerRecord(
            topic,
            partition,
            offset,
            timestamp,
            key,
            value,
            [(header["key"], header["value"]) for header in headers] if headers else [],
        )
        for offset, timestamp, key, value, headers in parts
    ]


def _rows_of_columns(topic: Topic, partition: int, rows: pa.RecordBatch) -> list[ConsumerRecord]:
    offsets = _integers(rows.column("_offset"))
    timestamps = _integers(rows.column("_timestamp").cast(_MILLISECONDS).cast(pa.int64()))
    values = rows.select(stored_schema(topic).names).to_pylist()
    key_columns = topic.topic_schema.key
    return [
        ConsumerRecord(
            topic.topic,
            partition,
            offset,
            timestamp,
            tuple(value[name] for name in key_columns) if key_columns else None,
            value,
            [],
        )
        for offset, timestamp, value in zip(offsets, timestamps, values, strict=True)
    ]


def _integers(column: Any) -> list[int]:
    values: list[int] = column.to_pylist()
    return values
