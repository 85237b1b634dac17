"""Rows that were read somewhere, on their way into a topic: what tells where they were does not go with them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from eoslog.errors import SchemaMismatch
from eoslog.read.columns import TRANSACTION_COLUMNS
from eoslog.rules.state import Topic
from eoslog.segment.schema_json import RESERVED_NAMES

_RECORDS_PLACE = frozenset({"topic", "offset", "timestampType", *TRANSACTION_COLUMNS.names})
_COLUMNS_PLACE = RESERVED_NAMES
_STORED_TIMESTAMP = pa.timestamp("ms", tz="UTC")


def rows_to_write(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    """The rows as ``send_table`` and ``deal_out`` take them: of Kafka records with bytes, and times in milliseconds.

    Args:
        table: columns as a read gives them, or as the user made them; text stands for its bytes in UTF-8.
        append_time_ms: dates Kafka records that have no timestamp of their own (ms since the epoch).

    Raises:
        SchemaMismatch: a timestamp is none.
    """
    if topic.topic_schema.kind != "records":
        return table.drop_columns([name for name in table.schema.names if name in _COLUMNS_PLACE])
    table = table.drop_columns([name for name in table.schema.names if name in _RECORDS_PLACE])
    for name in ("key", "value"):
        if name in table.schema.names and pa.types.is_string(table.schema.field(name).type):
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.binary()))
    return _with_timestamps(topic, table, append_time_ms)


def _with_timestamps(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    """Kafka's timestamps count milliseconds, and every record has one."""
    default: Any = pa.scalar(append_time_ms, pa.int64()).cast(_STORED_TIMESTAMP)
    index = table.schema.get_field_index("timestamp")
    if index < 0:
        return table.append_column("timestamp", pa.repeat(default, table.num_rows))
    found = table.schema.field(index).type
    if not pa.types.is_timestamp(found) or found.tz is None:
        raise SchemaMismatch(f"topic {topic.topic}: column 'timestamp': expected a timestamp, found {found}")
    times = table.column(index).cast(_STORED_TIMESTAMP, safe=False).fill_null(default)
    return table.set_column(index, "timestamp", times)
