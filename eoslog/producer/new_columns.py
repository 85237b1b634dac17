"""Columns that a write adds to a topic: the merged schema, in Arrow's types and in Spark's."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from eoslog.errors import InvalidTopic, SchemaMismatch
from eoslog.format.spark_json import merged_spark_schema
from eoslog.format.topic_schemas import (
    added_columns,
    decode_schema,
    encode_schema,
    holds_as_it_is,
    merged_schema,
    stored_schema,
)
from eoslog.maintenance.table_formats import check_publishable
from eoslog.state.draft import Draft
from eoslog.state.entries import TopicSchema, TopicSchemaChanged
from eoslog.state.partitions import topic_of
from eoslog.state.store_state import Topic


@dataclass(frozen=True, slots=True)
class NewColumns:
    """The columns of a job's rows that the topic lacked at planning. The job's files have exactly these columns."""

    topic_id: str
    arrow: str
    """The new columns, and the columns with new fields, encoded like the schema of a topic."""
    spark: str
    """The same columns as Spark's JSON."""

    def append(self, draft: Draft, time_ms: int) -> None:
        """Add the columns to the topic. Other jobs may have added columns since the planning.

        Raises:
            UnknownTopicOrPartition
            SchemaMismatch: another job has added one of these columns with another type.
        """
        columns = decode_schema(self.arrow)
        topic = append_columns(draft, topic_of(draft, self.topic_id), columns, spark_schema=self.spark, time_ms=time_ms)
        stored = stored_schema(topic)
        for field in columns:
            if not holds_as_it_is(stored.field(field.name).type, field.type):
                raise SchemaMismatch(
                    f"topic {topic.topic}: column {field.name!r} was added as {stored.field(field.name).type} while "
                    f"these rows were written as {field.type}; nothing was committed: run the job again"
                )


def append_columns(draft: Draft, topic: Topic, rows: pa.Schema, *, spark_schema: str | None, time_ms: int) -> Topic:
    """Append an entry that adds the columns of some rows to a topic; nothing if the topic has them.

    Args:
        spark_schema: the rows' schema, or part of it, as Spark's JSON.
        time_ms: the time by the store's clock (ms since the epoch).

    Returns:
        The changed topic.

    Raises:
        InvalidTopic, SchemaMismatch, UnsupportedSchema
    """
    wanted = with_columns(topic, rows, spark_schema)
    if wanted != topic.topic_schema:
        draft.append(
            TopicSchemaChanged(
                topic=topic.topic,
                topic_id=topic.topic_id,
                topic_schema=wanted,
                schema_version=topic.schema_version + 1,
                time_ms=time_ms,
            )
        )
    return draft.topics[topic.topic_id]


def with_columns(topic: Topic, rows: pa.Schema, spark_schema: str | None) -> TopicSchema:
    """Return the topic's schema, extended by the columns of some rows. It is unchanged if it has them all.

    Raises:
        InvalidTopic: the topic holds Kafka records.
        SchemaMismatch: the topic has a column of this name with another type.
        UnsupportedSchema: a new column cannot be stored, or no table of the topic can have it.
    """
    known = topic.topic_schema
    if known.kind != "columns":
        raise InvalidTopic(f"topic {topic.topic} holds Kafka records, whose columns are always the same")
    arrow = encode_schema(merged_schema(stored_schema(topic), rows), known.arrow)
    spark = merged_spark_schema(known.spark, spark_schema)
    if arrow == known.arrow:
        return known
    check_publishable(topic.topic, topic.config.formats, decode_schema(arrow))
    return known.model_copy(update={"arrow": arrow, "spark": spark})


def missing_columns(topic: Topic, merged: TopicSchema) -> list[str]:
    """Return the columns of a merged schema that the topic lacks, each as the path of its names with dots."""
    return [".".join(path) for path in added_columns(topic.topic_schema.arrow or "", merged.arrow or "")]
