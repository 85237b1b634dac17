"""The stream sink is exactly once: whatever fails around a commit, and whoever repeats it, each row is there once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
from tests.depth import sweep
from tests.spark.streams import LIMIT, copy_stream, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_THE_SLOT = "log.slot.before_put"
AFTER_THE_SLOT = "log.slot.claimed"

pytestmark = pytest.mark.pyspark("4.1")


@pytest.fixture
def store(root: str) -> eoslog.Store:
    """A store whose topic ``in`` holds the numbers to 150: three micro-batches."""
    store = make_topics(root)
    produce(store, 0, 150)
    return store


def run(spark: SparkSession, root: str, checkpoint: Path) -> None:
    copy_stream(spark, root, checkpoint, LIMIT).trigger(availableNow=True).start().awaitTermination()


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


@pytest.mark.parametrize(
    ("root", "act"),
    sweep([("local", "raise"), ("s3", "kill-worker")], quick=[("s3", "kill-worker")]),
    indirect=["root"],
)
def test_a_commit_that_fails_after_landing_is_neither_undone_nor_repeated(
    spark: SparkSession, crash_order: Path, store: eoslog.Store, root: str, tmp_path: Path, act: str
) -> None:
    crash_order.write_text(f"{AFTER_THE_SLOT} 1 {act}")
    with pytest.raises(Exception, match=r"told to fail|crashed|exited unexpectedly"):
        run(spark, root, tmp_path / "checkpoint")
    landed = numbers(store)

    run(spark, root, tmp_path / "checkpoint")

    assert 0 < len(landed) <= (60 if LIMIT else 150)
    assert numbers(store) == list(range(150))


@pytest.mark.slow
def test_a_commit_that_failed_before_it_landed_leaves_nothing(
    spark: SparkSession, crash_order: Path, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    crash_order.write_text(f"{BEFORE_THE_SLOT} 1 raise")
    with pytest.raises(Exception, match="told to fail"):
        run(spark, root, tmp_path / "checkpoint")
    assert numbers(store) == []

    run(spark, root, tmp_path / "checkpoint")

    assert numbers(store) == list(range(150))


def test_a_micro_batch_that_spark_forgot_is_a_no_op_when_repeated(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    run(spark, root, tmp_path / "checkpoint")
    before = newest_slot(store)
    forgotten = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    forgotten.unlink()
    forgotten.with_name(f".{forgotten.name}.crc").unlink()

    run(spark, root, tmp_path / "checkpoint")

    assert forgotten.exists()
    assert newest_slot(store) == before
    assert numbers(store) == list(range(150))


def test_a_batch_of_no_rows_is_committed_too(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    nothing = rows.select("n").where("n < 0").writeStream.format("eoslog").option("topic", "out")
    before = newest_slot(store)

    nothing.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(root).awaitTermination()

    assert newest_slot(store) == before + 1
    assert numbers(store) == []


def test_options_of_batch_writes_are_refused(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    stream = copy_stream(spark, root, tmp_path / "checkpoint", txnVersion="1", txnAppId="app")

    with pytest.raises(Exception, match=r"EOSLOG_INVALID_OPTION.*are for batch writes"):
        stream.trigger(availableNow=True).start().awaitTermination()


def test_asynchronous_progress_tracking_is_refused_by_spark(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    """It would repeat several micro-batches after a crash, with other ends than they had."""
    stream = copy_stream(spark, root, tmp_path / "checkpoint", asyncProgressTrackingEnabled="true")

    with pytest.raises(Exception, match="does not support async progress tracking"):
        stream.start()
