"""Records as a consumer hands them out, made from the Arrow rows of data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.read.columns import PLACE_COLUMNS, TRANSACTION_COLUMNS
from eoslog.rules.state import Topic
from eoslog.segment.stored_schema import stored_schema

_OFFSET = pa.field("offset", pa.int64())
_TRANSACTION = tuple(name for name in TRANSACTION_COLUMNS.names if name != "_control")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class RecordTransaction(NamedTuple):
    """Who wrote a record, and the slot that settled it."""

    transactional_id: str | None
    """None for a record without a transaction."""
    producer_id: int
    producer_epoch: int
    """With the producer id it names one transaction."""
    sequence: int | None
    """The producer's number of the record in its partition; None for a staged one."""
    slot: int | None
    """The slot of the log that ended the transaction, or holds a record without one; None while it is open."""
    commit_timestamp: int | None
    """The log's time at ``slot`` (ms); None unless the record is committed."""


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
    transaction: RecordTransaction | None = None
    """None unless the consumer was asked for it (``with_transaction``)."""


def columns_to_read(topic: Topic, *, with_transaction: bool = False) -> pa.Schema:
    """The columns from which ``to_records`` makes records."""
    transaction = [TRANSACTION_COLUMNS.field(name) for name in _TRANSACTION] if with_transaction else []
    if topic.topic_schema.kind == "records":
        return pa.schema([*stored_schema(topic), _OFFSET, *transaction])
    place = [PLACE_COLUMNS.field("_offset"), PLACE_COLUMNS.field("_timestamp")]
    return pa.schema([*stored_schema(topic), *place, *transaction])


def to_records(topic: Topic, partition: int, rows: pa.RecordBatch) -> list[ConsumerRecord]:
    """The records of rows that were read with ``columns_to_read``."""
    if topic.topic_schema.kind == "records":
        records = _kafka_records(topic.topic, partition, rows)
    else:
        records = _rows_of_columns(topic, partition, rows)
    if _TRANSACTION[0] not in rows.schema.names:
        return records
    return [
        record._replace(transaction=transaction)
        for record, transaction in zip(records, _transactions(rows), strict=True)
    ]


def _transactions(rows: pa.RecordBatch) -> Iterator[RecordTransaction]:
    times = rows.column(_TRANSACTION[-1]).cast(_MILLISECONDS).cast(pa.int64())
    columns = [*(rows.column(name) for name in _TRANSACTION[:-1]), times]
    return map(RecordTransaction, *(column.to_pylist() for column in columns))


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
