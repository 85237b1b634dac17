"""``mergeSchema``: columns that the topic lacks are planned with the write, and added in the slot that commits it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog import Topic
from eoslog.errors import EosLogError, InvalidOption, SchemaMismatch
from eoslog.format.topic_schema_json import RESERVED_NAMES, decode_schema, encode_schema, stored_schema
from eoslog.producer.new_columns import NewColumns, missing_columns, with_columns
from pyspark_eoslog.described_types import described_columns
from pyspark_eoslog.options import Options


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


def _refuse_new_columns(topic: Topic, rows: pa.Schema, described: str) -> None:
    """Raises: SchemaMismatch: the rows have columns that the topic lacks, and would fit with them."""
    try:
        merged = with_columns(topic, rows, described)
    except EosLogError:
        # The rows do not fit in any case. A later check raises an error that names the column.
        return
    if merged != topic.topic_schema:
        listed = ", ".join(map(repr, missing_columns(topic, merged)))
        raise SchemaMismatch(
            f"topic {topic.topic} has no column {listed}; its columns are: {', '.join(stored_schema(topic).names)}. "
            "Option mergeSchema=true adds missing columns"
        )
