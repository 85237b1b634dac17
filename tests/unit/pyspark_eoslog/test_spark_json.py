"""Columns in Spark's JSON have the Arrow types in which PySpark hands them over, and the same ones are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from eoslog.errors import UnsupportedSchema
from eoslog.format.spark_json import arrow_schema, topic_columns
from eoslog.format.topic_schemas import normalize_schema
from pyspark_eoslog.pyspark_version import is_at_least

TIMES: list[DataType] = [types.TimeType(digits) for digits in range(7)] if hasattr(types, "TimeType") else []
INTERVALS = [DayTimeIntervalType(first, last) for first in range(4) for last in range(first, 4)]
WITHOUT_PARTS = [
    *(NullType(), BooleanType(), BinaryType(), DateType(), TimestampType(), TimestampNTZType(), VariantType()),
    *(ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), VectorUDT()),
    *(StringType(), StringType("UTF8_LCASE"), StringType("UNICODE_CI")),
    *(*INTERVALS, *TIMES),
]
REFUSED = [
    *(CalendarIntervalType(), YearMonthIntervalType(), YearMonthIntervalType(0), YearMonthIntervalType(1)),
    *(CharType(3), VarcharType(10), DecimalType(0, 0), DecimalType(39, 2), DecimalType(100, 0)),
]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
METADATA = st.dictionaries(st.sampled_from(["comment", "__CHAR_VARCHAR_TYPE_STRING"]), st.text(), max_size=1)
LEAVES = st.sampled_from([*WITHOUT_PARTS, *REFUSED]) | st.builds(DecimalType, st.integers(1, 38), st.integers(-5, 40))


def structs(parts: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, NAMES, parts, st.booleans(), METADATA)
    return st.lists(fields, max_size=4, unique_by=lambda field: field.name).map(StructType)


def nested(parts: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.one_of(
        structs(parts),
        st.builds(ArrayType, parts, st.booleans()),
        st.builds(MapType, parts, parts, st.booleans()),
    )


SCHEMAS = structs(st.recursive(LEAVES, nested, max_leaves=6))


def handed_over(schema: StructType) -> pa.Schema:
    """The Arrow schema of PySpark for the rows that it passes."""
    in_utc: Any = {"timezone": "UTC"} if is_at_least(4, 2) else {"timestamp_utc": True}
    return pandas_types.to_arrow_schema(schema, **in_utc)


@given(SCHEMAS)
def test_columns_have_the_types_nullability_and_metadata_of_the_rows_that_spark_passes(schema: StructType) -> None:
    try:
        expected = handed_over(schema)
    except (PySparkException, ValueError):
        with pytest.raises(UnsupportedSchema, match="cannot be stored"):
            arrow_schema(schema.json())
    else:
        # Earlier releases of PySpark leave metadata out.
        has_metadata = hasattr(pandas_types, "to_arrow_metadata")
        assert arrow_schema(schema.json()).equals(expected, check_metadata=has_metadata)


@pytest.mark.parametrize("data_type", WITHOUT_PARTS, ids=lambda each: each.simpleString())
def test_a_topic_stores_each_type_that_spark_passes_beside_its_columns_of_reads(data_type: DataType) -> None:
    schema = StructType([StructField("c", data_type), StructField("_offset", LongType())])

    columns, described = topic_columns(schema.json())

    assert columns == normalize_schema(handed_over(StructType(schema.fields[:1])))
    assert arrow_schema(described).names == ["c"]


@pytest.mark.parametrize("data_type", REFUSED, ids=lambda each: each.simpleString())
@pytest.mark.parametrize("path", ["wrong", "wrong.element", "wrong.value", "wrong.a"])
def test_a_type_that_spark_does_not_pass_is_refused_with_its_path(data_type: DataType, path: str) -> None:
    within = {
        "wrong": data_type,
        "wrong.element": ArrayType(data_type),
        "wrong.value": MapType(StringType(), data_type),
        "wrong.a": StructType([StructField("a", data_type)]),
    }
    schema = StructType([StructField("fine", LongType()), StructField("wrong", within[path])])

    with pytest.raises((PySparkException, ValueError)):
        handed_over(schema)
    with pytest.raises(UnsupportedSchema) as refused:
        arrow_schema(schema.json())
    assert f"column '{path}': type {data_type.simpleString()} cannot be stored" in str(refused.value)


def test_a_name_that_is_not_text_is_refused() -> None:
    schema = StructType([StructField("\ud800", LongType())])

    with pytest.raises(UnsupportedSchema, match=r"column '\\ud800': the name is not text"):
        arrow_schema(schema.json())
