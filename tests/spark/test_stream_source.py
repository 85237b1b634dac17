"""The stream source: each row once, batches that end where they were told to, and errors that say what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import copy_stream, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, root: str, checkpoint: Path, **source: Any) -> list[int]:
    """Run the copy stream until nothing is left; the number of rows of each micro-batch."""
    query = copy_stream(spark, root, checkpoint, {name: str(value) for name, value in source.items()})
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    return [progress.numInputRows for progress in started.recentProgress]


@pytest.mark.pyspark("4.2")
def test_a_consumer_group_shows_the_lag_of_a_stream(spark: SparkSession, root: str, tmp_path: Path) -> None:
    store = make_topics(root)
    produce(store, 0, 50)

    run(spark, root, tmp_path / "checkpoint", groupId="copy", maxOffsetsPerTrigger=30)

    assert {each.lag for each in store.admin.describe_consumer_group("copy").partitions} == {0}
    produce(store, 50, 60)
    behind = sum(each.lag or 0 for each in store.admin.describe_consumer_group("copy").partitions)
    run(spark, root, tmp_path / "checkpoint", groupId="copy")
    assert behind >= 10
    assert {each.lag for each in store.admin.describe_consumer_group("copy").partitions} == {0}
    assert numbers(store) == list(range(60))


@pytest.mark.slow
@pytest.mark.pyspark("4.2")
def test_a_snapshot_stream_takes_whole_transactions(spark: SparkSession, root: str, tmp_path: Path) -> None:
    store = make_topics(root)
    for first in (0, 20, 40):
        produce(store, first, first + 20)

    rows = run(spark, root, tmp_path / "checkpoint", isolationLevel="snapshot", maxOffsetsPerTrigger=10)

    assert rows == [20, 20, 20]
    assert numbers(store) == list(range(60))


@pytest.mark.pyspark("4.1")
def test_without_startingoffsets_a_stream_begins_at_the_end(spark: SparkSession, root: str, tmp_path: Path) -> None:
    store = make_topics(root)
    produce(store, 0, 10)
    stream = copy_stream(spark, root, tmp_path / "checkpoint", {"startingOffsets": "latest"}).start()
    try:
        stream.processAllAvailable()
        produce(store, 10, 20)
        stream.processAllAvailable()
    finally:
        stream.stop()

    assert numbers(store) == list(range(10, 20))


@pytest.mark.pyspark("4.1")
def test_the_checkpoint_is_readable_and_names_the_topic_id(spark: SparkSession, root: str, tmp_path: Path) -> None:
    store = make_topics(root)
    produce(store, 0, 10)

    run(spark, root, tmp_path / "checkpoint")

    text = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    ends = {str(each.partition): each.last_stable_offset for each in store.admin.offsets("in")}
    assert json.loads(text) == {
        "store_id": store.describe().store_id,
        "topics": {"in": {"topic_id": store.admin.describe_topic("in").topic_id, **ends}},
        "began": {"topics": {"in": dict.fromkeys(ends, 0)}},
    }
