"""Schemas between Spark and topics: what cannot be stored is refused by name, and a read may leave fields out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkTypeError
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

import eoslog
import pyspark_eoslog
from eoslog import Store
from eoslog.errors import SchemaMismatch, UnsupportedSchema
from eoslog.read.topics_snapshot import TopicSelection, topics_snapshot
from eoslog.state.store_state import Topic
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from pyspark_eoslog import spark_schemas
from pyspark_eoslog.options import Options
from pyspark_eoslog.spark_schemas import ReadColumns, choose_columns, default_schema

GEOSPATIAL: list[Any] = [
    kind(4326) for kind in (getattr(types, name, None) for name in ("GeometryType", "GeographyType")) if kind
]


def struct_of(**fields: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


@pytest.mark.parametrize(
    "data_type", [YearMonthIntervalType(), CalendarIntervalType(), CharType(3), StructType([]), *GEOSPATIAL]
)
@pytest.mark.parametrize(
    "within",
    [
        lambda data_type: data_type,
        ArrayType,
        lambda data_type: MapType(StringType(), data_type),
        lambda data_type: struct_of(a=data_type),
    ],
    ids=["alone", "array", "map", "struct"],
)
def test_a_type_that_a_topic_cannot_hold_is_refused_with_the_name_of_its_column(
    data_type: DataType, within: Callable[[DataType], DataType]
) -> None:
    with pytest.raises(UnsupportedSchema, match=r"column 'wrong.*"):
        pyspark_eoslog.topic_schema(struct_of(fine=LongType(), wrong=within(data_type)))


POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])


@pytest.fixture
def topic() -> Topic:
    environment = Environment()
    schema = pa.schema(
        [
            pa.field("at", POINT),
            pa.field("path", pa.list_(pa.field("element", POINT))),
            pa.field("places", pa.map_(pa.string(), POINT)),
        ]
    )
    return Store(MemoryStore(environment), environment).admin.create_topic("t", schema=schema)


def read(columns: ReadColumns, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(list(rows), schema=columns.source)
    converted = columns.convert(batch)
    converted.validate(full=True)
    assert converted.schema == columns.target
    found: list[dict[str, Any]] = converted.to_pylist()
    return found


def test_a_schema_with_fewer_fields_in_a_struct_reads_these(topic: Topic) -> None:
    y, wide_x = struct_of(y=StringType()), struct_of(y=StringType(), x=LongType())
    wanted = struct_of(places=MapType(StringType(), y), at=wide_x, path=ArrayType(y))
    point = {"x": 1, "y": "a"}

    found = read(
        choose_columns(topic, wanted),
        {"at": point, "path": [point, None], "places": [("k", point)]},
        {"at": None, "path": None, "places": []},
    )

    assert found == [
        {"places": [("k", {"y": "a"})], "at": {"y": "a", "x": 1}, "path": [{"y": "a"}, None]},
        {"places": [], "at": None, "path": None},
    ]


@pytest.mark.parametrize(
    "at",
    [
        struct_of(z=IntegerType()),
        struct_of(x=StringType()),
        struct_of(X=IntegerType()),
        StringType(),
        ArrayType(struct_of(x=IntegerType())),
    ],
)
def test_a_schema_with_other_fields_is_refused(topic: Topic, at: DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'at' is struct.*cannot be read as"):
        choose_columns(topic, struct_of(at=at))


def test_a_topic_with_a_type_that_this_pyspark_lacks_is_read_without_that_column(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PySpark 4.0 has no type ``time``, nor does it know the name in a topic's description."""
    convert = spark_schemas.spark_columns

    def convert_in_4_0(columns: pa.Schema) -> StructType:
        if any(pa.types.is_time(column.type) for column in columns):
            raise PySparkTypeError("time64[us] is not supported in conversion to Arrow.")
        return convert(columns)

    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    monkeypatch.setattr(spark_schemas, "spark_columns", convert_in_4_0)
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("at", pa.time64("us"))])
    described = struct_of(n=LongType(), at=LongType()).json().replace('"at","nullable":true,"type":"long"', "@")
    described = described.replace("@", '"at","nullable":true,"type":"time of another release"')
    path = str(tmp_path / "store")
    store = eoslog.connect(path, fsync=False)
    for name, spark_schema in (("plain", None), ("described", described)):
        store.admin.create_topic(name, schema=schema, spark_schema=spark_schema)
        topic = topics_snapshot(store, TopicSelection((name,))).topics[0].topic

        chosen = default_schema([topic], Options.of({"path": path, "topic": name, "columns": "N,_offset"}))
        assert chosen == StructType([StructField("N", LongType()), StructField("_offset", LongType())])
        with pytest.raises(UnsupportedSchema, match=r"'at' is time64.*type time needs PySpark 4\.1.*columns"):
            default_schema([topic], Options.of({"path": path, "topic": name}))
