"""The stream sink is exactly once: whatever fails around a commit, and whoever repeats it, each row is there once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
from tests.spark.streams import LIMIT, NUMBERS, copy_stream, make_topics, numbers, produce

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


@pytest.mark.parametrize(("root", "act"), [("local", "raise"), ("s3", "kill-worker")], indirect=["root"])
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


@pytest.mark.slow
def test_of_several_micro_batches_that_spark_forgot_it_repeats_the_last_one(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    run(spark, root, tmp_path / "checkpoint")
    commit_log = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for forgotten in commit_log[-2:]:
        forgotten.unlink()
        forgotten.with_name(f".{forgotten.name}.crc").unlink()
    before = newest_slot(store)

    run(spark, root, tmp_path / "checkpoint")

    assert newest_slot(store) == before
    assert numbers(store) == list(range(150))


@pytest.mark.slow
def test_a_deleted_checkpoint_is_refused_until_restored_or_restarted_on_purpose(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    checkpoint, aside = tmp_path / "checkpoint", tmp_path / "aside"
    run(spark, root, checkpoint)
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    checkpoint.rename(aside)

    with pytest.raises(Exception, match=rf"EOSLOG_CHECKPOINT_MISMATCH.*startAnewAfter='{query_id}:{last}'"):
        run(spark, root, checkpoint)

    assert numbers(store) == list(range(150))
    shutil.rmtree(checkpoint)
    shutil.copytree(aside, checkpoint)
    run(spark, root, checkpoint)
    shutil.rmtree(checkpoint)
    anew = copy_stream(spark, root, checkpoint, startAnewAfter=f"{query_id}:{last}")
    anew.trigger(availableNow=True).start().awaitTermination()
    assert numbers(store) == sorted([*range(150), *range(150)])


def test_a_micro_batch_is_one_slot_and_its_tasks_are_listed(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    before = newest_slot(store)

    copy_stream(spark, root, tmp_path / "checkpoint").trigger(availableNow=True).start().awaitTermination()

    assert newest_slot(store) == before + 1
    listed = {each.transactional_id for each in store.admin.list_transactions()}
    jobs = {name for name in listed if name.startswith("spark-") and "/" not in name}
    assert len(jobs) == 1
    assert f"{jobs.pop()}/0" in listed


def test_a_batch_of_no_rows_is_committed_too(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    nothing = rows.select("n").where("n < 0").writeStream.format("eoslog").option("topic", "out")
    before = newest_slot(store)

    nothing.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(root).awaitTermination()

    assert newest_slot(store) == before + 1
    assert numbers(store) == []


@pytest.mark.slow
def test_a_run_that_was_fenced_never_commits_again(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    store.admin.create_topic("other", schema=NUMBERS)
    first = copy_stream(spark, root, tmp_path / "first", transactionalId="job").start()
    first.processAllAvailable()
    second = copy_stream(spark, root, tmp_path / "second", transactionalId="job", topic="other").start()
    try:
        second.processAllAvailable()
        first.stop()
        produce(store, 150, 160)
        second.processAllAvailable()
        again = copy_stream(spark, root, tmp_path / "first", transactionalId="job").start()
        again.processAllAvailable()
        produce(store, 160, 170)
        with pytest.raises(
            Exception, match=r"EOSLOG_PRODUCER_FENCED.*'job': another run has taken this job over\. .* its own"
        ):
            second.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()


@pytest.mark.slow
def test_rows_for_a_topic_that_was_deleted_meanwhile_are_refused_with_advice(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    def delete_the_topic(batches: Any) -> Any:
        import eoslog as library

        other = library.connect(root)
        if "out" in other.admin.list_topics():
            other.admin.delete_topic("out")
        yield from batches

    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    stream = rows.select("n").mapInArrow(delete_the_topic, "n bigint").writeStream.format("eoslog")
    stream = stream.option("topic", "out").option("checkpointLocation", str(tmp_path / "checkpoint"))

    with pytest.raises(Exception, match=r"EOSLOG_UNKNOWN_TOPIC_OR_PARTITION.*Start the query again"):
        stream.trigger(availableNow=True).start(root).awaitTermination()


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


@pytest.mark.slow
def test_a_stream_creates_the_topic_of_its_sink(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    options = {"createTopic": "true", "partitions": "3", "key": "n"}
    for _ in range(2):
        stream = copy_stream(spark, root, tmp_path / "checkpoint", LIMIT, topics=("in", "made"), **options)
        stream.trigger(availableNow=True).start().awaitTermination()

    assert numbers(store, "made") == list(range(150))
    assert store.admin.describe_topic("made").partitions == 3
