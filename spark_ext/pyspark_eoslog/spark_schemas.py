"""Schemas between Spark, Arrow and topics: what a topic is read as, and what may be written to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

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
from eoslog.state.store_state import Topic
from pyspark_eoslog.described_types import as_described
from pyspark_eoslog.options import Options
from pyspark_eoslog.options.column_options import chosen_fields


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns of a read: as the topic has them, and as Spark wants them, one for one."""

    source: pa.Schema
    target: pa.Schema

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the topic's columns with exactly Spark's types.

        Raises:
            SchemaMismatch: a value is not one of the wanted type.
        """
        columns = [
            column if column.type == field.type else _cast(column, field)
            for column, field in zip(batch.columns, self.target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.target)


def storable_schema(schema: StructType) -> pa.Schema:
    """A DataFrame's schema as that of a topic.

    Raises:
        UnsupportedSchema: naming a column that a topic cannot hold.
    """
    return normalise_schema(arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema with which Spark hands rows over, in UTC.

    Raises:
        UnsupportedSchema: naming a column whose type Arrow has not.
    """
    fields = []
    for field in schema.fields:
        if _is_geospatial(field.dataType):
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


def _is_geospatial(data_type: DataType) -> bool:
    """Whether it holds a geometry or geography, which Spark hands over as a struct like any other."""
    if isinstance(data_type, StructType):
        return any(_is_geospatial(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _is_geospatial(data_type.elementType)
    if isinstance(data_type, MapType):
        return _is_geospatial(data_type.keyType) or _is_geospatial(data_type.valueType)
    return type(data_type).__name__ in ("GeometryType", "GeographyType")


def default_schema(topics: Sequence[Topic], options: Options) -> StructType:
    """What the topics are read as unless the user gives a schema.

    Raises:
        UnknownTopicOrPartition: there are none, since none matches the pattern.
        InvalidOption: their columns differ.
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
    """The columns that a user's schema asks for; with control rows the topic's own may be null.

    Raises:
        SchemaMismatch: the topic has no such column, or not as this type; the message names those it has.
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
    """Columns that are never null, though they are declared as the Kafka connector declares them."""
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
    """All that the topic can be read with, whether or not it is by default."""
    available = available_columns(topic)
    if options.include_control_rows:
        available = with_control_rows(available)
    fields = from_arrow_schema(available).fields
    if topic.topic_schema.kind == "columns":
        types = {field.name: field.dataType for field in _columns_as_spark_names_them(topic).fields}
        fields = [StructField(each.name, types.get(each.name, each.dataType), each.nullable) for each in fields]
    return StructType(fields)


def _columns_as_spark_names_them(topic: Topic) -> StructType:
    """The user's columns: by Spark's own description where there is one."""
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
