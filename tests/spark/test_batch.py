"""Batch reads and writes: rows come back as they went in, once, and mistakes are told before anything is uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eoslog
import pyspark_eoslog
from tests.spark.exactness import files_of_topics
from tests.spark.stores import each_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return eoslog.connect(root)


@pytest.fixture
def flights(spark: SparkSession, store: eoslog.Store) -> DataFrame:
    """Rows, and an empty topic of two partitions that takes them."""
    rows = spark.range(100).selectExpr("id", "cast(id as string) as carrier", "timestamp_millis(id) as departure")
    store.admin.create_topic("flights", partitions=2, schema=pyspark_eoslog.topic_schema(rows.schema), key="carrier")
    return rows


def write(rows: DataFrame, store: eoslog.Store, **options: Any) -> None:
    rows.write.format("eoslog").options(**options).mode("append").save(store.url)


def read(spark: SparkSession, store: eoslog.Store, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("eoslog").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(store.url)


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


@each_store
def test_rows_of_columns_come_back_with_their_place(
    spark: SparkSession, store: eoslog.Store, flights: DataFrame
) -> None:
    write(flights, store, topic="flights")

    found = read(spark, store, topic="flights")

    assert found.columns == ["id", "carrier", "departure", "_topic", "_partition", "_offset", "_timestamp"]
    assert sorted(found.select("id", "carrier", "departure").collect()) == sorted(flights.collect())
    places = {(row._topic, row._partition, row._offset) for row in found.collect()}
    assert len(places) == 100
    assert {partition for _, partition, _ in places} == {0, 1}
    assert store.scan("flights").record_count == 100


def test_a_narrower_schema_reads_only_its_columns(spark: SparkSession, store: eoslog.Store, flights: DataFrame) -> None:
    write(flights, store, topic="flights")

    found = read(spark, store, "_offset bigint, ID bigint", topic="flights")

    assert found.columns == ["_offset", "ID"]
    assert sorted(row.ID for row in found.collect()) == list(range(100))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id", "carrier", "departure", "1 as extra"], "topic flights has no column 'extra'.*Option mergeSchema=true"),
        (
            ["id", "carrier", "make_ym_interval(1) departure"],
            "EOSLOG_UNSUPPORTED_SCHEMA.*column 'departure': type interval",
        ),
    ],
)
def test_rows_of_other_columns_are_refused_before_anything_is_uploaded(
    spark: SparkSession, store: eoslog.Store, flights: DataFrame, columns: list[str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(flights.selectExpr(*columns), store, topic="flights")

    assert files_of_topics(store) == set()


def test_an_overwrite_without_rows_leaves_none(spark: SparkSession, store: eoslog.Store, flights: DataFrame) -> None:
    write(flights, store, topic="flights")

    flights.where("id < 0").write.format("eoslog").option("topic", "flights").mode("overwrite").save(store.url)

    assert read(spark, store, topic="flights").count() == 0


def test_overwrite_replaces_the_rows_in_one_slot(spark: SparkSession, store: eoslog.Store, flights: DataFrame) -> None:
    write(flights, store, topic="flights")
    before = newest_slot(store)

    flights.limit(3).write.format("eoslog").option("topic", "flights").mode("overwrite").save(store.url)

    assert newest_slot(store) == before + 1
    assert read(spark, store, topic="flights").count() == 3
    with pytest.raises(Exception, match="EOSLOG_INVALID_REQUEST"):
        spark.sql("select 'v' value, 't' topic").write.format("eoslog").mode("overwrite").save(store.url)


def test_an_unknown_topic_is_refused_with_advice(spark: SparkSession, store: eoslog.Store, flights: DataFrame) -> None:
    with pytest.raises(
        Exception, match=r"EOSLOG_UNKNOWN_TOPIC_OR_PARTITION.*The store has: flights.*create"
    ) as refused:
        write(flights, store, topic="nope")
    assert "Traceback" not in str(refused.value)
    with pytest.raises(Exception, match="EOSLOG_UNKNOWN_TOPIC_OR_PARTITION"):
        read(spark, store, topic="nope")


def test_a_write_creates_its_topic_and_the_same_write_works_again(spark: SparkSession, store: eoslog.Store) -> None:
    rows = spark.range(5).selectExpr("id", "cast(id as string) as carrier")
    for _ in range(2):
        write(rows, store, topic="made", createTopic="true", partitions="2", key="carrier")
    overwrite = rows.limit(1).write.format("eoslog").options(topic="other", createTopic="true")
    overwrite.mode("overwrite").save(store.url)

    found = read(spark, store, topic="made")
    write(found, store, topic="copy", createTopic="true")

    assert found.count() == 10
    assert (found.where("_partition < 2").count(), store.admin.describe_topic("made").partitions) == (10, 2)
    assert read(spark, store, topic="other").count() == 1
    assert read(spark, store, topic="copy").drop("_topic", "_offset").columns == [
        "id",
        "carrier",
        "_partition",
        "_timestamp",
    ]


def test_an_error_of_a_task_is_reported_without_a_traceback(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("ids", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))

    with pytest.raises(Exception, match=r"EOSLOG_SCHEMA_MISMATCH.*column 'id' has 1 nulls") as refused:
        write(spark.range(1).selectExpr("nullif(id, 0) as id"), store, topic="ids")

    assert "Traceback" not in str(refused.value)


def test_records_are_read_as_the_kafka_connector_reads_them(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("events", partitions=3)
    rows = spark.createDataFrame(
        [("k1", "v1", [("h", b"1")], 0), ("k2", None, None, 2)],
        "key string, value string, headers array<struct<key:string,value:binary>>, partition int",
    ).selectExpr("*", "timestamp '2024-05-06 07:08:09.123' as timestamp")

    write(rows, store, topic="events")

    found = read(spark, store, subscribe="events", includeHeaders="true")
    assert found.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = found.orderBy("key").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k1",
        b"v1",
        "events",
        0,
        0,
    )
    assert [(each.key, bytes(each.value)) for each in first.headers] == [("h", b"1")]
    assert (second.value, second.headers, second.partition, second.timestampType) == (None, None, 2, 0)
    assert found.selectExpr("timestamp = timestamp '2024-05-06 07:08:09.123'").distinct().collect() == [(True,)]


def test_a_column_routes_rows_to_several_topics_in_one_transaction(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("even")
    store.admin.create_topic("odd")
    rows = spark.range(10).selectExpr("cast(id as string) value", "if(id % 2 = 0, 'even', 'odd') as topic")
    before = newest_slot(store)

    write(rows, store)

    assert newest_slot(store) == before + 1
    found = read(spark, store, subscribe="even,odd").collect()
    assert sorted((row.topic, int(row.value) % 2) for row in found) == [("even", 0)] * 5 + [("odd", 1)] * 5
    with pytest.raises(Exception, match=r"EOSLOG_UNKNOWN_TOPIC_OR_PARTITION.*'neither'.*even, odd"):
        write(rows.selectExpr("value", "'neither' as topic"), store)
