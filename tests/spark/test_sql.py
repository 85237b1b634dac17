"""SQL: temporary views are read and inserted into; what the catalog would lose is refused with the way that works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
from tests.spark.streams import make_topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW = "CREATE OR REPLACE TEMPORARY VIEW {name} USING eoslog OPTIONS (path '{path}', topic '{topic}')"
THE_WAY = "CREATE TEMPORARY VIEW"


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return make_topics(root)


def view(spark: SparkSession, store: eoslog.Store, topic: str = "out", *, columns: str = "") -> None:
    """A view ``v`` of a topic, with its own columns and those of a row's place unless columns are given."""
    spark.sql(VIEW.format(name=f"v {columns}", path=store.url, topic=topic))


@pytest.mark.pyspark("4.1")
def test_rows_are_inserted_through_a_view_with_metadata_columns_too(spark: SparkSession, store: eoslog.Store) -> None:
    view(spark, store)

    spark.sql("INSERT INTO v BY NAME SELECT 1 AS n")
    spark.sql("INSERT INTO v SELECT 2, 'elsewhere', 7, 7, timestamp '2024-01-01 00:00:00'")

    assert numbers(store) == [1, 2]


def test_rows_are_inserted_through_a_view_with_columns_of_its_own(spark: SparkSession, store: eoslog.Store) -> None:
    view(spark, store, columns="(n bigint)")

    spark.sql("INSERT INTO v SELECT 1")
    spark.range(2, 3).toDF("n").writeTo("v").append()
    spark.range(3, 4).toDF("n").write.insertInto("v")
    spark.range(4, 5).toDF("n").write.mode("append").insertInto("v")

    assert numbers(store) == [1, 2, 3, 4]


@pytest.mark.pyspark("4.1")
def test_kafka_records_are_inserted_through_a_view(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("events", partitions=2)
    view(spark, store, "events")

    spark.sql(
        "INSERT INTO v (key, value, partition) SELECT CAST('k' AS BINARY), X'76', 1 UNION ALL SELECT NULL, X'77', 0"
    )

    found = spark.read.format("eoslog").option("topic", "events").load(store.url).orderBy("partition").collect()
    assert [(row.key, bytes(row.value), row.partition) for row in found] == [(None, b"w", 0), (b"k", b"v", 1)]


@pytest.mark.pyspark("4.1")
def test_insert_overwrite_replaces_the_rows_of_the_topic_in_one_slot(spark: SparkSession, store: eoslog.Store) -> None:
    view(spark, store)
    spark.sql("INSERT INTO v (n) VALUES (1), (2)")
    before = store.read(lambda state, slot: slot)

    spark.sql("INSERT OVERWRITE v (n) VALUES (3)")

    assert store.read(lambda state, slot: slot) == before + 1
    assert numbers(store) == [3]


@pytest.mark.pyspark("4.1")
def test_a_view_keeps_its_first_snapshot_until_it_is_replaced(spark: SparkSession, store: eoslog.Store) -> None:
    view(spark, store)
    spark.sql("INSERT INTO v (n) VALUES (1)")
    assert spark.sql("SELECT count(*) AS rows FROM v WHERE _partition >= 0").first() == (1,)
    spark.sql("INSERT INTO v (n) VALUES (2)")

    pinned = [spark.sql("SELECT count(*) FROM v").first()]
    for statement in ("REFRESH TABLE v", "CLEAR CACHE"):
        spark.sql(statement)
        pinned.append(spark.sql("SELECT count(*) FROM v").first())
    view(spark, store)

    assert pinned == [(1,)] * 3
    assert spark.sql("SELECT sum(n) FROM v").first() == (3,)


@pytest.mark.pyspark("4.1")
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO v SELECT 1", "INSERT_COLUMN_ARITY_MISMATCH"),
        ("INSERT INTO v REPLACE WHERE n > 1 SELECT 1, null, null, null, null", "does not support overwrite by filter"),
        ("DELETE FROM v", "does not support deletes"),
        ("UPDATE v SET n = 1", "does not support UPDATE TABLE"),
        ("SELECT * FROM eoslog.`{path}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
    ],
)
def test_a_statement_that_spark_refuses_writes_nothing(
    spark: SparkSession, store: eoslog.Store, statement: str, message: str
) -> None:
    view(spark, store)

    with pytest.raises(Exception, match=message):
        spark.sql(statement.format(path=store.url)).collect()

    assert numbers(store) == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t USING eoslog OPTIONS (path '{path}', topic 'out')",
        "CREATE TABLE t USING eoslog LOCATION '{path}'",
        "CREATE TABLE t USING eoslog OPTIONS (path '{path}', topic 'out') AS SELECT 1L AS n",
    ],
)
def test_a_table_of_the_catalog_is_refused_with_the_way_that_works(
    spark: SparkSession, store: eoslog.Store, statement: str
) -> None:
    spark.sql("DROP TABLE IF EXISTS t")

    with pytest.raises(Exception, match=f"EOSLOG_INVALID_.*{THE_WAY}"):
        spark.sql(statement.format(path=store.url))

    assert numbers(store) == []


def test_a_table_that_spark_made_without_asking_is_refused_at_its_use(spark: SparkSession, store: eoslog.Store) -> None:
    spark.sql("DROP TABLE IF EXISTS t")
    spark.sql(f"CREATE TABLE t (n bigint) USING eoslog OPTIONS (path '{store.url}', topic 'out')")

    for statement in ("SELECT * FROM t", "INSERT INTO t VALUES (1)"):
        with pytest.raises(Exception, match=f"EOSLOG_INVALID_OPTION.*{THE_WAY}"):
            spark.sql(statement).collect()

    assert numbers(store) == []
    spark.sql("DROP TABLE t")


def test_an_unsupported_save_mode_names_the_supported_ones(spark: SparkSession, store: eoslog.Store) -> None:
    with pytest.raises(Exception, match=r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*"Append" or "Overwrite"'):
        spark.range(1).toDF("n").write.format("eoslog").option("topic", "out").mode("error").save(store.url)


def test_partitioning_and_update_mode_are_refused_by_spark(
    spark: SparkSession, store: eoslog.Store, tmp_path: Path
) -> None:
    rows = spark.range(1).toDF("n").write.format("eoslog").option("topic", "out").mode("append")
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        rows.partitionBy("n").save(store.url)
    counts = spark.readStream.format("eoslog").option("topic", "in").load(store.url).groupBy("n").count()
    stream = counts.writeStream.format("eoslog").option("topic", "out").outputMode("update")
    with pytest.raises(Exception, match="eoslog does not support Update mode"):
        stream.option("checkpointLocation", str(tmp_path / "c")).start(store.url).awaitTermination()
    assert numbers(store) == []


def test_overwriting_a_part_of_a_topic_is_refused(spark: SparkSession, store: eoslog.Store) -> None:
    rows = spark.range(1).toDF("n").write.format("eoslog").option("topic", "out").mode("overwrite")

    for option in ("replaceWhere", "partitionOverwriteMode"):
        with pytest.raises(
            Exception, match=r"EOSLOG_INVALID_OPTION.*of Delta Lake is not supported.*replaces all rows of the topic"
        ):
            rows.option(option, "n > 1").save(store.url)
