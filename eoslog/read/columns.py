"""The columns that a reader gets: the columns of Spark's Kafka connector, or the user's columns plus metadata."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eoslog.errors import InvalidOption
from eoslog.format.topic_schemas import HEADERS_TYPE, stored_schema
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

_TIMESTAMP = pa.timestamp("us", tz="UTC")
CREATE_TIME = 0

RECORD_COLUMNS: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
"""The columns of a topic of Kafka records, as in Spark's Kafka connector."""

HEADERS_COLUMN = pa.field("headers", HEADERS_TYPE)

POSITION_COLUMNS: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", _TIMESTAMP),
    ]
)
"""Metadata columns that a reader of a topic of columns can add to the topic's own columns."""

TRANSACTION_COLUMNS: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        pa.field("_transactional_id", pa.string()),
        pa.field("_producer_id", pa.int64()),
        pa.field("_producer_epoch", pa.int16()),
        pa.field("_sequence", pa.int32()),
        pa.field("_control", pa.string()),
        pa.field("_slot", pa.int64()),
        pa.field("_commit_timestamp", _TIMESTAMP),
    ]
)
"""The producer of a row and the outcome of its transaction. A reader can add these columns for every topic.

- ``_transactional_id`` is null for a row without a transaction.
- ``_sequence`` is null for staged rows.
- ``_control`` is ``COMMIT`` or ``ABORT`` for a control row, else null.
- ``_slot`` is null while the row's transaction is open.
- ``_commit_timestamp`` is null unless the row is committed.
"""


def available_columns(topic: Topic) -> pa.Schema:
    """Return all columns that a reader of the topic can choose."""
    if topic.topic_schema.kind == "records":
        return pa.schema([*RECORD_COLUMNS, HEADERS_COLUMN, *TRANSACTION_COLUMNS])
    return pa.schema([*stored_schema(topic), *POSITION_COLUMNS, *TRANSACTION_COLUMNS])


def default_columns(topic: Topic, *, headers: bool = True, transaction: bool = False) -> pa.Schema:
    """Return the columns that a reader gets if it does not choose columns.

    Args:
        headers: include the column ``headers`` (Kafka records only). Spark's connector leaves it out by default.
        transaction: add ``TRANSACTION_COLUMNS``.
    """
    if topic.topic_schema.kind == "records":
        fields = [*RECORD_COLUMNS, *([HEADERS_COLUMN] if headers else [])]
    else:
        fields = list(stored_schema(topic))
    return pa.schema([*fields, *(TRANSACTION_COLUMNS if transaction else [])])


def with_control_rows(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a read with control rows. All are nullable, because a control row has no values."""
    return pa.schema([field.with_nullable(True) for field in columns])


def choose_columns(topic: Topic, names: Sequence[str]) -> pa.Schema:
    """Return the named columns, in this order.

    Raises:
        InvalidOption: the names are not a list, or the topic has no column of that name. The message lists its columns.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidOption(f"columns are a list of names, not {quoted(names)}")
    for name in names:
        if not isinstance(name, str):
            raise InvalidOption(f"the name of a column is a string, not {quoted(name)}")
    if len(set(names)) < len(names):
        raise InvalidOption(f"each column can be read once, not as {', '.join(map(repr, names))}")
    available = available_columns(topic)
    for name in names:
        if name not in available.names:
            raise InvalidOption(
                f"topic {topic.topic} has no column {quoted(name)}. Its columns are: {', '.join(available.names)}"
            )
    return pa.schema([available.field(name) for name in names])
