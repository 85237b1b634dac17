"""A batch with a transactional id and a version is idempotent, and a newer run of a job fences the older one."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
from tests.spark.driver_process import StartDriver
from tests.spark.streams import NUMBERS, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return make_topics(root)


def backfill(spark: SparkSession, root: str, rows: int = 10, **options: Any) -> None:
    numbered = spark.range(rows).selectExpr("id as n")
    numbered.write.format("eoslog").option("topic", "out").options(**options).mode("append").save(root)


def files(store: eoslog.Store) -> list[str]:
    return sorted(info.path for info in store.object_store.list("") if info.path.endswith((".parquet", ".json")))


def test_a_second_identical_backfill_changes_nothing_at_all(
    spark: SparkSession, store: eoslog.Store, root: str
) -> None:
    backfill(spark, root, transactionalId="backfill", txnVersion=7)
    before = files(store)

    backfill(spark, root, transactionalId="backfill", txnVersion=7)
    backfill(spark, root, transactionalId="backfill", txnVersion=6)

    assert files(store) == before
    assert numbers(store) == list(range(10))


@pytest.mark.slow
@pytest.mark.pyspark("4.1")
def test_a_skipped_duplicate_is_told_and_commits_are_in_the_history(
    start_driver: StartDriver, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    produce(store, 0, 5)
    driver = start_driver(
        """
        import sys
        from pathlib import Path
        from tests.spark.local_spark import start_session
        from tests.spark.streams import copy_stream

        directory, root = Path(sys.argv[1]), sys.argv[2]
        spark = start_session(directory)

        def write(frame, name, **options):
            options = {"topic": "out", "txnAppId": name, **options}
            frame.write.format("eoslog").options(**options).mode("append").save(root)

        for _ in range(2):
            write(spark.range(10).selectExpr("id as n"), "backfill", txnVersion=7)
        stream = copy_stream(spark, root, directory / "sink")
        stream.trigger(availableNow=True).queryName("copy").start().awaitTermination()
        rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest")
        rows = rows.load(root).select("n").writeStream.option("checkpointLocation", str(directory / "each"))
        each = rows.foreachBatch(lambda frame, batch: write(frame, "each", txnVersion=batch))
        each.trigger(availableNow=True).start().awaitTermination()
        """,
        str(tmp_path / "driver"),
        root,
    )

    assert driver.wait() == 0, driver.output

    assert f"[EOSLOG_REPLAYED] {root}: job backfill: version 7 of 'backfill' was committed before" in driver.output
    each, copy, backfill = (commit for commit in store.history("out") if commit.outcome == "commit")
    assert (backfill.operation, backfill.rows, backfill.version, backfill.query_id) == ("append", 10, 7, None)
    assert (copy.rows, copy.query_name, copy.batch_id) == (5, "copy", 0)
    # The place of its checkpoint names the stream's work.
    assert str(copy.application_id).startswith("spark-checkpoint-")
    assert copy.version == 0
    assert (each.rows, each.batch_id, each.application_id) == (5, 0, "each")
    assert len({copy.query_id, each.query_id, None}) == 3
    assert {commit.engine for commit in (each, copy, backfill)} == {f"spark-{version('pyspark')}"}


def test_a_backfill_that_failed_after_it_landed_is_not_repeated(
    spark: SparkSession, crash_order: Path, store: eoslog.Store, root: str
) -> None:
    # The first slot is that of the job's init, the second that of its commit.
    crash_order.write_text("log.slot.claimed 2 raise")
    with pytest.raises(Exception, match="told to fail"):
        backfill(spark, root, transactionalId="backfill", txnVersion=1)

    backfill(spark, root, transactionalId="backfill", txnVersion=1)

    assert numbers(store) == list(range(10))


def test_for_each_batch_writes_once_and_refuses_versions_counted_anew(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    store.admin.create_topic("other", schema=NUMBERS)
    produce(store, 0, 10)

    def write_twice(rows: DataFrame, batch_id: int) -> None:
        for topic in ("out", "other"):
            writer = rows.write.format("eoslog").option("topic", topic).option("txnAppId", "app")
            writer.option("txnVersion", batch_id).mode("append").save(root)

    def run(checkpoint: str) -> None:
        rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
        stream = rows.select("n").writeStream.foreachBatch(write_twice)
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    checkpoint = tmp_path / "checkpoint"
    run(str(checkpoint))
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    before = files(store)
    run(str(checkpoint))
    with pytest.raises(Exception, match=r"EOSLOG_CHECKPOINT_MISMATCH.*'app'.*neither committed nor skipped"):
        run(str(tmp_path / "new checkpoint"))

    assert files(store) == before
    assert numbers(store) == numbers(store, "other") == list(range(10))
