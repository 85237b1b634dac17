"""A stream whose driver dies in one micro-batch after another, and between two, leaves each row there once.

No limit parts the stream, so this runs with every release of PySpark: the rows of a micro-batch come while it runs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
from pyspark_eoslog.pyspark_version import is_at_least
from tests.spark.driver_process import StartDriver
from tests.spark.exactness import assert_exact
from tests.spark.streams import commits, copy_stream, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

CHUNK = 40
EARLIER = 1000
"""The first number of the rows from before the stream, which it does not read."""
IDLE = "idle"
AT_START = -1
DEATHS = [
    (0, "spark.task.files_uploaded"),
    (1, "log.slot.claimed"),
    (AT_START, "spark.job.replay_found"),
    (2, "log.slot.before_put"),
    (3, IDLE),
]
"""Where driver after driver dies: the chunk of rows in whose micro-batch, and the crash point."""
SLOTS = {"eoslog": 1, "foreachBatch": 2}
"""How many slots a micro-batch takes. A named batch takes over its job before it commits."""

DRIVER = """
    import sys
    from pathlib import Path
    from tests.spark.local_spark import start_session
    from tests.spark.test_failures_of_micro_batches import run

    directory, root, checkpoint, sink, order, chunk, point = sys.argv[1:]
    run(start_session(Path(directory)), root, Path(checkpoint), sink, Path(order), (int(chunk), point))
    print("not reached")
"""


def stream(spark: SparkSession, root: str, checkpoint: Path, sink: str) -> DataStreamWriter:
    """The stream from ``in`` to ``out``, from the end that it finds at its first start."""

    def write(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("eoslog").option("topic", "out")
        writer.options(transactionalId="copy", txnVersion=batch_id).mode("append").save(root)

    if sink == "eoslog":
        return copy_stream(spark, root, checkpoint, {"startingOffsets": "latest"})
    rows = spark.readStream.format("eoslog").option("topic", "in").load(root).select("n")
    return rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)


def chunks(store: eoslog.Store) -> int:
    """How many chunks of rows the topic ``in`` has had since the stream began."""
    return sum(number < EARLIER for number in numbers(store, "in")) // CHUNK


def run(spark: SparkSession, root: str, checkpoint: Path, sink: str, order: Path, death: tuple[int, str]) -> None:
    """Run the stream from chunk to chunk, each in a micro-batch of its own, until the driver dies."""
    store, (last, point) = eoslog.connect(root), death
    command = f"{point} {SLOTS[sink] if point.startswith('log.slot') else 1} kill-jvm"
    if last == AT_START:
        order.write_text(command)
    query = stream(spark, root, checkpoint, sink).start()
    query.processAllAvailable()
    for chunk in range(chunks(store), last + 1):
        if chunk == last and point != IDLE:
            order.write_text(command)
        produce(store, chunk * CHUNK, (chunk + 1) * CHUNK)
        query.processAllAvailable()
    if point == IDLE:
        gateway: Any = spark.sparkContext._gateway
        os.kill(gateway.proc.pid, signal.SIGKILL)
        query.processAllAvailable()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sink",
    [
        pytest.param("eoslog", marks=[pytest.mark.pyspark("4.1"), pytest.mark.slow]),
        pytest.param("foreachBatch", marks=[pytest.mark.slow] if is_at_least(4, 1) else []),
    ],
)
def test_rows_are_exact_after_kills_in_and_between_micro_batches(
    spark: SparkSession, root: str, tmp_path: Path, start_driver: StartDriver, sink: str
) -> None:
    checkpoint, order = tmp_path / "checkpoint", tmp_path / "order"
    store = make_topics(root)
    produce(store, EARLIER, EARLIER + CHUNK)

    committed = []
    for number, (chunk, point) in enumerate(DEATHS):
        directory = str(tmp_path / f"victim-{number}")
        arguments = (directory, root, str(checkpoint), sink, str(order), str(chunk), point)
        driver = start_driver(DRIVER, *arguments, EOSLOG_TEST_CRASH=str(order))
        assert driver.wait() != 0
        assert "not reached" not in driver.output
        assert not order.exists(), driver.output
        committed.append(commits(store))
    produce(store, chunks(store) * CHUNK, (chunks(store) + 1) * CHUNK)
    query = stream(spark, root, checkpoint, sink).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()

    assert committed == [0, 2, 2, 2, 4]
    assert commits(store) == 5
    assert_exact(store, "out", range(5 * CHUNK))
