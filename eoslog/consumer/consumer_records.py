"""Records as a consumer hands them out, made from the Arrow rows of data files."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from eoslog.format.topic_schema_json import stored_schema
from eoslog.read.columns import PLACE_COLUMNS, TRANSACTION_COLUMNS
from eoslog.state.store_state import Topic

_OFFSET = pa.field("offset", pa.int64())
_TRANSACTION = tuple(name for name in TRANSACTION_COLUMNS.names if name != "_control")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
Row = TypeVar("Row", bound=tuple[Any, ...])


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
    """An empty tuple if there are none, and for a topic of columns."""
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
    columns = _columns_of_records(rows) if topic.topic_schema.kind == "records" else _columns_of_rows(topic, rows)
    transactions = _transactions(rows) if _TRANSACTION[0] in rows.schema.names else repeat(None)
    return _tuples(ConsumerRecord, repeat(topic.topic), repeat(partition), *columns, transactions)


def _transactions(rows: pa.RecordBatch) -> list[RecordTransaction]:
    times = rows.column(_TRANSACTION[-1]).cast(_MILLISECONDS).cast(pa.int64())
    columns = [*(rows.column(name) for name in _TRANSACTION[:-1]), times]
    return _tuples(RecordTransaction, *(column.to_pylist() for column in columns))


def _columns_of_records(rows: pa.RecordBatch) -> list[Iterable[Any]]:
    """The fields of ``ConsumerRecord`` from ``offset`` to ``headers``, of a topic of Kafka records."""
    return [
        rows.column("offset").to_pylist(),
        rows.column("timestamp").cast(pa.int64()).to_pylist(),
        rows.column("key").to_pylist(),
        rows.column("value").to_pylist(),
        _headers(rows.column("headers")),
    ]


def _headers(column: pa.Array[Any]) -> Iterable[Sequence[tuple[str, bytes | None]]]:
    if column.null_count == len(column):
        return repeat(())
    # One empty tuple serves all records. A list for each would cost as much as the record itself.
    return [[(header["key"], header["value"]) for header in each] if each else () for each in column.to_pylist()]


def _columns_of_rows(topic: Topic, rows: pa.RecordBatch) -> list[Iterable[Any]]:
    """The fields of ``ConsumerRecord`` from ``offset`` to ``headers``, of a topic of columns."""
    values: list[dict[str, Any]] = rows.select(stored_schema(topic).names).to_pylist()
    key_columns = topic.topic_schema.key
    return [
        rows.column("_offset").to_pylist(),
        rows.column("_timestamp").cast(_MILLISECONDS).cast(pa.int64()).to_pylist(),
        [tuple(value[name] for name in key_columns) for value in values] if key_columns else repeat(None),
        values,
        repeat(()),
    ]


def _tuples(kind: type[Row], *columns: Iterable[Any]) -> list[Row]:
    """Make named tuples from the columns of their fields. At least one column is finite."""
    # The garbage collector pauses for one step, which runs no Python code and leaves no garbage. Otherwise it runs for
    # every 700 tuples, and through all objects of the process every few polls. That takes longer than the step itself.
    collects = gc.isenabled()
    try:
        gc.disable()
        return list(map(tuple.__new__, repeat(kind), zip(*columns, strict=False)))
    finally:
        if collects:
            gc.enable()
