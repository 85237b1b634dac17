"""The columns that a reader is given: those of the Kafka connector, or the user's own with their place beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eoslog.errors import InvalidOption, quoted
from eoslog.format.kafka_records import HEADERS_TYPE
from eoslog.format.topic_schema_json import stored_schema
from eoslog.state.store_state import Topic

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
"""What a topic of Kafka records is read as: the columns of Spark's Kafka connector."""

HEADERS_COLUMN = pa.field("headers", HEADERS_TYPE)

PLACE_COLUMNS: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", _TIMESTAMP),
    ]
)
"""What a topic of columns can be read with beside its own columns."""

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
"""Who wrote a row, and what became of it; every topic can be read with them.

``_transactional_id`` is null without a transaction, ``_sequence`` of staged rows, ``_control`` unless the row is a
control row (``COMMIT`` or ``ABORT``), ``_slot`` while the row's transaction is open, ``_commit_timestamp`` unless it is
committed.
"""


def available_columns(topic: Topic) -> pa.Schema:
    """Every column that the topic can be read with."""
    if topic.topic_schema.kind == "records":
        return pa.schema([*RECORD_COLUMNS, HEADERS_COLUMN, *TRANSACTION_COLUMNS])
    return pa.schema([*stored_schema(topic), *PLACE_COLUMNS, *TRANSACTION_COLUMNS])


def default_columns(
    topic: Topic, *, place: bool = False, headers: bool = False, transaction: bool = False
) -> pa.Schema:
    """The columns that a topic is read with unless the reader chooses.

    Args:
        place: with the columns ``_topic, _partition, _offset, _timestamp`` (topics of columns only).
        headers: with the column ``headers`` (Kafka records only).
        transaction: with ``TRANSACTION_COLUMNS``.
    """
    if topic.topic_schema.kind == "records":
        fields = [*RECORD_COLUMNS, *([HEADERS_COLUMN] if headers else [])]
    else:
        fields = [*stored_schema(topic), *(PLACE_COLUMNS if place else [])]
    return pa.schema([*fields, *(TRANSACTION_COLUMNS if transaction else [])])


def with_control_rows(columns: pa.Schema) -> pa.Schema:
    """The columns of a read that shows control rows too, which have nulls in the topic's own."""
    return pa.schema([field.with_nullable(True) for field in columns])


def choose_columns(topic: Topic, names: Sequence[str]) -> pa.Schema:
    """The named columns, in this order.

    Raises:
        InvalidOption: the topic has no column of that name; the message names those it has.
    """
    available = available_columns(topic)
    for name in names:
        if name not in available.names:
            raise InvalidOption(
                f"topic {topic.topic} has no column {quoted(name)}; its columns are: {', '.join(available.names)}"
            )
    return pa.schema([available.field(name) for name in names])
