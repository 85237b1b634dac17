"""A topic's columns grow while Spark reads and writes it: old files give nulls, by the data source and by Spark's own
Parquet reader alike, and a stream reads what came since when it is started again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
import pyspark_eoslog
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.entries import TopicConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

OLD = """
    1L as id,
    named_struct('x', 1) as at,
    array(named_struct('x', 2), null) as path,
    map('k', named_struct('x', 3), 'n', null) as places,
    parse_json('1') as body
"""
NEW = """
    2L as id,
    named_struct('x', 1, 'y', named_struct('z', date '2024-01-01')) as at,
    array(named_struct('y', interval '1' day, 'x', 2), null) as path,
    map('k', named_struct('x', 3, 'y', parse_json('[1]'))) as places,
    parse_json('2') as body,
    'new' as note,
    array(1, 2) as tags,
    parse_json('{"a": 1}') as extra
"""
ADDED_NULL = "cast(null as string) as note, cast(null as array<int>) as tags, cast(null as variant) as extra"
OLD_AS_READ = """
    1L as id,
    named_struct('x', 1, 'y', cast(null as struct<z: date>)) as at,
    array(named_struct('x', 2, 'y', cast(null as interval day)), null) as path,
    map('k', named_struct('x', 3, 'y', cast(null as variant)), 'n', null) as places,
    parse_json('1') as body,
"""
NEW_AS_READ = NEW.replace("named_struct('y', interval '1' day, 'x', 2)", "named_struct('x', 2, 'y', interval '1' day)")


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows as text, which compares variants and intervals too."""
    columns = [
        f"cast({name} as string) as {name}" for name in ("id", "at", "path", "places", "body", "note", "tags", "extra")
    ]
    return frame.selectExpr(*columns).orderBy("id").collect()


def write(frame: DataFrame, store: eoslog.Store, **options: str) -> None:
    frame.write.format("eoslog").options(topic="t", **options).mode("append").save(store.url)


def read(spark: SparkSession, store: eoslog.Store, **options: Any) -> DataFrame:
    return spark.read.format("eoslog").options(topic="t", metadataColumns="false", **options).load(store.url)


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> eoslog.Store:
    """A store with a topic that holds a row."""
    store = eoslog.connect(str(tmp_path / "store"))
    old = spark.sql(f"select {OLD}")
    schema = pyspark_eoslog.topic_schema(old.schema)
    config = TopicConfig(segment_batches=2)
    store.admin.create_topic("t", schema=schema, spark_schema=old.schema.json(), key="id", config=config)
    write(old, store)
    return store


@pytest.mark.usefixtures("files_are_objects")
def test_both_ways_of_reading_give_nulls_for_old_files(
    spark: SparkSession, store: eoslog.Store, tmp_path: Path
) -> None:
    before = store.read(lambda state, slot: slot)
    new = spark.sql(f"select {NEW}")
    with pytest.raises(Exception, match=r"no column 'at\.y', 'path\.element\.y'.*mergeSchema=true"):
        write(new, store)
    with pytest.raises(Exception, match="'id' is int64 in the topic and string in the rows"):
        write(new.selectExpr("'x' as id", "note"), store, mergeSchema="true")

    write(new, store, mergeSchema="true")

    expected = rows_of(spark.sql(f"select {OLD_AS_READ} {ADDED_NULL} union all select {NEW_AS_READ}"))
    found = read(spark, store)
    assert found.schema["path"].dataType.simpleString() == "array<struct<x:int,y:interval day>>"
    assert rows_of(found) == expected
    assert rows_of(read(spark, store, slot=before)) == expected[:1]
    native = [str(path) for path in (tmp_path / "store" / "t").rglob("*.parquet")]
    assert len(native) == 2
    assert rows_of(spark.read.schema(found.schema).parquet(*native)) == expected
    pruned = spark.read.schema(found.schema).parquet(*native).orderBy("id")
    assert pruned.selectExpr("at.y is null", "at is null").collect() == [(True, False), (False, False)]

    write(spark.sql(f"select {OLD}"), store)
    seal_segments(store)
    (compacted,) = store.admin.compact_files("t").compacted
    assert compacted.files_after == 1
    again = [*expected[:1], *expected]
    assert rows_of(read(spark, store)) == again


def test_a_user_reads_some_fields_of_a_struct(spark: SparkSession, store: eoslog.Store) -> None:
    write(spark.sql(f"select {NEW}"), store, mergeSchema="true")
    schema = "id long, at struct<y: struct<z: date>>, path array<struct<y: interval day to second>>"
    narrow = spark.read.format("eoslog").options(topic="t").schema(schema).load(store.url)

    assert narrow.orderBy("id").selectExpr("cast(at as string)", "cast(path.y as string)").collect() == [
        ("{null}", "[null, null]"),
        ("{{2024-01-01}}", "[INTERVAL '1 00:00:00' DAY TO SECOND, null]"),
    ]
    with pytest.raises(Exception, match=r"column 'at' is struct.*cannot be read as struct<w"):
        spark.read.format("eoslog").options(topic="t").schema("at struct<w: int>").load(store.url).collect()


def copy(spark: SparkSession, store: eoslog.Store, directory: Path, target: str) -> DataStreamWriter:
    """The stream of all columns from ``t`` to another topic, which is given those that it lacks."""
    rows = (
        spark.readStream.format("eoslog")
        .options(topic="t", startingOffsets="earliest", metadataColumns="false")
        .load(store.url)
    )
    return (
        rows.writeStream.format("eoslog")
        .options(topic=target, mergeSchema="true", checkpointLocation=str(directory / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
    )


@pytest.mark.pyspark("4.1")
def test_a_stream_keeps_its_columns_until_it_is_started_again(
    spark: SparkSession, store: eoslog.Store, tmp_path: Path
) -> None:
    topic = store.admin.describe_topic("t")
    schema = store.admin.schema_history("t")[0].schema
    store.admin.create_topic("copy", schema=schema.remove(4).remove(3), spark_schema=topic.topic_schema.spark)
    query = copy(spark, store, tmp_path, "copy").start(store.url)
    query.processAllAvailable()
    write(spark.sql(f"select {NEW}"), store, mergeSchema="true")
    query.processAllAvailable()
    query.stop()
    first = [each.added for each in store.admin.schema_history("copy")]

    write(spark.sql(f"select {NEW.replace('2L as id', '3L as id')}"), store)
    again = copy(spark, store, tmp_path, "copy").start(store.url)
    again.processAllAvailable()
    again.stop()

    assert first == [(), (("places",), ("body",))]
    rows = spark.read.format("eoslog").options(topic="copy").load(store.url).orderBy("id")
    assert rows.selectExpr("id", "at.y.z is null", "note", "cast(body as string)").collect() == [
        (1, True, None, "1"),
        (2, True, None, "2"),
        (3, False, "new", "2"),
    ]
    assert store.admin.describe_topic("copy").schema_version == 3
