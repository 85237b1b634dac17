"""The records that a consumer returns, made from the Arrow rows of data files."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from eoslog.errors import RecordDeserializationFailed
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import POSITION_COLUMNS, TRANSACTION_COLUMNS
from eoslog.session.serializers import Deserializer
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

_OFFSET = pa.field("offset", pa.int64())
_TRANSACTION = tuple(name for name in TRANSACTION_COLUMNS.names if name != "_control")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
Row = TypeVar("Row", bound=tuple[Any, ...])


class RecordTransaction(NamedTuple):
    """The transaction that wrote a record, and the slot that ended it."""

    transactional_id: str | None
    """None for a record without a transaction."""
    producer_id: int
    producer_epoch: int
    """With the producer id it names one transaction."""
    sequence: int | None
    """The producer's sequence number of the record in its partition; None for a staged record."""
    slot: int | None
    """The slot that ended the transaction; None while it is open. Without a transaction: the slot of the record."""
    commit_timestamp: int | None
    """The log's time at ``slot`` (ms); None unless the record is committed."""


class ConsumerRecord(NamedTuple):
    """A row of a topic, with its partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """ms since the epoch: the record's own timestamp. In a topic of columns, the time at which its batch was
    written."""
    key: Any
    """bytes or None. In a topic of columns, the tuple of the key columns' values; None if it has no key columns."""
    value: Any
    """bytes or None (a tombstone). In a topic of columns, the row as a dict by column name."""
    headers: Sequence[tuple[str, bytes | None]]
    """An empty tuple if the record has no headers, and in a topic of columns."""
    transaction: RecordTransaction | None = None
    """None unless the consumer was opened with ``with_transaction=True``."""

    def __repr__(self) -> str:
        # A value may be very large, so it is shortened.
        given = [self.topic, self.partition, self.offset, self.timestamp]
        parts = [f"{name}={value!r}" for name, value in zip(self._fields, given, strict=False)]
        parts += [f"key={quoted(self.key)}", f"value={quoted(self.value)}"]
        if self.headers:
            parts.append(f"headers={quoted(self.headers)}")
        if self.transaction is not None:
            parts.append(f"transaction={self.transaction!r}")
        return f"ConsumerRecord({', '.join(parts)})"


class Deserializers(NamedTuple):
    """The functions that turn the bytes of keys and values into objects. None: they stay bytes."""

    key: Deserializer | None
    value: Deserializer | None

    def apply(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return the record with its key and value deserialized.

        Raises:
            RecordDeserializationFailed: a function raises an error for the record.
            Any other exception: a signal handler raised it while a function ran.
        """
        try:
            return self._applied(record)
        except Exception as error:
            part = self._failing_part(record)
            if part is None:
                # The record is sound. A signal handler raised the error, for example because a time limit is over.
                raise
            raise RecordDeserializationFailed(
                f"topic {record.topic}, partition {record.partition}, offset {record.offset}: the {part} deserializer "
                f"raised {type(error).__name__}: {error}. The position stays there. Seek to offset {record.offset + 1} "
                "to pass over the record",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            ) from error

    def _applied(self, record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        if self.key is not None and key is not None:
            key = self.key(key)
        if self.value is not None and value is not None:
            value = self.value(value)
        return record._replace(key=key, value=value)

    def _failing_part(self, record: ConsumerRecord) -> str | None:
        """Try again, and return the part whose deserializer raises an error; None if neither does."""
        for part, function, given in (("key", self.key, record.key), ("value", self.value, record.value)):
            try:
                if function is not None and given is not None:
                    function(given)
            except Exception:
                return part
        return None


def columns_to_read(topic: Topic, *, with_transaction: bool = False) -> pa.Schema:
    """Return the columns from which ``to_records`` makes records."""
    transaction = [TRANSACTION_COLUMNS.field(name) for name in _TRANSACTION] if with_transaction else []
    if topic.topic_schema.kind == "records":
        return pa.schema([*stored_schema(topic), _OFFSET, *transaction])
    position = [POSITION_COLUMNS.field("_offset"), POSITION_COLUMNS.field("_timestamp")]
    return pa.schema([*stored_schema(topic), *position, *transaction])


def to_records(topic: Topic, partition: int, rows: pa.RecordBatch) -> list[ConsumerRecord]:
    """Return the records of rows that were read with ``columns_to_read``."""
    columns = _columns_of_records(rows) if topic.topic_schema.kind == "records" else _columns_of_rows(topic, rows)
    transactions = _transactions(rows) if _TRANSACTION[0] in rows.schema.names else repeat(None)
    return _tuples(ConsumerRecord, repeat(topic.topic), repeat(partition), *columns, transactions)


def _transactions(rows: pa.RecordBatch) -> list[RecordTransaction]:
    times = rows.column(_TRANSACTION[-1]).cast(_MILLISECONDS).cast(pa.int64())
    columns = [*(rows.column(name) for name in _TRANSACTION[:-1]), times]
    return _tuples(RecordTransaction, *(column.to_pylist() for column in columns))


def _columns_of_records(rows: pa.RecordBatch) -> list[Iterable[Any]]:
    """Return the fields from ``offset`` to ``headers`` of ``ConsumerRecord``, for a topic of Kafka records."""
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
    """Return the fields from ``offset`` to ``headers`` of ``ConsumerRecord``, for a topic of columns."""
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
    # Disable the garbage collector for one step, which runs no Python code and leaves no garbage. Otherwise it would
    # run for every 700 tuples, and scan all objects of the process every few polls. That takes longer than the step
    # itself.
    collects = gc.isenabled()
    try:
        gc.disable()
        return list(map(tuple.__new__, repeat(kind), zip(*columns, strict=False)))
    finally:
        if collects:
            gc.enable()
