"""Adding columns to a topic, and the history of its schemas."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from eoslog.format.schema_changes import without_columns
from eoslog.format.topic_schema_json import stored_schema
from eoslog.producer.new_columns import append_columns
from eoslog.state.draft import Draft
from eoslog.state.store_state import ColumnPath, Topic
from eoslog.state.topics import topic_named


@dataclass(frozen=True, slots=True)
class TopicSchemaVersion:
    """One version of a topic's schema."""

    version: int
    """Version 1 is the schema with which the topic was created."""
    slot: int
    """The slot from which the topic had this schema."""
    timestamp: int
    """The log's time at the slot (ms)."""
    schema: pa.Schema
    added: tuple[ColumnPath, ...]
    """The paths of its new columns: names from the outside in, ``element`` for lists, ``value`` for maps."""


@dataclass(frozen=True)
class AddColumns:
    """Add columns to a topic. The answer is the changed topic."""

    topic: str
    columns: pa.Schema
    spark_schema: str | None
    """The columns as Spark's JSON, for Spark types that Arrow does not have."""
    time_ms: int

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, and the errors of ``append_columns``"""
        return append_columns(draft, topic_named(draft, self.topic), self.columns, self.spark_schema, self.time_ms)


def schema_history(topic: Topic) -> list[TopicSchemaVersion]:
    """Return all schemas of a topic, from the first to the current one."""
    versions = []
    schema = stored_schema(topic)
    for each in reversed(topic.schema_versions):
        versions.append(TopicSchemaVersion(each.version, each.slot, each.time_ms, schema, each.added))
        schema = without_columns(schema, each.added)
    return versions[::-1]
