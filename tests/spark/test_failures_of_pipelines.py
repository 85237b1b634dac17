"""A chain of three streaming queries whose driver and workers are killed at random moments stays exact."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

import eoslog
from tests.spark.driver_process import DriverProcess, StartDriver
from tests.spark.exactness import assert_exact
from tests.spark.streams import NUMBERS, copy_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOPS = (("in", "a"), ("a", "b"), ("b", "out"))
SNAPSHOT = {"isolationLevel": "snapshot", "maxOffsetsPerTrigger": "35"}
TRANSACTION = 10
"""Rows of one transaction of the producer: n // 10 tells which."""

CHAIN = """
    import sys, time
    from pathlib import Path
    from tests.spark.local_spark import start_session
    from tests.spark.streams import copy_stream
    from tests.spark.test_failures_of_pipelines import HOPS, SNAPSHOT

    directory, root, checkpoints = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    spark = start_session(directory)
    queries = {}

    def start(hop):
        # Planning needs workers too: if one of them was killed, the next round tries again.
        try:
            query = copy_stream(spark, root, checkpoints / hop[1], SNAPSHOT, topics=hop).start()
        except Exception as error:
            print("failed:", hop, error, flush=True)
            return
        queries[hop] = query
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.1)
        print("started:", hop, flush=True)

    while True:
        for hop in HOPS:
            query = queries.pop(hop, None)
            if query is not None and query.isActive:
                queries[hop] = query
                continue
            if query is not None:
                print("failed:", hop, query.exception(), flush=True)
            start(hop)
        time.sleep(0.1)
"""


class Pipeline:
    """The store, a producer that adds to it, and the driver of the chain, which is started again whenever it died."""

    def __init__(self, directory: Path, start_driver: StartDriver, seed: int) -> None:
        self.directory = directory
        self.store = eoslog.connect(str(directory / "store"))
        for topic in ("in", "a", "b", "out"):
            self.store.admin.create_topic(topic, partitions=2, schema=NUMBERS, key="n")
        self.random = random.Random(seed)
        self.produced = 0
        self.killed: Counter[str] = Counter()
        self._producer = self.store.producer("generator")
        self._producer.init_transactions()
        self._start_driver = start_driver
        self._driver: DriverProcess | None = None

    def produce(self, transactions: int) -> None:
        for _ in range(transactions):
            numbers = range(self.produced, self.produced + TRANSACTION)
            self._producer.begin_transaction()
            self._producer.send_table("in", pa.table({"n": pa.array(numbers, pa.int64())}, schema=NUMBERS))
            self._producer.commit_transaction()
            self.produced += TRANSACTION

    def driver(self) -> DriverProcess:
        """The driver, with all its queries started."""
        if self._driver is None:
            arguments = (str(self.directory / "driver"), self.store.url, str(self.directory / "checkpoints"))
            self._driver = self._start_driver(CHAIN, *arguments)
            deadline = time.monotonic() + 300
            while self._driver.output.count("started:") < len(HOPS):
                assert time.monotonic() < deadline, self._driver.output[-5000:]
                time.sleep(0.1)
        return self._driver

    def work_for_a_while(self) -> None:
        """Let the chain commit a few times, of what comes to it meanwhile, and a moment more."""
        driver = self.driver()
        self.produce(self.random.randint(4, 8))
        wanted = newest_slot(self.store) + self.random.randint(1, 5)
        deadline = time.monotonic() + 300
        while newest_slot(self.store) < wanted:
            assert time.monotonic() < deadline, driver.output[-5000:]
            time.sleep(0.02)
        time.sleep(self.random.uniform(0, 0.5))

    def kill(self, victim: str) -> None:
        """SIGKILL the driver's JVM, or one of its Python workers."""
        driver = self.driver()
        if victim == "jvm":
            jvm = driver.jvm()
            assert jvm is not None
            jvm.kill()
            driver.wait()
            self._driver = None
            self.killed[victim] += 1
        else:
            workers = [process for process in driver.processes() if is_worker(process)]
            # It may end by itself just now.
            with contextlib.suppress(psutil.NoSuchProcess):
                if workers:
                    self.random.choice(workers).kill()
                    self.killed[victim] += 1

    def finish(self, spark: SparkSession) -> None:
        """End the driver, and bring all that was produced to the chain's end in a session that nobody kills."""
        if self._driver is not None:
            self._driver.kill()
        for hop in HOPS:
            checkpoint = self.directory / "checkpoints" / hop[1]
            stream = copy_stream(spark, self.store.url, checkpoint, SNAPSHOT, topics=hop)
            stream.trigger(availableNow=True).start().awaitTermination()

    def assert_exact(self) -> None:
        for topic in ("a", "b", "out"):
            assert_exact(self.store, topic, range(self.produced))
            for commit in self.store.commits(topic):
                whole = Counter(n // TRANSACTION for n in commit.scan(topic).to_table()["n"].to_pylist())
                assert set(whole.values()) == {TRANSACTION}


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def is_worker(process: psutil.Process) -> bool:
    """Whether it is a Python process of Spark's, not the driver's own."""
    try:
        return process.name() != "java" and any("pyspark" in word for word in process.cmdline()[1:3])
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20])
def test_a_chain_of_three_queries_is_exact_under_random_kills(
    spark: SparkSession, start_driver: StartDriver, tmp_path: Path, seed: int
) -> None:
    pipeline = Pipeline(tmp_path, start_driver, seed)

    for victim in ("worker", "worker", "jvm", "worker", "worker", "jvm"):
        pipeline.work_for_a_while()
        pipeline.kill(victim)
    pipeline.produce(3)
    pipeline.finish(spark)

    pipeline.assert_exact()
    assert pipeline.killed == {"worker": 4, "jvm": 2}
