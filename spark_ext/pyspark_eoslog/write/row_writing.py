"""Assignment of a DataFrame's rows to topics, and conversion to the columns of those topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from eoslog import Topic
from eoslog.errors import SchemaMismatch, UnknownTopicOrPartition
from eoslog.producer.rows import rows_by_partition, rows_to_write

_TOPIC_COLUMN = "topic"


def rows_by_topic(
    table: pa.Table, topics: Mapping[str, Topic], *, by_column: bool, append_time_ms: int
) -> Iterator[tuple[Topic, pa.Table]]:
    """Yield the rows of each topic, ready to be partitioned.

    Args:
        topics: the possible topics, by name; exactly one unless ``by_column``.
        by_column: True if the column ``topic`` names the topic of each row.
        append_time_ms: the timestamp of Kafka records that have none (ms since the epoch).

    Raises:
        SchemaMismatch, UnknownTopicOrPartition
    """
    if not by_column:
        (topic,) = topics.values()
        yield topic, _topic_rows(topic, table, append_time_ms)
        return
    check_routing(table.schema)
    names = table[_TOPIC_COLUMN]
    for name in names.unique().to_pylist():
        if name is None:
            raise UnknownTopicOrPartition("a row's column 'topic' is null; give a topic, or use option 'topic'")
        if name not in topics:
            known = ", ".join(sorted(topics)) or "none"
            raise UnknownTopicOrPartition(
                f"a row names the topic {name!r}, but the store's topics of Kafka records are: {known}"
            )
        yield topics[name], _topic_rows(topics[name], table.filter(pc.equal(names, name)), append_time_ms)


def check_columns(schema: pa.Schema, topic: Topic) -> None:
    """Check that the topic accepts rows of these columns, by their types.

    Raises:
        SchemaMismatch: a column does not fit. The message names it, and the expected and found types.
    """
    for _ in rows_by_partition(topic, _topic_rows(topic, schema.empty_table(), 0), 0):
        raise AssertionError("an empty table was partitioned into rows")


def check_routing(schema: pa.Schema) -> None:
    """Raises: SchemaMismatch: there is no string column ``topic``."""
    if _TOPIC_COLUMN not in schema.names or not pa.types.is_string(schema.field(_TOPIC_COLUMN).type):
        raise SchemaMismatch(
            "no topic is given for the rows; use option 'topic', or a string column 'topic' for Kafka records"
        )


def _topic_rows(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    if topic.topic_schema.kind == "records" and "value" not in table.schema.names:
        raise SchemaMismatch(f"topic {topic.topic} holds Kafka records: the column 'value' is missing")
    return rows_to_write(topic, table, append_time_ms)
