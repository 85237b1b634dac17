"""Simulated batch writes: those of ``foreachBatch``, and backfills with and without a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord, EosLogError, RetriableError
from pyspark_eoslog.options import Options
from pyspark_eoslog.write.sink import EosLogWriter
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import PARTITIONS, SPARK, GaveUp, Service
from tests.simulation.spark_columns import KEY_OF, RECORDS
from tests.simulation.spark_engine import ROOT, Checkpoint, Driver, WorkerDied
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import Process, World


class SparkForeachBatch(SparkStream):
    """A query whose ``foreachBatch`` writes with the number of the micro-batch as its version."""

    changes_sink = False
    of_stream = False

    def writer(self, checkpoint: Checkpoint, batch_id: int) -> Any:
        options = {"path": ROOT, "topic": SPARK, "txnAppId": self.name, "txnVersion": str(batch_id)}
        return EosLogWriter(Options.of(options), RECORDS, False)


class SparkBackfill(Service):
    """Batch writes, one after the other. With a name each is run until it is known to be done; without, once."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._named = self.random.random() < 0.6
        self._version = 0
        self._pending: Work | None = None

    def incarnation(self, process: Process) -> None:
        if not self._named:
            self._pending = None
        while not self.world.stopping:
            self._pending = self._pending or self._new_work()
            self._write(process, self._pending)
            self.pause(process)

    def settle(self, process: Process) -> None:
        if self._named and self._pending is not None:
            self._write(process, self._pending)

    def _new_work(self) -> Work:
        work = self.ledger.begin(self.name)
        self._version += 1
        for partition in range(PARTITIONS[SPARK]):
            for _ in range(self.random.randrange(0, 4)):
                work.row(SPARK, partition)
        return work

    def options(self) -> dict[str, str]:
        """Of the sink, for the current work."""
        options = {"path": ROOT, "topic": SPARK}
        return options | {"transactionalId": self.name, "txnVersion": str(self._version)} if self._named else options

    def _write(self, process: Process, work: Work) -> None:
        tasks = self.random.choice((1, 2, 3))
        size = -(-len(work.rows) // tasks)

        def rows(task: int) -> Iterator[pa.RecordBatch]:
            part = work.rows[task * size : (task + 1) * size]
            keys = pa.array([KEY_OF[partition] for _, partition, _ in part], pa.binary())
            yield pa.record_batch([keys, pa.array([value for _, _, value in part], pa.binary())], ["key", "value"])

        options = self.options()
        driver = Driver(process, self.random, self.name)
        try:
            driver.write(lambda: EosLogWriter(Options.of(options), RECORDS, False), rows, tasks, {})
        except (RetriableError, WorkerDied) as error:
            raise GaveUp from error
        except EosLogError as error:
            if not self._named and not isinstance(error, CorruptRecord):
                work.outcome = Outcome.ABORTED
            raise
        work.outcome = Outcome.COMMITTED
        self._pending = None
