"""Types: what a topic can hold comes back as the same type and the same value, written and read by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import eoslog
import pyspark_eoslog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEEP = "1"
for level in range(10):
    DEEP = f"named_struct('f{level}', array({DEEP}))"
VALUES = {
    "timestamp": "timestamp '2024-03-31 01:30:00.123456'",
    "old_timestamp": "timestamp '1500-01-01 00:00:00'",
    "timestamp_ntz": "timestamp_ntz '2024-03-31 02:30:00'",
    "date": "date '0001-01-01'",
    "latest_timestamp": "timestamp '9999-12-31 23:59:59.999999'",
    "julian_timestamp": "timestamp '1582-10-05 12:00:00'",
    "old_timestamp_ntz": "timestamp_ntz '0001-01-01 00:00:00'",
    "latest_timestamp_ntz": "timestamp_ntz '9999-12-31 23:59:59.999999'",
    "date_before_christ": "date '-0044-03-15'",
    "latest_date": "date '9999-12-31'",
    **{
        f"decimal_{digits}_{scale}": f"cast('-{'9' * (digits - scale)}.{'9' * scale}' as decimal({digits},{scale}))"
        for digits, scale in ((1, 0), (9, 0), (9, 9), (10, 5), (18, 0), (18, 18), (19, 1), (37, 7), (38, 18), (38, 38))
    },
    "wide_decimal": "cast('12345678901234567890123456789012345678' as decimal(38,0))",
    "narrow_decimal": "cast(-123.45 as decimal(5,2))",
    "byte": "cast(-128 as tinyint)",
    "short": "cast(32767 as smallint)",
    "int": "cast(-2147483648 as int)",
    "long": "9223372036854775807L",
    "float": "cast(1.5 as float)",
    "double": "cast('NaN' as double)",
    "boolean": "true",
    "infinity": "double('-Infinity')",
    "negative_zero": "-0.0D",
    "binary": "x'00ff'",
    "empty_binary": "x''",
    "string": "'ünï'",
    "collated": "'AbC' collate UTF8_LCASE",
    "array": "array(1, null, 3)",
    "nested_array": "array(array('a'), array())",
    "struct": "named_struct('a', array(map('k', 1)), 'b', cast(null as string))",
    "map": "map('a', cast(null as int), 'b', 2)",
    "empty_map": "cast(map() as map<string,int>)",
    "timestamps": "map('t', array(timestamp '2024-01-01 00:00:00', null))",
    "variant": 'parse_json(\'{"a": [1, "x"]}\')',
    "variants": """map('k', array(parse_json('[1,{"a":null}]'), null))""",
    "interval": "interval '-1 02:03:04.5' day to second",
    "hours": "interval '5' hour",
    "intervals": "array(interval '1' day, null)",
    "char": "cast('ab' as char(5))",
    "varchar": "cast('ab' as varchar(5))",
    "struct_key": "map(named_struct('a', 1), 2)",
    "null_struct": "cast(null as struct<a: int, b: struct<c: int>>)",
    "strict": "array(named_struct('a', named_struct('b', 1)))",
    "names": "named_struct('a b', 1, 'c.d', map(1, named_struct('`e`', cast(null as variant))), 'f', 2)",
    "deep": DEEP,
    "time": "time '12:34:56.789'",
    "nothing": "null",
}


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.pyspark("4.1")
def test_every_storable_type_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        # A row of values, and one of nulls.
        columns = [f"if(id = 0, {value}, null) as {name}" for name, value in VALUES.items()]
        rows = spark.range(2).selectExpr("id", *columns)
        store.admin.create_topic(
            "types", schema=pyspark_eoslog.topic_schema(rows.schema), spark_schema=rows.schema.json()
        )

        rows.write.format("eoslog").option("topic", "types").mode("append").save(store.url)
        found = spark.read.format("eoslog").option("topic", "types").option("metadataColumns", "false").load(store.url)

        assert found.dtypes == rows.dtypes
        wanted = [f"cast({name} as string) as {name}" for name in rows.columns]
        expected = rows.selectExpr(*wanted).orderBy("id").collect()
        assert found.selectExpr(*wanted).orderBy("id").collect() == expected
        # Spark's own Parquet reader finds the same, but that it cannot read times.
        fields = [field for field in found.schema.fields if field.name != "time"]
        files = [str(path) for path in (tmp_path / "store" / "types").rglob("*.parquet")]
        native = spark.read.schema(StructType(fields)).parquet(*files)
        wanted = [each for each in wanted if not each.endswith(" as time")]
        assert native.selectExpr(*wanted).orderBy("id").collect() == [
            tuple(value for name, value in zip(rows.columns, row, strict=True) if name != "time") for row in expected
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


NAMES = ["a.b", "with space", "ünï", "back`tick", "CamelCase", "a,b;c{}()=", "quote'\"", "null", "a"]


@pytest.mark.usefixtures("files_are_objects")
def test_columns_keep_their_names(spark: SparkSession, tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    quoted = {name: name.replace("`", "``") for name in NAMES}
    rows = spark.range(1).selectExpr(*(f"{number} as `{quoted[name]}`" for number, name in enumerate(NAMES)))
    store.admin.create_topic("names", schema=pyspark_eoslog.topic_schema(rows.schema))

    rows.write.format("eoslog").option("topic", "names").mode("append").save(store.url)

    found = spark.read.format("eoslog").option("topic", "names").option("metadataColumns", "false").load(store.url)
    assert found.columns == NAMES
    assert found.collect() == [tuple(range(len(NAMES)))]
    assert found.select("`a.b`", "`back``tick`").collect() == [(0, 3)]
    files = [str(path) for path in (tmp_path / "store" / "names").rglob("*.parquet")]
    assert spark.read.schema(found.schema).parquet(*files).collect() == found.collect()


def test_a_users_own_type_is_stored_as_what_it_is_made_of(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    store = eoslog.connect(str(tmp_path / "store"))
    rows = spark.createDataFrame([(1, Vectors.dense([1.0, 2.0]))], ["id", "vector"])
    schema = pyspark_eoslog.topic_schema(rows.schema)
    store.admin.create_topic("vectors", schema=schema, spark_schema=rows.schema.json())

    rows.write.format("eoslog").option("topic", "vectors").mode("append").save(store.url)

    found = spark.read.format("eoslog").option("topic", "vectors").load(store.url)
    assert found.selectExpr("id", "vector.values").collect() == [(1, [1.0, 2.0])]


@pytest.mark.pyspark("4.1")
def test_parts_that_may_not_be_null_keep_that(spark: SparkSession, tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    rows = spark.sql(
        "select 1L as id, array('a') as names, named_struct('x', 1) as point, "
        "map('k', array(named_struct('y', 1))) as map"
    )
    assert not rows.schema["names"].dataType.containsNull  # type: ignore[attr-defined]
    store.admin.create_topic("strict", schema=pyspark_eoslog.topic_schema(rows.schema))

    rows.write.format("eoslog").option("topic", "strict").mode("append").save(store.url)

    found = spark.read.format("eoslog").option("topic", "strict").option("metadataColumns", "false").load(store.url)
    assert found.schema == rows.schema
    assert found.collect() == rows.collect()


def test_text_that_is_not_utf_8_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = eoslog.connect(root)
    store.admin.create_topic("carriers", schema=pa.schema([("carrier", pa.string())]))
    carriers = spark.sql("SELECT CAST(X'41FF' AS STRING) carrier")

    with pytest.raises(PySparkException, match=r"holds text that is not UTF-8: .*make_valid_utf8"):
        carriers.write.format("eoslog").option("topic", "carriers").mode("append").save(root)
    mended = carriers.selectExpr("make_valid_utf8(carrier) carrier")
    mended.write.format("eoslog").option("topic", "carriers").mode("append").save(root)

    assert store.scan("carriers").to_table().to_pylist() == [{"carrier": "A\N{REPLACEMENT CHARACTER}"}]
