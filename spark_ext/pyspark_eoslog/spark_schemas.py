"""Schemas of Spark, Arrow and topics: the columns that a read returns, and the types that a topic can store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, GeographyType, GeometryType, MapType, StructField, StructType

from eoslog import Topic
from eoslog.errors import InvalidOption, SchemaMismatch, UnknownTopicOrPartition, UnsupportedSchema
from eoslog.format.column_types import LossyCast, cast_losslessly, narrows
from eoslog.format.topic_schema_json import normalise_schema, stored_schema
from eoslog.read.columns import (
    PLACE_COLUMNS,
    TRANSACTION_COLUMNS,
    available_columns,
    default_columns,
    with_control_rows,
)
from pyspark_eoslog.described_types import as_described
from pyspark_eoslog.options import Options
from pyspark_eoslog.options.column_options import chosen_fields


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns of a read: in the types of the topic and in the types of Spark, in the same order."""

    source: pa.Schema
    target: pa.Schema

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the topic's columns in Spark's types.

        Raises:
            SchemaMismatch: a value does not exist in the wanted type.
        """
        columns = [
            column if column.type == field.type else _cast(column, field)
            for column, field in zip(batch.columns, self.target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.target)


def storable_schema(schema: StructType) -> pa.Schema:
    """Return a DataFrame's schema in the form in which a topic stores it.

    Raises:
        UnsupportedSchema: a topic cannot store a column. The message contains its name.
    """
    return normalise_schema(arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the rows that Spark passes, with timestamps in UTC.

    Raises:
        UnsupportedSchema: Arrow lacks the type of a column. The message contains the column's name.
    """
    fields = []
    for field in schema.fields:
        # Spark passes a geometry or geography as a struct like any other.
        if contains_type(field.dataType, GeometryType, GeographyType):
            raise UnsupportedSchema(
                f"column {field.name!r}: type {field.dataType.simpleString()} cannot be stored; store its bytes, "
                "st_asbinary(...), and its SRID, st_srid(...)"
            )
        try:
            fields.append(to_arrow_schema(StructType([field]), timezone="UTC").field(0))
        except (PySparkException, KeyError, TypeError, ValueError):
            raise UnsupportedSchema(
                f"column {field.name!r}: type {field.dataType.simpleString()} cannot be handed over by Spark and "
                "stored; cast it to another"
            ) from None
    return pa.schema(fields)


def contains_type(data_type: DataType, *wanted: type[DataType]) -> bool:
    """Return True if a type or a type within it is one of the wanted types."""
    parts: list[DataType] = []
    if isinstance(data_type, StructType):
        parts = [field.dataType for field in data_type.fields]
    elif isinstance(data_type, ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, MapType):
        parts = [data_type.keyType, data_type.valueType]
    return isinstance(data_type, wanted) or any(contains_type(part, *wanted) for part in parts)


def default_schema(topics: Sequence[Topic], options: Options) -> StructType:
    """Return the columns of a read for which the user gives no schema.

    Raises:
        UnknownTopicOrPartition: no topic matches the pattern.
        InvalidOption: the topics have different columns.
    """
    if not topics:
        raise UnknownTopicOrPartition(
            f"no topic matches option 'subscribePattern', {options.topics.pattern!r}: create one first, or say which "
            "columns such topics will have with schema(...)"
        )
    schemas = [_topic_columns(topic, options) for topic in topics]
    for topic, schema in zip(topics, schemas, strict=True):
        if schema != schemas[0]:
            raise InvalidOption(
                f"topics {topics[0].topic} and {topic.topic} have different columns: read them one by one, or choose "
                "common columns with schema(...)"
            )
    return schemas[0]


def choose_columns(topic: Topic, wanted: StructType, *, control_rows: bool = False) -> ReadColumns:
    """Return the columns that a user's schema asks for. With control rows, the topic's own columns are nullable.

    Raises:
        SchemaMismatch: the topic has no such column, or a column of another type. The message says which it has.
    """
    if not wanted.fields:
        raise SchemaMismatch(f"topic {topic.topic}: the schema names no column")
    available = with_control_rows(available_columns(topic)) if control_rows else available_columns(topic)
    by_lower_name = {name.lower(): name for name in available.names}
    target = arrow_schema(wanted)
    source = []
    for field in target:
        name = field.name if field.name in available.names else by_lower_name.get(field.name.lower())
        if name is None:
            raise SchemaMismatch(
                f"topic {topic.topic} has no column {field.name!r}; its columns are: {', '.join(available.names)}"
            )
        found = available.field(name)
        if not narrows(found.type, field.type):
            raise SchemaMismatch(
                f"topic {topic.topic}: column {name!r} is {found.type}, which cannot be read as {field.type}"
            )
        if found.nullable and not field.nullable and name not in never_null(topic):
            raise SchemaMismatch(
                f"topic {topic.topic}: column {name!r} may be null, but the schema says that it is not"
            )
        source.append(found)
    return ReadColumns(pa.schema(source), target)


def never_null(topic: Topic) -> frozenset[str]:
    """Return the columns that are never null. Some are declared nullable, because the Kafka connector does so."""
    names = set(available_columns(topic).names) - set(stored_schema(topic).names) - set(TRANSACTION_COLUMNS.names)
    return frozenset(names | {"timestamp"} if topic.topic_schema.kind == "records" else names)


def _topic_columns(topic: Topic, options: Options) -> StructType:
    if options.columns is not None:
        return chosen_fields(topic.topic, _every_column(topic, options), options.columns)
    transaction = from_arrow_schema(TRANSACTION_COLUMNS).fields if options.include_transaction_columns else []
    if topic.topic_schema.kind == "records":
        records = from_arrow_schema(default_columns(topic, headers=options.include_headers))
        return StructType([*records.fields, *transaction])
    fields = _columns_as_spark_names_them(topic).fields
    if options.include_control_rows:
        fields = [StructField(field.name, field.dataType, nullable=True) for field in fields]
    place = from_arrow_schema(PLACE_COLUMNS).fields if options.metadata_columns else []
    return StructType([*fields, *place, *transaction])


def _every_column(topic: Topic, options: Options) -> StructType:
    """Return all columns that a read of the topic can have, also those that it does not have by default."""
    available = available_columns(topic)
    if options.include_control_rows:
        available = with_control_rows(available)
    fields = from_arrow_schema(available).fields
    if topic.topic_schema.kind == "columns":
        types = {field.name: field.dataType for field in _columns_as_spark_names_them(topic).fields}
        fields = [StructField(each.name, types.get(each.name, each.dataType), each.nullable) for each in fields]
    return StructType(fields)


def _columns_as_spark_names_them(topic: Topic) -> StructType:
    """Return the topic's columns in the types of their description in Spark's JSON, if the topic has one."""
    stored = from_arrow_schema(stored_schema(topic))
    if topic.topic_schema.spark is None:
        return stored
    return as_described(stored, topic.topic_schema.spark, topic.topic)


def _cast(column: pa.Array[Any], field: pa.Field[Any]) -> Any:
    try:
        cast = cast_losslessly(pa.chunked_array([column]), field.type)
    except LossyCast as error:
        raise SchemaMismatch(f"column {field.name!r} cannot be read as {field.type}: {error}") from None
    return cast.chunk(0) if cast.num_chunks == 1 else cast.combine_chunks()
