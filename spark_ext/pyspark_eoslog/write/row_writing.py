"""Rows of a DataFrame on their way to topics: which topic each goes to, and what its columns are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import SchemaMismatch, UnknownTopicOrPartition
from eoslog.producer.rows import deal_out, rows_to_write
from eoslog.state.store_state import Topic

_TOPIC_COLUMN = "topic"


def rows_by_topic(
    table: pa.Table, topics: Mapping[str, Topic], *, by_column: bool, append_time_ms: int
) -> Iterator[tuple[Topic, pa.Table]]:
    """The rows for each topic, ready to be dealt out to its partitions.

    Args:
        topics: those that rows may go to, by name; exactly one unless ``by_column``.
        by_column: whether the column ``topic`` tells where each row goes.
        append_time_ms: dates Kafka records that have no timestamp of their own.

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
                f"a row goes to the topic {name!r}, but the store's topics of Kafka records are: {known}"
            )
        yield topics[name], _topic_rows(topics[name], table.filter(pc.equal(names, name)), append_time_ms)


def check_columns(schema: pa.Schema, topic: Topic) -> None:
    """Whether rows of these columns can go to the topic, as far as types tell.

    Raises:
        SchemaMismatch: naming the column, and the types expected and found.
    """
    for _ in deal_out(topic, _topic_rows(topic, schema.empty_table(), 0), 0):
        raise AssertionError("no rows, but rows were dealt out")


def check_routing(schema: pa.Schema) -> None:
    """Raises: SchemaMismatch: no column says which topic a row goes to."""
    if _TOPIC_COLUMN not in schema.names or not pa.types.is_string(schema.field(_TOPIC_COLUMN).type):
        raise SchemaMismatch(
            "say where rows go: with option 'topic', or for Kafka records with a string column 'topic'"
        )


def _topic_rows(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    if topic.topic_schema.kind == "records" and "value" not in table.schema.names:
        raise SchemaMismatch(f"topic {topic.topic} holds Kafka records: the column 'value' is missing")
    return rows_to_write(topic, table, append_time_ms)
