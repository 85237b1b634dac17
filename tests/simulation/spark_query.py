"""One run of a simulated streaming query: Spark's steps, in Spark's order, on a checkpoint that outlives it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_eoslog.options import Options
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from pyspark_eoslog.worker import acting_as
from tests.simulation.service import GaveUp
from tests.simulation.spark_columns import ROUTED, SOURCE
from tests.simulation.spark_engine import ROOT, Beginning, Checkpoint, Driver, SparkWorker
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.spark_streams import SparkStream


class Query:
    """One run of a query, as Spark's ``MicroBatchExecution`` does it."""

    def __init__(
        self, service: SparkStream, process: Process, checkpoint: Checkpoint, *, most_batches: float = math.inf
    ) -> None:
        """
        Args:
            most_batches: after so many its user stops it.
        """
        self.checkpoint = checkpoint
        self._service = service
        self._process = process
        self._random = service.random
        self._driver = Driver(process, self._random, service.name)
        self._source = SparkWorker(process)
        self._options = Options.of({"path": ROOT, **service.source_options()})
        self._reader = EosLogStreamReader(self._options, SOURCE)
        self.batch_id = -1
        """What is run now."""
        self._earliest_slot = max(process.world.every_slot)
        self._batches_left = most_batches
        self._run_id = f"run-{self._random.getrandbits(64):016x}"

    def run(self) -> None:
        """Until its user or the world stops it; or when the world has stopped, until there is no more to read."""
        checkpoint, world = self.checkpoint, self._process.world
        batch_id = max(checkpoint.offsets, default=-1)
        end = checkpoint.offsets.get(batch_id)
        if batch_id < 0 or max(checkpoint.commits, default=-1) == batch_id:
            batch_id, start, end = batch_id + 1, end, None
        else:
            start = checkpoint.offsets.get(batch_id - 1)
            world.marks["spark: micro-batch planned before run again"] += 1
        finishing = world.stopping
        while self._batches_left > 0 and (finishing or not world.stopping):
            if end is None:
                end = self._next_end(start)
                if end is None:
                    if finishing:
                        return
                    self._service.pause(self._process)
                    continue
                self._driver.stop("offset log")
                checkpoint.write_offsets(batch_id, end)
                if start is None:
                    initial = json.dumps(self._reader.initialOffset())
                    checkpoint.began = Beginning(initial, self._earliest_slot, max(world.every_slot))
            self._driver.stop("planned")
            self._run_batch(batch_id, start, end)
            self._driver.stop("commit log")
            if batch_id in checkpoint.commits:
                raise GaveUp("concurrent updates of the commit log")
            checkpoint.commits.add(batch_id)
            batch_id, start, end = batch_id + 1, end, None
            self._batches_left -= 1
            if not finishing:
                self._service.pause(self._process, 1_000)

    def read(self, parts: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """The rows of some tasks, within the task that writes them."""
        for part in parts:
            for batch in self._reader.read(part):
                yield from batch.to_pylist()

    def _next_end(self, start: str | None) -> str | None:
        with acting_as(self._source):
            begin = self._reader.initialOffset() if start is None else json.loads(start)
            end = json.dumps(self._reader.latestOffset(begin, self._reader.getDefaultReadLimit()))
        return None if end == start else end

    def _run_batch(self, batch_id: int, start: str | None, end: str) -> None:
        self.batch_id = batch_id
        with acting_as(self._source):
            begin = self._reader.initialOffset() if start is None else json.loads(start)
            parts = self._reader.partitions(begin, json.loads(end))
        if start is None and self.checkpoint.began and json.dumps(begin) != self.checkpoint.began.offsets:
            self._process.world.marks["spark: another beginning told than was planned from"] += 1
        _, schema = self._service.sink(self.checkpoint)
        work = self._service.work(self.checkpoint, batch_id)
        properties = {
            "sql.streaming.queryId": self.checkpoint.query_id,
            "streaming.sql.batchId": str(batch_id),
            "spark.jobGroup.id": self._run_id,
        }
        self._driver.write(
            lambda: self._service.writer(self.checkpoint, batch_id),
            self._service.rows_of(self, batch_id, parts, end, schema is ROUTED),
            self._service.task_count(parts),
            properties,
            batch_id if self._service.of_stream else None,
        )
        if not self._service.overwrite:
            self._service.acknowledged(work)
