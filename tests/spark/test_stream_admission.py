"""What only Spark can tell of streams: limits pass through it, triggers overrule them, and one that waits stops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.streams import NUMBERS, copy_stream, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.pyspark("4.2")
@pytest.mark.parametrize(
    ("limits", "trigger", "batches"),
    [
        ({"maxFilesPerTrigger": "2"}, {"availableNow": True}, 3),
        pytest.param(
            {"maxBytesPerTrigger": "1", "maxFilesPerTrigger": "2"}, {"availableNow": True}, 6, marks=pytest.mark.slow
        ),
        pytest.param({"minOffsetsPerTrigger": "1000"}, {"availableNow": True}, 1, marks=pytest.mark.slow),
        ({"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, {"once": True}, 1),
    ],
)
def test_a_trigger_takes_what_the_limits_admit(
    spark: SparkSession, root: str, tmp_path: Path, limits: dict[str, str], trigger: dict[str, Any], batches: int
) -> None:
    store = make_topics(root)
    for first in (0, 20, 40):
        produce(store, first, first + 20)

    query = copy_stream(spark, root, tmp_path / "checkpoint", limits).trigger(**trigger).start()
    query.awaitTermination()

    assert len([progress for progress in query.recentProgress if progress.numInputRows]) == batches
    assert numbers(store) == list(range(60))


@pytest.mark.pyspark("4.1")
def test_a_running_stream_finds_new_topics_and_stops_while_it_waits(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    store = make_topics(root)
    store.admin.create_topic("in-1", schema=NUMBERS)
    rows = (
        spark.readStream.format("eoslog")
        .option("subscribePattern", "in-.*")
        .option("startingOffsets", "earliest")
        .load(root)
        .select("n")
    )
    writer = rows.writeStream.format("eoslog").option("topic", "out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(root)
    query.processAllAvailable()
    store.admin.create_topic("in-2", schema=NUMBERS)
    with store.producer() as producer:
        producer.send_table("in-2", pa.table({"n": [1, 2]}))
    query.processAllAvailable()
    assert numbers(store) == [1, 2]

    spark.conf.set("spark.sql.streaming.stopTimeout", "20s")  # it raises then
    try:
        query.stop()
    finally:
        spark.conf.unset("spark.sql.streaming.stopTimeout")

    progress = query.lastProgress
    assert progress is not None
    assert "in-2" in progress.sources[0].latestOffset
