"""Types: what a topic can hold comes back as the same type and the same value, written and read by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
import pyspark_eoslog
from eoslog.errors import UnsupportedSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = {
    "timestamp": "timestamp '2024-03-31 01:30:00.123456'",
    "old_timestamp": "timestamp '1500-01-01 00:00:00'",
    "timestamp_ntz": "timestamp_ntz '2024-03-31 02:30:00'",
    "date": "date '0001-01-01'",
    "wide_decimal": "cast('12345678901234567890123456789012345678' as decimal(38,0))",
    "narrow_decimal": "cast(-123.45 as decimal(5,2))",
    "byte": "cast(-128 as tinyint)",
    "short": "cast(32767 as smallint)",
    "int": "cast(-2147483648 as int)",
    "long": "9223372036854775807L",
    "float": "cast(1.5 as float)",
    "double": "cast('NaN' as double)",
    "boolean": "true",
    "binary": "x'00ff'",
    "string": "'ünï'",
    "collated": "'AbC' collate UTF8_LCASE",
    "array": "array(1, null, 3)",
    "nested_array": "array(array('a'), array())",
    "struct": "named_struct('a', array(map('k', 1)), 'b', cast(null as string))",
    "map": "map('a', cast(null as int), 'b', 2)",
    "empty_map": "cast(map() as map<string,int>)",
    "timestamps": "map('t', array(timestamp '2024-01-01 00:00:00', null))",
    "variant": 'parse_json(\'{"a": [1, "x"]}\')',
    "interval": "interval '1 02:03:04.5' day to second",
    "time": "time '12:34:56.789'",
    "nothing": "null",
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_storable_type_comes_back(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
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
        assert found.selectExpr(*wanted).orderBy("id").collect() == rows.selectExpr(*wanted).orderBy("id").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("value", ["make_ym_interval(1, 2)", "named_struct()", "make_interval(1)"])
def test_what_a_topic_cannot_hold_is_refused(spark: SparkSession, value: str) -> None:
    schema = spark.sql(f"select {value} as wrong").schema

    with pytest.raises(UnsupportedSchema, match="column 'wrong'"):
        pyspark_eoslog.topic_schema(schema)


def test_parts_that_may_not_be_null_keep_that(spark: SparkSession, tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"))
    rows = spark.sql("select 1L as id, array('a') as names, named_struct('x', 1) as point")
    assert not rows.schema["names"].dataType.containsNull  # type: ignore[attr-defined]
    store.admin.create_topic("strict", schema=pyspark_eoslog.topic_schema(rows.schema))

    rows.write.format("eoslog").option("topic", "strict").mode("append").save(store.url)

    found = spark.read.format("eoslog").option("topic", "strict").option("metadataColumns", "false").load(store.url)
    assert found.schema == rows.schema
    assert found.collect() == rows.collect()
