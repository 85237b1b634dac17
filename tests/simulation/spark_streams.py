"""Simulated streaming queries: real readers and sinks, Spark's order of steps, and checkpoints that users lose."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from eoslog.client.store import Store
from eoslog.errors import CheckpointMismatch, ProducerFenced
from eoslog.rules.partitioner import partitions_for_key_columns
from pyspark_eoslog.options import Options
from pyspark_eoslog.stream.reader import EosLogStreamReader
from pyspark_eoslog.worker import acting_as
from pyspark_eoslog.write.sink import EosLogStreamWriter, _job_named_after
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import IN, JOB, SPARK, TOTALS, GaveUp, Service, open_store
from tests.simulation.spark_engine import Checkpoint, Driver, Rows, SparkWorker, WorkerDied
from tests.simulation.world import Process, Violation, World

ROOT = "sim://store"
SOURCE = StructType(
    [StructField("value", BinaryType()), StructField("partition", IntegerType()), StructField("offset", LongType())]
)
RECORDS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
ROUTED = StructType([StructField("topic", StringType()), *RECORDS.fields])
_ARROW = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary()}
_SOME_KEYS = [b"%d" % number for number in range(20)]
_PLACES = list(partitions_for_key_columns([pa.array(_SOME_KEYS, pa.binary())], 2))
KEY_OF = [_SOME_KEYS[_PLACES.index(partition)] for partition in range(2)]
"""A key whose rows go to each partition of a topic of two."""
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
        token = f"{self.random.getrandbits(64):016x}"
        return Checkpoint(location, f"query-{token}", token)

    def incarnation(self, process: Process) -> None:
        if self.changes_sink and self.random.random() < 0.2:
            self._routes = not self._routes
            self.world.marks["spark: sink changed"] += 1
        self.run(process, self.choose_checkpoint(process))

    def choose_checkpoint(self, process: Process) -> Checkpoint:
        return self.checkpoints[0]

    def run(self, process: Process, checkpoint: Checkpoint) -> None:
        """One run of the query. Raises: GaveUp: it failed, as it may."""
        query = Query(self, process, checkpoint)
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
        rows = store.scan(IN, columns=["value"]).to_table().to_pylist()
        expected = Counter(row["value"] for row in rows)
        found = Counter(row["value"].partition(b"|")[2] for topic in (SPARK, JOB) for row in self._rows(store, topic))
        if self.repeats:
            expected, found = Counter(set(expected)), Counter(set(found))
        if expected != found:
            raise Violation(f"{self.name}: lost {expected - found}, more than once {found - expected}")
        if not self.repeats and "isolationLevel" not in self._source:
            self._check_order(store)

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

    def rows_of(self, query: Query, batch_id: int, parts: Sequence[Any], end: str, routes: bool) -> Rows:
        """What the tasks write; the ledger is told of it as soon as all have read their part."""
        work = self.work(query.checkpoint, batch_id)
        read: dict[int, list[Written]] = {}

        def rows(task: int) -> Iterator[pa.RecordBatch]:
            written: list[Written] = []
            columns: dict[str, list[Any]] = {"topic": [], "key": [], "value": []}
            for row in query.read(parts[task : task + 1]):
                topic = JOB if routes and row["offset"] % 3 == 0 else SPARK
                value = b"%s#%d|%s" % (work.name.encode(), row["offset"], row["value"])
                written.append((topic, row["partition"], value))
                columns["topic"].append(topic)
                columns["key"].append(KEY_OF[row["partition"]])
                columns["value"].append(value)
            read[task] = written
            if len(read) == self.task_count(parts):
                self.remember(work, (query.checkpoint.generation, batch_id, f"{end} {routes}"), read)
            names = ["topic", "key", "value"] if routes else ["key", "value"]
            yield pa.record_batch([pa.array(columns[name], _ARROW[name]) for name in names], names)

        return rows

    def remember(self, work: Work, plan: tuple[str, int, str], read: dict[int, list[Written]]) -> None:
        """Tell the ledger what a micro-batch is about to write. Raises: Violation: planned again, it gives others."""
        written = [row for task in sorted(read) for row in read[task]]
        known = self._planned.setdefault(plan, written)
        if [value.partition(b"#")[2] for _, _, value in known] != [value.partition(b"#")[2] for _, _, value in written]:
            raise Violation(f"{self.name}: micro-batch {plan[1]} gives {written} where it gave {known}")
        if work.outcome is not Outcome.COMMITTED:
            work.alternatives.append(work.rows)
            work.rows = written

    def acknowledged(self, work: Work) -> None:
        """A micro-batch was committed, now or before.

        After a fresh start that may tell what another copy of the checkpoint has committed as its own.
        """
        if not self.repeats:
            work.outcome = Outcome.COMMITTED


class SparkMoved(SparkStream):
    """A query whose checkpoint is moved, copied, restored from older copies, and lost.

    What is refused goes on from another copy, or as the message says; nothing is ever skipped, or there twice, unless
    the user asked for it.
    """

    changes_sink = False

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._source = {"subscribe": IN, "startingOffsets": "earliest"}
        self._takes_fresh_starts = self.random.random() < 0.4

    def choose_checkpoint(self, process: Process) -> Checkpoint:
        chance = self.random.random()
        place = f"/{self.name}/{len(self.checkpoints)}"
        if chance < 0.15:
            self.checkpoints.append(self.random.choice(self.checkpoints).copy(place))
            self.world.marks["spark: checkpoint copied"] += 1
        elif chance < 0.3:
            copy = self.random.choice(self.checkpoints).copy(place)
            copy.lose_newest()
            self.checkpoints.append(copy)
            self.world.marks["spark: checkpoint lost its newest entry"] += 1
        elif chance < 0.4:
            location = self.random.choice(self.checkpoints).location
            tokens = open_store(process).read(lambda state, _: list(state.tokens))
            if any(key.transactional_id == _job_named_after(location) for key in tokens):
                self.checkpoints.append(self.new_checkpoint(location))
                self.world.marks["spark: checkpoint deleted"] += 1
        return self.random.choice(self.checkpoints)

    def run(self, process: Process, checkpoint: Checkpoint) -> None:
        try:
            super().run(process, checkpoint)
        except CheckpointMismatch as error:
            self.world.marks["spark: mismatch told"] += 1
            advice = re.search(r"startAnewAfter='([^']+)'", str(error))
            if advice and self._takes_fresh_starts and self.random.random() < 0.3:
                checkpoint.starts_anew_after = advice.group(1)
                checkpoint.generation = f"{self.random.getrandbits(64):016x}"
                self.repeats = True
                self.world.marks["spark: fresh start asked for"] += 1
            raise GaveUp from error

    def settle(self, process: Process) -> None:
        """Of all copies, the one that committed last goes on."""
        for checkpoint in reversed(self.checkpoints):
            try:
                Query(self, process, checkpoint).run()
                return
            except CheckpointMismatch:
                continue
        raise Violation(f"{self.name}: no copy of the checkpoint goes on")


class SparkCount(SparkStream):
    """A query in complete mode: each micro-batch replaces the number of rows so far by a newer one."""

    changes_sink = False
    overwrite = True

    def sink(self, checkpoint: Checkpoint) -> tuple[dict[str, str], StructType]:
        return {"path": ROOT, "checkpointLocation": checkpoint.location, "topic": TOTALS}, RECORDS

    def task_count(self, parts: Sequence[Any]) -> int:
        return 1

    def rows_of(self, query: Query, batch_id: int, parts: Sequence[Any], end: str, routes: bool) -> Rows:
        work = self.work(query.checkpoint, batch_id)

        def rows(task: int) -> Iterator[pa.RecordBatch]:
            before = query.checkpoint.state.get(batch_id - 1, 0)
            total = before + sum(1 for _ in query.read(parts))
            known = query.checkpoint.state.setdefault(batch_id, total)
            if known != total:
                raise Violation(f"{self.name}: micro-batch {batch_id} counts {total} where it counted {known}")
            value = b"%s#0|%d" % (work.name.encode(), total)
            work.rows = [(TOTALS, 0, value)]
            yield pa.record_batch([pa.array([None], pa.binary()), pa.array([value], pa.binary())], ["key", "value"])

        return rows

    def check(self, store: Store) -> None:
        total = store.scan(IN, columns=["value"]).to_table().num_rows
        found = [int(row["value"].partition(b"|")[2]) for row in self._rows(store, TOTALS)]
        others = store.scan(TOTALS, columns=["value"]).to_table().num_rows
        if found not in ([total], []) or not (found or others):
            raise Violation(f"{self.name}: counted {found} of {total} rows")


class Query:
    """One run of a query, as Spark's ``MicroBatchExecution`` does it."""

    def __init__(self, service: SparkStream, process: Process, checkpoint: Checkpoint) -> None:
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
        self._run_id = f"run-{self._random.getrandbits(64):016x}"

    def run(self) -> None:
        """Until the world stops; or when it has stopped, until there is no more to read."""
        checkpoint, world = self.checkpoint, self._process.world
        batch_id = max(checkpoint.offsets, default=-1)
        end = checkpoint.offsets.get(batch_id)
        if batch_id < 0 or max(checkpoint.commits, default=-1) == batch_id:
            batch_id, start, end = batch_id + 1, end, None
        else:
            start = checkpoint.offsets.get(batch_id - 1)
            world.marks["spark: micro-batch planned before run again"] += 1
        finishing = world.stopping
        while finishing or not world.stopping:
            if end is None:
                end = self._next_end(start)
                if end is None:
                    if finishing:
                        return
                    self._service.pause(self._process)
                    continue
                self._driver.stop("offset log")
                checkpoint.write_offsets(batch_id, end)
            self._driver.stop("planned")
            self._run_batch(batch_id, start, end)
            self._driver.stop("commit log")
            if batch_id in checkpoint.commits:
                raise GaveUp("concurrent updates of the commit log")
            checkpoint.commits.add(batch_id)
            batch_id, start, end = batch_id + 1, end, None
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
