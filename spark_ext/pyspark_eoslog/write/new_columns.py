"""``mergeSchema``: columns that the topic lacks are planned with the write, and added in the slot that commits it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog.admin.topic_columns import append_columns, with_columns
from eoslog.errors import EosLogError, InvalidOption, SchemaMismatch
from eoslog.format.topic_schema_json import RESERVED_NAMES, decode_schema, encode_schema, holds_as_it_is, stored_schema
from eoslog.state.draft import Draft
from eoslog.state.partitions import topic_of
from eoslog.state.store_state import Topic
from eoslog.state.topic_schemas import added_columns
from pyspark_eoslog.described_types import described_columns
from pyspark_eoslog.options import Options


@dataclass(frozen=True, slots=True)
class NewColumns:
    """The columns of a job's rows that the topic lacked at planning. The job's files have exactly these columns."""

    topic_id: str
    arrow: str
    """The new columns, and those with new fields, encoded like the schema of a topic."""
    spark: str
    """The same columns as Spark's JSON."""


def plan_new_columns(
    topic: Topic, options: Options, schema: StructType, columns: pa.Schema
) -> tuple[Topic, NewColumns | None]:
    """Return the topic as it will be after the commit, and the columns that the job adds.

    Args:
        columns: ``schema`` in the Arrow types of the rows that Spark passes.

    Raises:
        SchemaMismatch: the topic lacks a column of the rows, and ``mergeSchema`` is not set; or a column has another
            type.
        UnsupportedSchema: a new column cannot be stored.
    """
    if topic.topic_schema.kind != "columns":
        if options.merge_schema:
            raise InvalidOption(
                f"option 'mergeSchema' is for topics of columns; topic {topic.topic} holds Kafka records, whose "
                "columns are always the same"
            )
        return topic, None
    rows = pa.schema([field for field in columns if field.name not in RESERVED_NAMES])
    described = described_columns(schema, rows.names)
    if not options.merge_schema:
        _refuse_new_columns(topic, rows, described)
        return topic, None
    merged = with_columns(topic, rows, described)
    if merged == topic.topic_schema:
        return topic, None
    assert merged.arrow is not None
    known = stored_schema(topic)
    new = [
        field
        for field in decode_schema(merged.arrow)
        if field.name not in known.names or known.field(field.name) != field
    ]
    names = [field.name for field in new]
    added = NewColumns(topic.topic_id, encode_schema(pa.schema(new)), described_columns(schema, names))
    return replace(topic, topic_schema=merged), added


def append_new_columns(draft: Draft, new: NewColumns, time_ms: int) -> None:
    """Add the columns of the job's files to the topic. Other jobs may have added columns since the planning.

    Raises:
        UnknownTopicOrPartition
        SchemaMismatch: another job has added one of these columns with another type.
    """
    columns = decode_schema(new.arrow)
    topic = append_columns(draft, topic_of(draft, new.topic_id), columns, new.spark, time_ms)
    stored = stored_schema(topic)
    for field in columns:
        if not holds_as_it_is(stored.field(field.name).type, field.type):
            raise SchemaMismatch(
                f"topic {topic.topic}: column {field.name!r} was added as {stored.field(field.name).type} while these "
                f"rows were written as {field.type}; nothing was committed: run the job again"
            )


def _refuse_new_columns(topic: Topic, rows: pa.Schema, described: str) -> None:
    """Raises: SchemaMismatch: the rows have columns that the topic lacks, and would fit with them."""
    known = topic.topic_schema
    try:
        merged = with_columns(topic, rows, described)
    except EosLogError:
        # The rows do not fit in any case. A later check raises an error that names the column.
        return
    if merged != known:
        added = added_columns(known.arrow or "", merged.arrow or "")
        listed = ", ".join(repr(".".join(path)) for path in added)
        raise SchemaMismatch(
            f"topic {topic.topic} has no column {listed}; its columns are: {', '.join(stored_schema(topic).names)}. "
            "Option mergeSchema=true adds missing columns"
        )
