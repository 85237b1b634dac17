"""What a user's session may be like: threads, its settings, and several writes of one micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
from pyspark_eoslog import EosLogTable, activate
from tests.spark.streams import copy_stream, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return make_topics(root)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def append(rows: DataFrame, root: str, **options: str) -> None:
    rows.write.format("eoslog").options(**options).mode("append").save(root)


def test_threads_of_ones_own_write_after_they_have_activated_the_session(
    spark: SparkSession, store: eoslog.Store, root: str
) -> None:
    def write(topic: str) -> None:
        activate(spark)
        append(spark.range(3).selectExpr("id as n"), root, topic=topic)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, ["in", "out"]))

    assert numbers(store, "in") == numbers(store, "out") == [0, 1, 2]


@pytest.mark.pyspark("4.1")
def test_a_stream_starts_and_a_foreach_batch_writes_in_threads(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    produce(store, 0, 5)
    store.admin.create_topic("copy", schema={"n": "long"})

    def copy(rows: DataFrame, batch_id: int) -> None:
        def write(topic: str) -> None:
            activate(rows.sparkSession)
            # Writes at the same time under one name would fence each other.
            append(rows.select("n"), root, topic=topic, txnAppId=f"copies-{topic}", txnVersion=str(batch_id))

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, ["out", "copy"]))

    def run() -> None:
        activate(spark)
        copy_stream(spark, root, tmp_path / "sink").trigger(availableNow=True).start().awaitTermination()
        rows = spark.readStream.format("eoslog").options(topic="in", startingOffsets="earliest").load(root)
        writer = rows.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "each"))
        writer.trigger(availableNow=True).start().awaitTermination()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert numbers(store) == sorted([*range(5), *range(5)])
    assert numbers(store, "copy") == [*range(5)]


@pytest.mark.slow
def test_a_second_write_of_a_micro_batch_into_one_topic_is_refused(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    produce(store, 0, 8)

    def run(*, names: tuple[str, str], checkpoint: str) -> None:
        def write(rows: DataFrame, batch_id: int) -> None:
            for name, condition in zip(names, ("n < 4", "n >= 4"), strict=True):
                append(rows.select("n").where(condition), root, topic="out", txnAppId=name, txnVersion=str(batch_id))

        rows = spark.readStream.format("eoslog").options(topic="in", startingOffsets="earliest").load(root)
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match=r"EOSLOG_CHECKPOINT_MISMATCH.*another write.*txnAppId of its own"):
        run(names=("halves", "halves"), checkpoint="one")
    assert numbers(store) == [0, 1, 2, 3]

    run(names=("low", "high"), checkpoint="two")
    assert numbers(store) == sorted([*range(4), *range(8)])


@pytest.mark.parametrize(
    ("name", "value"),
    [("spark.sql.sources.useV1SourceList", ""), ("spark.sql.parser.quotedRegexColumnNames", "true")],
)
def test_a_native_scan_does_not_depend_on_settings(
    spark: SparkSession, store: eoslog.Store, root: str, name: str, value: str
) -> None:
    append(spark.sql("select explode(array(1L, 1L, 2L)) as n").coalesce(1), root, topic="in")
    table = EosLogTable.forPath(spark, root, "in")
    with setting(spark, name, value):
        found = [
            table.toDF().count(),
            table.toDF(metadata_columns=False).count(),
            table.toDF(predicate="n > 1").count(),
            len(table.toDF(columns=["n", "_offset"]).collect()),
        ]

        assert found == [3, 3, 1, 3]
        assert spark.conf.get(name) == value
        assert table.toDF(latest_by_key=True).count() == 2


def test_a_store_that_was_removed_is_created_again_by_the_same_session(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    root = str(tmp_path / "new")
    for mode in ("append", "append", "overwrite"):
        rows = spark.range(3).selectExpr("id as n")
        rows.write.format("eoslog").options(topic="made", createTopic="true").mode(mode).save(root)
        assert spark.read.format("eoslog").option("topic", "made").load(root).count() == 3
        shutil.rmtree(root)
