"""A driver that dies at any named point of a commit, or sleeps through its replacement, leaves each row there once."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import eoslog
from tests.spark.driver_process import DriverProcess, StartDriver
from tests.spark.exactness import assert_exact
from tests.spark.local_spark import REPOSITORY
from tests.spark.streams import LIMIT, commits, copy_stream, make_topics, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPLOADED = "spark.task.files_uploaded"
BEFORE_SLOT = "log.slot.before_put"
AFTER_SLOT = "log.slot.claimed"
OF_CHECKPOINTS = (
    "segment.seal.files_written",
    "segment.seal.sealed",
    "segment.compact_files.files_written",
    "segment.compact_files.index_written",
    "segment.compact_files.replaced",
    "log.checkpoint.parts_written",
    "log.checkpoint.root_written",
)
POINTS = (UPLOADED, BEFORE_SLOT, AFTER_SLOT, *OF_CHECKPOINTS)
"""All that a Spark job comes to on its way to a commit, and behind it."""
OF_CONTENTION = {
    "log.replica.far_behind",
    "log.slot.lost",
    "log.checkpoint.overtaken",
    "segment.replacement.overtaken",
}
"""Only if processes of the job append at the same time. The simulation kills a process at each of them."""
REPLAY_FOUND = "spark.job.replay_found"
"""What it comes to instead, if it committed before."""
TOPIC_CREATED = "spark.topic.created"
"""Only with ``createTopic``: ``tests/unit/pyspark_eoslog/write/test_created_topics.py`` dies there."""

CHECKPOINT_AFTER_EACH_SLOT = {"EOSLOG_LOG__CHECKPOINT_SLOTS": "1"}
ROWS = 150

STREAM = """
    import sys
    from pathlib import Path
    from tests.spark.local_spark import start_session
    from tests.spark.streams import LIMIT, copy_stream

    directory, root, checkpoint = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    spark = start_session(directory)
    stream = copy_stream(spark, root, checkpoint, LIMIT)
    stream.trigger(availableNow=True).start().awaitTermination()
    print("not reached")
"""

FROM_THE_LATEST_ON = """
    import sys
    from pathlib import Path
    import eoslog
    from pyspark_eoslog.data_source import DefaultSource
    from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
    from tests.spark.local_spark import start_session
    from tests.spark.streams import LIMIT, produce

    directory, root, checkpoint = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    class Overtaken(EosLogStreamReader):
        def initialOffset(self):
            is_first = self._initial is None
            initial = super().initialOffset()
            if is_first:
                produce(eoslog.connect(root), 150, 200)
            return initial

    class OvertakenSource(DefaultSource):
        @classmethod
        def name(cls):
            return "overtaken"

        def streamReader(self, schema):
            return Overtaken(self._options(), schema)

    spark = start_session(directory)
    spark.dataSource.register(OvertakenSource)
    rows = spark.readStream.format("overtaken").option("topic", "in").option("startingOffsets", "latest").load(root)
    stream = rows.select("n").writeStream.format("eoslog").option("topic", "out")
    stream.option("checkpointLocation", checkpoint).option("path", root).start().awaitTermination()
    print("not reached")
"""
"""A stream whose source gets rows between the initial offset and the end of the first micro-batch."""

BATCH = """
    import sys
    from pathlib import Path
    from tests.spark.local_spark import start_session
    from tests.spark.test_failures_of_drivers import backfill

    directory, root = Path(sys.argv[1]), sys.argv[2]
    backfill(start_session(directory), root)
    print("not reached")
"""


def backfill(spark: SparkSession, root: str) -> None:
    """Write all numbers to the topic ``out`` in two tasks, as a job that may be run again."""
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id as n").write.format("eoslog").option("topic", "out")
    rows.option("transactionalId", "backfill").option("txnVersion", 1).mode("append").save(root)


def run_stream(spark: SparkSession, root: str, checkpoint: Path) -> None:
    copy_stream(spark, root, checkpoint, LIMIT).trigger(availableNow=True).start().awaitTermination()


class Victims:
    """A streaming query and a batch job, each with a store, an order and a driver of its own.

    The stream has three micro-batches. Segments can be sealed after each batch, those of the topic ``in`` at once.
    """

    def __init__(self, directory: Path, root: str, start_driver: StartDriver) -> None:
        self._directory = directory
        self._start_driver = start_driver
        self.roots = {kind: f"{root}/{kind}" for kind in ("stream", "batch")}
        for kind in self.roots:
            (directory / kind).mkdir()
        self.checkpoint = directory / "stream" / "checkpoint"
        config = eoslog.TopicConfig(segment_batches=1)
        self.stores = {kind: make_topics(root, config) for kind, root in self.roots.items()}
        for store in self.stores.values():
            produce(store, 0, ROWS)

    def order(self, kind: str) -> Path:
        return self._directory / kind / "order"

    def reached(self, kind: str) -> set[str]:
        """The crash points that a driver's workers have come to."""
        return set((self._directory / kind / "reached").read_text().split())

    def start(self, orders: dict[str, str], script: str | None = None, **environment: str) -> dict[str, DriverProcess]:
        """Start both drivers, or those that run another script, to do what they are told to."""
        drivers = {}
        for kind, order in orders.items():
            self.order(kind).write_text(order)
            drivers[kind] = self._start_driver(
                script or (STREAM if kind == "stream" else BATCH),
                str(self._directory / kind / "victim"),
                self.roots[kind],
                *([str(self.checkpoint)] if kind == "stream" else []),
                EOSLOG_TEST_CRASH=str(self.order(kind)),
                EOSLOG_TEST_REACHED=str(self._directory / kind / "reached"),
                **environment,
            )
        return drivers

    def assert_killed(self, drivers: dict[str, DriverProcess]) -> None:
        """Wait until all are dead, and dead because they did what they were told to."""
        for kind, driver in drivers.items():
            assert driver.wait() != 0
            assert "not reached" not in driver.output
            assert not self.order(kind).exists()

    def run_again(self, spark: SparkSession) -> None:
        """Run both jobs to their end, in a session that nobody kills."""
        run_stream(spark, self.roots["stream"], self.checkpoint)
        backfill(spark, self.roots["batch"])

    def assert_exact(self) -> None:
        for store in self.stores.values():
            assert_exact(store, "out", range(ROWS))


@pytest.fixture
def victims(tmp_path: Path, root: str, start_driver: StartDriver) -> Victims:
    return Victims(tmp_path, root, start_driver)


@pytest.mark.pyspark("4.2")
@pytest.mark.parametrize(
    ("root", "stream_order", "stream_commits", "batch_order", "batch_commits"),
    [
        pytest.param(None, f"{UPLOADED} 1", 0, f"{UPLOADED} 1", 0, marks=pytest.mark.slow),
        pytest.param(None, f"{BEFORE_SLOT} 2", 1, f"{BEFORE_SLOT} 2", 0, marks=pytest.mark.slow),
        pytest.param(None, f"{AFTER_SLOT} 2", 2, f"{AFTER_SLOT} 2", 1, marks=pytest.mark.slow),
        pytest.param(None, f"{AFTER_SLOT} 1", 1, f"{AFTER_SLOT} 1", 0, marks=pytest.mark.slow),
        pytest.param("s3", f"{AFTER_SLOT} 2", 2, f"{AFTER_SLOT} 2", 1, marks=pytest.mark.slow),
    ],
    indirect=["root"],
)
def test_rows_are_exact_after_a_kill_during_a_commit(
    spark: SparkSession,
    victims: Victims,
    stream_order: str,
    stream_commits: int,
    batch_order: str,
    batch_commits: int,
) -> None:
    """The batch job's first slot is that of its init."""
    drivers = victims.start({"stream": f"{stream_order} kill-jvm", "batch": f"{batch_order} kill-jvm"})

    victims.assert_killed(drivers)
    assert commits(victims.stores["stream"]) == stream_commits
    assert commits(victims.stores["batch"]) == batch_commits
    victims.run_again(spark)

    victims.assert_exact()


@pytest.mark.slow
def test_rows_are_exact_after_a_kill_on_finding_work_done(spark: SparkSession, victims: Victims) -> None:
    victims.assert_killed(victims.start(dict.fromkeys(("stream", "batch"), f"{AFTER_SLOT} 2 kill-jvm")))

    victims.assert_killed(victims.start(dict.fromkeys(("stream", "batch"), f"{REPLAY_FOUND} 1 kill-jvm")))
    assert [commits(store) for store in victims.stores.values()] == [2, 1]
    victims.run_again(spark)

    victims.assert_exact()


@pytest.mark.slow
@pytest.mark.parametrize("point", [UPLOADED])
def test_a_kill_in_the_first_micro_batch_from_latest_loses_nothing(
    spark: SparkSession, victims: Victims, point: str
) -> None:
    """Spark asks for the initial offset again; the rows that came before the end of the micro-batch are in it."""
    drivers = victims.start({"stream": f"{point} 1 kill-jvm"}, FROM_THE_LATEST_ON)
    victims.assert_killed(drivers)
    assert (victims.checkpoint / "offsets" / "0").exists()
    assert not (victims.checkpoint / "commits" / "0").exists()
    produce(victims.stores["stream"], ROWS + 50, ROWS + 80)

    stream = copy_stream(spark, victims.roots["stream"], victims.checkpoint, {"startingOffsets": "latest"})
    stream.trigger(availableNow=True).start().awaitTermination()

    assert_exact(victims.stores["stream"], "out", range(ROWS, ROWS + 80))


@pytest.mark.slow
@pytest.mark.parametrize("point", OF_CHECKPOINTS)
def test_rows_are_exact_after_a_kill_while_writing_a_checkpoint(
    spark: SparkSession, victims: Victims, point: str
) -> None:
    """Checkpoints are written by whoever finds that one is due, readers too."""
    drivers = victims.start({"stream": f"{point} 1 kill-jvm"}, **CHECKPOINT_AFTER_EACH_SLOT)

    victims.assert_killed(drivers)
    victims.run_again(spark)

    victims.assert_exact()


@pytest.mark.slow
def test_no_crash_point_of_a_commit_is_left_out(victims: Victims) -> None:
    """Points have been added that neither job dies at: add them to ``POINTS`` and to the test above."""
    drivers = victims.start(dict.fromkeys(("stream", "batch"), "none 1 raise"), **CHECKPOINT_AFTER_EACH_SLOT)
    for driver in drivers.values():
        assert driver.wait() == 0, driver.output

    assert (victims.reached("stream") | victims.reached("batch")) - OF_CONTENTION == set(POINTS)
    sources = (REPOSITORY / "spark_ext").rglob("*.py")
    in_spark_ext = {point for path in sources for point in re.findall(r'\.reached\(\s*"([^"]+)"', path.read_text())}
    assert in_spark_ext <= {*POINTS, REPLAY_FOUND, TOPIC_CREATED}
    victims.assert_exact()


@pytest.mark.slow
def test_a_driver_that_slept_through_its_replacement_commits_nothing_and_says_why(
    spark: SparkSession, victims: Victims
) -> None:
    drivers = victims.start({"stream": f"{BEFORE_SLOT} 2 stop-jvm", "batch": f"{UPLOADED} 1 stop-jvm"})
    for kind, driver in drivers.items():
        wait_until_stopped(driver, victims.order(kind))
    victims.run_again(spark)
    slots = [newest_slot(store) for store in victims.stores.values()]

    for driver in drivers.values():
        wake(driver)

    for driver in drivers.values():
        assert driver.wait() != 0
        assert "not reached" not in driver.output
        assert "[EOSLOG_PRODUCER_FENCED]" in driver.output, driver.output
        assert "another run has taken this job over" in driver.output, driver.output
    assert [newest_slot(store) for store in victims.stores.values()] == slots
    victims.assert_exact()


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def stopped(driver: DriverProcess) -> list[psutil.Process]:
    return [process for process in driver.processes() if process.info["status"] == psutil.STATUS_STOPPED]


def wait_until_stopped(driver: DriverProcess, order: Path) -> None:
    """Wait until the driver's JVM and the worker that obeyed the order have stopped."""
    deadline = time.monotonic() + 300
    while order.exists() or len(stopped(driver)) < 2:
        assert time.monotonic() < deadline, driver.output
        time.sleep(0.1)


def wake(driver: DriverProcess) -> None:
    for process in stopped(driver):
        process.send_signal(signal.SIGCONT)
