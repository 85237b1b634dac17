"""Simulated streaming queries that copy a topic: real readers and sinks, and what they promise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog.errors import CheckpointMismatch, ProducerFenced
from eoslog.store import Store
from pyspark_eoslog.options import Options
from pyspark_eoslog.write.sink import EosLogStreamWriter
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import IN, JOB, SPARK, GaveUp, Service
from tests.simulation.spark_columns import ARROW, KEY_OF, RECORDS, ROUTED
from tests.simulation.spark_engine import ROOT, Checkpoint, Rows, WorkerDied
from tests.simulation.spark_query import Query
from tests.simulation.world import Process, Violation, World

Written = tuple[str, int, bytes]


class SparkStream(Service):
    """A query that copies a topic: each row once and in order, whoever dies, also with two drivers on its checkpoint.

    Its sink may be changed from an option ``topic`` to rows that name their topics, and back.
    """

    changes_sink = True
    overwrite = False
    of_stream = True
    """Whether a sink commits it, not ``foreachBatch``."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self.checkpoints = [self.new_checkpoint(f"/{name}")]
        self.repeats = False
        """Whether a fresh start was taken, after which rows are there again."""
        self._routes = False
        self._planned: dict[tuple[str, int, str], list[Written]] = {}
        chooser = self.random
        self._source = {
            "subscribe": IN,
            "startingOffsets": "earliest",
            **chooser.choice(({}, {"isolationLevel": "snapshot"}, {"transactionConsistent": "true"})),
            **chooser.choice(({}, {"maxOffsetsPerTrigger": "3"}, {"maxFilesPerTrigger": "1"})),
        }

    def new_checkpoint(self, location: str) -> Checkpoint:
        run = f"{self.random.getrandbits(64):016x}"
        return Checkpoint(location, f"query-{run}", run)

    def incarnation(self, process: Process) -> None:
        if self.changes_sink and self.random.random() < 0.2:
            self._routes = not self._routes
            self.world.marks["spark: sink changed"] += 1
        self.run(process, self.choose_checkpoint(process))

    def choose_checkpoint(self, process: Process) -> Checkpoint:
        return self.checkpoints[0]

    def most_batches(self) -> float:
        """After how many micro-batches the user stops a run."""
        return math.inf

    def run(self, process: Process, checkpoint: Checkpoint) -> None:
        """One run of the query. Raises: GaveUp: it failed, as it may."""
        query = Query(self, process, checkpoint, most_batches=self.most_batches())
        try:
            query.run()
        except WorkerDied as error:
            raise GaveUp from error
        except CheckpointMismatch as error:
            if query.batch_id >= max(checkpoint.offsets):
                raise
            self.world.marks["spark: driver overtaken by another on its checkpoint"] += 1
            raise GaveUp from error
        except ProducerFenced:
            self.world.marks["spark: run fenced"] += 1
            raise

    def settle(self, process: Process) -> None:
        Query(self, process, self.checkpoints[0]).run()

    def check(self, store: Store) -> None:
        expected = Counter(self.to_be_copied(store))
        found = Counter(row["value"].partition(b"|")[2] for topic in (SPARK, JOB) for row in self._rows(store, topic))
        if self.repeats:
            expected, found = Counter(set(expected)), Counter(set(found))
        if expected != found:
            raise Violation(f"{self.name}: lost {expected - found}, more than once {found - expected}")
        if not self.repeats and "isolationLevel" not in self._source:
            self._check_order(store)

    def to_be_copied(self, store: Store) -> Sequence[bytes]:
        """The rows of the input that the query reads."""
        return [row["value"] for row in store.scan(IN, columns=["value"]).to_table().to_pylist()]

    def _check_order(self, store: Store) -> None:
        """Rows of a partition keep their order over all micro-batches."""
        for topic in (SPARK, JOB):
            last = [-1, -1]
            for row in self._rows(store, topic):
                offset = int(row["value"].partition(b"|")[0].partition(b"#")[2])
                if offset <= last[row["partition"]]:
                    raise Violation(f"{self.name}: offset {offset} of the input comes after {last[row['partition']]}")
                last[row["partition"]] = offset

    def _rows(self, store: Store, topic: str) -> Iterator[dict[str, Any]]:
        rows = store.scan(topic, columns=["partition", "offset", "value"]).to_table().to_pylist()
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
            if row["value"].startswith(self.name.encode() + b"."):
                yield row

    def source_options(self) -> dict[str, str]:
        return self._source

    def sink(self, checkpoint: Checkpoint) -> tuple[dict[str, str], StructType]:
        """The sink's options, and the columns that it is given."""
        options = {"path": ROOT, "checkpointLocation": checkpoint.location}
        if checkpoint.starts_anew_after is not None:
            options["startAnewAfter"] = checkpoint.starts_anew_after
        if self._routes:
            return options, ROUTED
        return options | {"topic": SPARK}, RECORDS

    def writer(self, checkpoint: Checkpoint, batch_id: int) -> Any:
        """What Spark makes to plan a micro-batch, and again to commit it."""
        options, schema = self.sink(checkpoint)
        return EosLogStreamWriter(Options.of(options), schema, self.overwrite)

    def work(self, checkpoint: Checkpoint, batch_id: int) -> Work:
        name = f"{self.name}.{checkpoint.generation}.{batch_id}"
        return self.ledger.works.setdefault(name, Work(name))

    def task_count(self, parts: Sequence[Any]) -> int:
        return max(1, len(parts))

    def output_topic(self, row: dict[str, Any], *, routes: bool) -> str:
        """The topic that a row of the input is copied to."""
        return JOB if routes and row["offset"] % 3 == 0 else SPARK

    def rows_of(self, query: Query, batch_id: int, parts: Sequence[Any], end: str, routes: bool) -> Rows:
        """What the tasks write; the ledger is told of it as soon as all have read their part."""
        work = self.work(query.checkpoint, batch_id)
        read: dict[int, list[Written]] = {}

        def rows(task: int) -> Iterator[pa.RecordBatch]:
            written: list[Written] = []
            columns: dict[str, list[Any]] = {"topic": [], "key": [], "value": []}
            for row in query.read(parts[task : task + 1]):
                topic = self.output_topic(row, routes=routes)
                value = b"%s#%d|%s" % (work.name.encode(), row["offset"], row["value"])
                written.append((topic, row["partition"], value))
                columns["topic"].append(topic)
                columns["key"].append(KEY_OF[row["partition"]])
                columns["value"].append(value)
            read[task] = written
            if len(read) == self.task_count(parts):
                self.remember(work, (query.checkpoint.generation, batch_id, f"{end} {routes}"), read)
            names = ["topic", "key", "value"] if routes else ["key", "value"]
            yield pa.record_batch([pa.array(columns[name], ARROW[name]) for name in names], names)

        return rows

    def remember(self, work: Work, plan: tuple[str, int, str], read: dict[int, list[Written]]) -> None:
        """Tell the ledger what a micro-batch is about to write. Raises: Violation: planned again, it gives others."""
        written = [row for task in sorted(read) for row in read[task]]
        known = self._planned.setdefault(plan, written)
        if [value.partition(b"#")[2] for _, _, value in known] != [value.partition(b"#")[2] for _, _, value in written]:
            raise Violation(f"{self.name}: micro-batch {plan[1]} gives {written} where it gave {known}")
        if "transactionConsistent" in self._source:
            self._check_whole(plan[1], written)
        if work.outcome is not Outcome.COMMITTED:
            work.alternatives.append(work.rows)
            work.rows = written

    def _check_whole(self, batch_id: int, written: Sequence[Written]) -> None:
        """A micro-batch holds all rows or none of each transaction. The producers of the input are transactional.

        Raises: Violation
        """
        shown = Counter(self.ledger.work_of(value.partition(b"|")[2]).name for _, _, value in written)
        for name, count in shown.items():
            there = sum(topic == IN for topic, _, _ in self.ledger.works[name].rows)
            if count != there:
                raise Violation(f"{self.name}: micro-batch {batch_id} shows {count} of the {there} rows of {name}")
            self.world.marks["spark: transaction in a consistent micro-batch"] += 1

    def acknowledged(self, work: Work) -> None:
        """A micro-batch was committed, now or before.

        After a fresh start that may tell what another copy of the checkpoint has committed as its own.
        """
        if not self.repeats:
            work.outcome = Outcome.COMMITTED
