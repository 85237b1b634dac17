"""Schemas of Spark, Arrow and topics: the columns that a read returns, and the types that a topic can store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from eoslog import Topic
from eoslog.errors import CorruptRecord, InvalidOption, SchemaMismatch, UnknownTopicOrPartition, UnsupportedSchema
from eoslog.format.column_casts import LossyCast, cast_losslessly
from eoslog.format.column_types import narrows
from eoslog.format.spark_json import arrow_schema, with_sql_types
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import (
    POSITION_COLUMNS,
    TRANSACTION_COLUMNS,
    available_columns,
    default_columns,
    with_control_rows,
)
from pyspark_eoslog.options import Options
from pyspark_eoslog.pyspark_version import is_at_least, needs, spark_columns


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
    target = arrow_schema(wanted.json())
    source = []
    for field in target:
        name = field.name if field.name in available.names else by_lower_name.get(field.name.lower())
        if name is None:
            raise SchemaMismatch(
                f"topic {topic.topic} has no column {field.name!r}. Its columns are: {', '.join(available.names)}"
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
        available = available_columns(topic)
        if options.include_control_rows:
            available = with_control_rows(available)
        chosen = _in_spark(topic, chosen_columns(topic.topic, available, options.columns))
        named = zip(options.columns, chosen.fields, strict=True)
        return StructType([StructField(name, field.dataType, field.nullable) for name, field in named])
    transaction = spark_columns(TRANSACTION_COLUMNS).fields if options.include_transaction_columns else []
    if topic.topic_schema.kind == "records":
        records = spark_columns(default_columns(topic, headers=options.include_headers))
        return StructType([*records.fields, *transaction])
    fields = _in_spark(topic, stored_schema(topic)).fields
    if options.include_control_rows:
        fields = [StructField(field.name, field.dataType, nullable=True) for field in fields]
    position = spark_columns(POSITION_COLUMNS).fields if options.metadata_columns else []
    return StructType([*fields, *position, *transaction])


def _in_spark(topic: Topic, columns: pa.Schema) -> StructType:
    """Return columns of the topic in the types of their description in Spark's JSON, if the topic has one.

    Raises:
        UnsupportedSchema: this PySpark lacks the type of a column.
    """
    fields = []
    for column in columns:
        try:
            fields += spark_columns(pa.schema([column])).fields
        except PySparkException:
            lacks = "" if is_at_least(4, 1) else f": type time {needs(4, 1)}"
            raise UnsupportedSchema(
                f"topic {topic.topic}: column {column.name!r} is {column.type}, which this PySpark cannot read{lacks}. "
                "Choose other columns with option 'columns'"
            ) from None
    described = topic.topic_schema.spark
    if described is None:
        return StructType(fields)
    own = stored_schema(topic).names
    types = as_described(StructType([each for each in fields if each.name in own]), described, topic.topic)
    return StructType([types[each.name] if each.name in own else each for each in fields])


def _cast(column: pa.Array[Any], field: pa.Field[Any]) -> Any:
    try:
        cast = cast_losslessly(pa.chunked_array([column]), field.type)
    except LossyCast as error:
        raise SchemaMismatch(f"column {field.name!r} cannot be read as {field.type}: {error}") from None
    return cast.chunk(0) if cast.num_chunks == 1 else cast.combine_chunks()


def chosen_columns(topic: str, available: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the named columns in this order. As in Spark, upper and lower case do not matter.

    Raises:
        InvalidOption: the topic has no such column. The message names its columns.
    """
    exact = {field.name: field for field in available}
    in_any_case = {field.name.lower(): field for field in reversed(list(available))}
    fields = []
    for name in columns:
        found = exact.get(name) or in_any_case.get(name.lower())
        if found is None:
            raise InvalidOption(
                f"option 'columns': topic {topic} has no column {name!r}. Its columns are: {', '.join(exact)}"
            )
        fields.append(found)
    return pa.schema(fields)


def check_agreement(columns: Sequence[str] | None, schema: StructType) -> None:
    """Check that a user's schema has the columns of the option, in the same order. Raises: InvalidOption"""
    if columns is None:
        return
    if [name.lower() for name in columns] != [name.lower() for name in schema.names]:
        raise InvalidOption(
            f"option 'columns' is {', '.join(columns)}, but the schema has {', '.join(schema.names)}. Leave one out, "
            "or name the same columns in the same order"
        )


def as_described(stored: StructType, text: str, topic: str) -> StructType:
    """Return the stored columns with the types of a description. Columns that it lacks keep their types.

    A topic's schema has the description beside its Arrow schema. It tells, for example, a variant from a struct. It
    comes from a store, so it is hostile input: Spark would import, or even unpickle, a user-defined type.

    Args:
        text: the description: the columns in Spark's JSON.

    Raises:
        CorruptRecord: the description cannot be read.
    """
    try:
        table = with_sql_types(json.loads(text))
        # An older PySpark may lack the types of columns that are not read.
        others = {each["name"] for each in table["fields"] if isinstance(each["name"], str)} - set(stored.names)
        fields = [each for each in table["fields"] if each["name"] not in others]
        described = StructType.fromJson({**table, "fields": fields})
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,  # PySpark asserts that names are text and that collations have providers.
        RecursionError,
        PySparkException,
    ):
        raise CorruptRecord(f"topic {topic}: its schema in Spark's JSON cannot be read") from None
    return _named_fields(stored, described)


def _named_fields(stored: StructType, described: StructType) -> StructType:
    types = {field.name: field.dataType for field in described.fields}
    return StructType(
        [
            StructField(field.name, _named_type(field.dataType, types.get(field.name)), field.nullable)
            for field in stored.fields
        ]
    )


def _named_type(stored: DataType, described: DataType | None) -> DataType:
    if isinstance(stored, StructType) and isinstance(described, StructType):
        return _named_fields(stored, described)
    if isinstance(stored, ArrayType) and isinstance(described, ArrayType):
        return ArrayType(_named_type(stored.elementType, described.elementType), stored.containsNull)
    if isinstance(stored, MapType) and isinstance(described, MapType):
        return MapType(
            _named_type(stored.keyType, described.keyType),
            _named_type(stored.valueType, described.valueType),
            stored.valueContainsNull,
        )
    return stored if described is None else described
