"""Tasks that are tried again after they uploaded, commits that fail after they landed, and a checkpoint cut short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
from tests.spark.exactness import assert_exact, files_of_topics, orphans
from tests.spark.streams import LIMIT, commits, copy_stream, make_topics, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_SLOT = "log.slot.before_put"
AFTER_SLOT = "log.slot.claimed"
ROWS = 150
PARTITIONS = (0, 1)
TASKS = 2


@pytest.fixture
def store(root: str) -> eoslog.Store:
    return make_topics(root)


@pytest.fixture
def order(crash_order: Path) -> Iterator[Path]:
    """An order to the workers of the session, taken back in the end."""
    yield crash_order
    crash_order.unlink(missing_ok=True)


def write(spark: SparkSession, root: str, **options: Any) -> None:
    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("id as n").write.format("eoslog")
    rows.option("topic", "out").options(**options).mode("append").save(root)


def run(spark: SparkSession, root: str, checkpoint: Path) -> None:
    stream = copy_stream(spark, root, checkpoint, LIMIT)
    stream.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.pyspark("4.1")
def test_of_tasks_that_fail_after_they_uploaded_one_attempt_counts(
    spark: SparkSession, order: Path, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    produce(store, ROWS, ROWS + 60)

    order.write_text("spark.task.files_uploaded 1 raise-attempts-below-2")
    write(spark, root)
    of_batch = len(orphans(store))
    order.write_text("spark.task.files_uploaded 1 raise-attempts-below-1")
    run(spark, root, tmp_path / "checkpoint")

    assert_exact(store, "out", range(ROWS + 60))
    assert of_batch == 2 * len(PARTITIONS) * TASKS
    used = [path for path in files_of_topics(store) - orphans(store) if path.startswith("out/")]
    assert len(orphans(store)) - of_batch == len(used) - len(PARTITIONS) * TASKS


def test_a_batch_whose_commit_fails_after_it_landed_is_not_undone(
    spark: SparkSession, order: Path, store: eoslog.Store, root: str
) -> None:
    order.write_text(f"{AFTER_SLOT} 1 raise")

    with pytest.raises(Exception, match="told to fail"):
        write(spark, root)

    assert_exact(store, "out", range(ROWS))
    assert orphans(store) == set()


@pytest.mark.usefixtures("files_are_objects")
def test_a_batch_commit_that_fails_before_landing_leaves_only_files(
    spark: SparkSession, order: Path, store: eoslog.Store, root: str
) -> None:
    order.write_text(f"{BEFORE_SLOT} 1 kill-worker")

    with pytest.raises(Exception, match=r"crashed|exited unexpectedly"):
        write(spark, root)

    assert_exact(store, "out", [])
    assert len(orphans(store)) == len(PARTITIONS) * TASKS
    write(spark, root)
    assert_exact(store, "out", range(ROWS))


@pytest.mark.slow
@pytest.mark.pyspark("4.2")
def test_a_micro_batch_that_spark_planned_and_forgot_is_planned_anew(
    spark: SparkSession, order: Path, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    produce(store, 0, ROWS)
    order.write_text(f"{BEFORE_SLOT} 2 raise")
    with pytest.raises(Exception, match="told to fail"):
        run(spark, root, tmp_path / "checkpoint")
    assert commits(store) == 1
    planned = tmp_path / "checkpoint" / "offsets"
    (planned / "1").unlink()
    (planned / ".1.crc").unlink()
    produce(store, ROWS, 2 * ROWS)

    run(spark, root, tmp_path / "checkpoint")

    assert_exact(store, "out", range(2 * ROWS))
