"""Conversion of records and tables to rows of a topic, and their partitioning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import InvalidRecord, InvalidRequest, SchemaMismatch
from eoslog.format.arrow_input import ArrowStream, table_of
from eoslog.format.column_types import kind_of
from eoslog.format.partitioner import partition_for_key, partitions_for_key_columns, split_by_partition
from eoslog.format.record_times import GREATEST_MS, RANGE, unstorable
from eoslog.format.topic_schemas import RECORDS_SCHEMA, RESERVED_NAMES, conform, stored_schema
from eoslog.read.columns import TRANSACTION_COLUMNS
from eoslog.session.session import check_partition
from eoslog.state.names import is_text
from eoslog.state.store_state import Topic
from eoslog.wording import quoted, without_code

_RECORD_TYPES = RECORDS_SCHEMA.types


RecordRow: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
"""The key, value, headers and timestamp (ms) of a Kafka record. A plain tuple: one is made for each record sent."""


_RECORDS_PLACE = frozenset({"topic", "offset", "timestampType"})
"""The columns of a scan that say where Kafka records were read."""


def rows_of(topic: Topic, rows: ArrowStream | pa.RecordBatch) -> pa.Table:
    """Return all rows of a stream, in the columns that a writer gives.

    Raises:
        SchemaMismatch: the object has no stream of rows.
    """
    table = table_of(rows, f"topic {topic.topic}: send_table()")
    if topic.topic_schema.kind != "records":
        return table
    # The transaction columns stay, and are refused: a control row would become a tombstone.
    return table.select([index for index, name in enumerate(table.schema.names) if name not in _RECORDS_PLACE])


def record_row(
    topic: Topic,
    key: bytes | None,
    value: bytes | None,
    *,
    headers: Sequence[tuple[str, bytes | None]] | None,
    timestamp_ms: int,
) -> RecordRow:
    """Return a Kafka record as a row.

    Raises:
        SchemaMismatch: the topic has columns of its own, or an argument has the wrong type.
        InvalidRecord: the topic is compacted, and the record has no key.
    """
    if topic.topic_schema.kind != "records":
        raise SchemaMismatch(f"topic {topic.topic} has columns of its own: write it with send_table()")
    if type(key) is not bytes:
        key = _as_bytes(topic, "key", key)
    if type(value) is not bytes:
        value = _as_bytes(topic, "value", value)
    if key is None and topic.config.is_compacted:
        raise _without_key(topic)
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= GREATEST_MS:
        raise SchemaMismatch(
            f"topic {topic.topic}: timestamp must be milliseconds since the epoch, not {quoted(timestamp_ms)}. Give a "
            f"whole number from 0 to {GREATEST_MS} (the year 9999)"
        )
    return key, value, None if headers is None else _as_pairs(topic, headers), timestamp_ms


def _as_bytes(topic: Topic, name: str, part: object) -> bytes | None:
    if part is None:
        return None
    if not isinstance(part, (bytes, bytearray, memoryview)):
        raise SchemaMismatch(
            f"topic {topic.topic}: {name} must be bytes or None, not {type(part).__name__}. Encode it, or give the "
            f"producer a {name}_serializer"
        )
    return bytes(part)


def _as_pairs(topic: Topic, headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]] | None:
    """Return the headers as a list; None if there are none."""
    if isinstance(headers, Mapping):
        raise SchemaMismatch(f"topic {topic.topic}: headers are a list of pairs, not a mapping. Give headers.items()")
    if not isinstance(headers, Iterable):
        raise SchemaMismatch(f"topic {topic.topic}: headers are a list of pairs, not {quoted(headers)}")
    pairs = list(headers)
    for header in pairs:
        if not _is_header(header):
            raise SchemaMismatch(
                f"topic {topic.topic}: a header is a pair of str and bytes or None, not {quoted(header)}"
            )
    return [(name, value) for name, value in pairs] or None


def _is_header(header: object) -> bool:
    if not isinstance(header, (tuple, list)) or len(header) != 2:
        return False
    name, value = header
    return isinstance(name, str) and is_text(name) and (value is None or isinstance(value, bytes))


def records_table(rows: Sequence[RecordRow]) -> pa.Table:
    """Return rows of ``record_row`` as a table. At least one row is needed."""
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [_array(column, data_type) for column, data_type in zip(columns, _RECORD_TYPES, strict=True)],
        schema=RECORDS_SCHEMA,
    )


def _array(values: tuple[Any, ...], data_type: Any) -> Any:
    # Most records have no headers, and many no key: such a column needs no conversion of its values.
    if values.count(None) == len(values):
        return pa.nulls(len(values), data_type)
    return pa.array(values, data_type)


def with_timestamps(topic: Topic, table: pa.Table, now_ms: int) -> pa.Table:
    """Add timestamps to Kafka records that have none.

    Rows of topics of columns have no timestamps of their own.

    Args:
        now_ms: the timestamp (ms since the epoch).
    """
    if topic.topic_schema.kind != "records" or "timestamp" in table.schema.names:
        return table
    now = pa.scalar(now_ms, pa.timestamp("ms", tz="UTC"))
    return table.append_column("timestamp", pa.repeat(now, table.num_rows))


def partition_of_key(topic: Topic, key: bytes | None, sticky: int) -> int:
    """Return the partition of a key, as Kafka's default partitioner does. Without a key, it is the sticky partition."""
    return sticky if key is None else partition_for_key(bytes(key), topic.partitions)


def rows_by_partition(topic: Topic, table: pa.Table, sticky: int) -> Iterator[tuple[int, pa.Table]]:
    """Partition the rows of a table. Yield each partition's rows in the topic's schema and in their original order.

    A topic of Kafka records takes ``value``, and optionally ``key``, ``headers``, ``timestamp`` and ``partition``. A
    topic of columns takes its own columns, and optionally ``_partition``.

    Args:
        sticky: the partition of rows without a key.

    Raises:
        SchemaMismatch: the columns or types do not match the topic's, or a record's timestamp is out of range.
        UnknownTopicOrPartition: a row names a partition that the topic does not have.
        InvalidRecord: the topic is compacted, and a row has no key.
    """
    explicit_name = "partition" if topic.topic_schema.kind == "records" else "_partition"
    explicit = table[explicit_name] if explicit_name in table.schema.names else None
    if explicit is not None:
        table = table.drop_columns([explicit_name])
    rows, key_columns = stored_rows(topic, table), _key_columns(topic)
    if key_columns and topic.partitions > 1:
        partition_ids = partitions_for_key_columns([rows[name] for name in key_columns], topic.partitions).copy()
        partition_ids[partition_ids < 0] = sticky
    else:
        partition_ids = np.full(rows.num_rows, sticky, np.int32)
    if explicit is not None:
        partition_ids = _with_explicit(topic, partition_ids, explicit)
    yield from split_by_partition(rows, partition_ids, topic.partitions)


def stored_rows(topic: Topic, table: pa.Table) -> pa.Table:
    """Return the rows of a table in the topic's schema, as files store them.

    Raises:
        SchemaMismatch: the columns or types do not match the topic's, or a record's timestamp is out of range.
        InvalidRecord: the topic is compacted, and a row has no key.
    """
    try:
        rows = conform(table, stored_schema(topic))
    except SchemaMismatch as error:
        raise SchemaMismatch(f"topic {topic.topic}: {without_code(error)}") from None
    if topic.topic_schema.kind == "records" and (wrong := unstorable(rows["timestamp"])) is not None:
        raise SchemaMismatch(
            f"topic {topic.topic}: column 'timestamp': {wrong} ms since the epoch is not within {RANGE}. Give "
            "milliseconds, not microseconds or nanoseconds"
        )
    if topic.config.is_compacted and _lack_key(rows, _key_columns(topic)):
        raise _without_key(topic)
    return rows


def _key_columns(topic: Topic) -> Sequence[str]:
    return ["key"] if topic.topic_schema.kind == "records" else topic.topic_schema.key


def _lack_key(rows: pa.Table, key_columns: Sequence[str]) -> bool:
    lacking = np.ones(rows.num_rows, np.bool_)
    for name in key_columns:
        lacking &= rows[name].is_null().to_numpy()
    return bool(lacking.any())


def _without_key(topic: Topic) -> InvalidRecord:
    return InvalidRecord(f"topic {topic.topic} is compacted, and a row has no key. Give every row a key")


def _with_explicit(topic: Topic, partition_ids: npt.NDArray[np.int32], explicit: Any) -> npt.NDArray[np.int32]:
    if not (pa.types.is_integer(explicit.type) or pa.types.is_null(explicit.type)):
        raise InvalidRequest(f"topic {topic.topic}: partition numbers must be integers, not {explicit.type}")
    # An unsigned number beyond int64 becomes negative, and is refused as such.
    chosen = explicit.cast(pa.int64(), safe=False).fill_null(-1).to_numpy()
    given = ~explicit.is_null().to_numpy()
    wrong = chosen[given & ((chosen < 0) | (chosen >= topic.partitions))]
    if len(wrong):
        check_partition(topic, int(wrong[0]))
    return np.where(given, chosen, partition_ids).astype(np.int32)


_RECORDS_POSITION = _RECORDS_PLACE | {*TRANSACTION_COLUMNS.names}
_COLUMNS_POSITION = RESERVED_NAMES
_STORED_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_TO_MILLISECONDS = pc.CastOptions(_STORED_TIMESTAMP, allow_time_truncate=True)


def rows_to_write(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    """Return the rows in the form that ``send_table`` and ``rows_by_partition`` take.

    Columns that say where a row was read are dropped. Keys and values of Kafka records become bytes, and their
    timestamps milliseconds.

    Args:
        table: rows as a read returns them, or as the user made them. Strings are encoded in UTF-8.
        append_time_ms: the timestamp of Kafka records that have none (ms since the epoch).

    Raises:
        SchemaMismatch: the column ``timestamp`` has another type, or a time that does not fit into milliseconds.
    """
    if topic.topic_schema.kind != "records":
        return table.drop_columns([name for name in table.schema.names if name in _COLUMNS_POSITION])
    table = table.drop_columns([name for name in table.schema.names if name in _RECORDS_POSITION])
    for name in ("key", "value"):
        found = table.schema.field(name).type if name in table.schema.names else None
        if found is not None and kind_of(found) == "text":
            as_bytes = pa.large_binary() if pa.types.is_large_string(found) else pa.binary()
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(as_bytes))
    return _with_times_in_ms(topic, table, append_time_ms)


def _with_times_in_ms(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    """Convert timestamps to milliseconds, and fill in missing ones: every Kafka record has a timestamp."""
    default: Any = pa.scalar(append_time_ms, pa.int64()).cast(_STORED_TIMESTAMP)
    index = table.schema.get_field_index("timestamp")
    if index < 0:
        return table.append_column("timestamp", pa.repeat(default, table.num_rows))
    found = table.schema.field(index).type
    if not pa.types.is_timestamp(found) or found.tz is None:
        raise SchemaMismatch(f"topic {topic.topic}: column 'timestamp': expected a timestamp, found {found}")
    try:
        # A part of a millisecond is dropped.
        times = table.column(index).cast(options=_TO_MILLISECONDS).fill_null(default)
    except pa.ArrowInvalid:
        raise SchemaMismatch(
            f"topic {topic.topic}: column 'timestamp' has a time that is not within {RANGE}: {found} does not fit into "
            "milliseconds"
        ) from None
    return table.set_column(index, "timestamp", times)
