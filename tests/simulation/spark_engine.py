"""What Spark's engine does around the data source: checkpoints, worker processes, task attempts, and jobs that fail.

Each call of Spark to Python runs in a worker process. A task is tried again when it fails, and may be tried twice at
once; an attempt that nobody waits for any more goes on, as does a commit whose driver died. What travels is pickled.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from eoslog.errors import EosLogError
from eoslog.storage.object_store import ObjectStore
from eoslog.store import Store
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.worker import Worker, acting_as
from tests.simulation.service import GaveUp, open_store
from tests.simulation.store import SimulatedEnvironment, SimulatedStore
from tests.simulation.world import Process

T = TypeVar("T")
ROOT = "sim://store"
_MOST_ATTEMPTS = 4
Rows = Callable[[int], Iterator[pa.RecordBatch]]
"""What a task writes, by its number."""


class SparkWorker(Worker):
    """A Python worker: it may serve many calls, and holds stores between them."""

    def __init__(self, process: Process, *, only_commits: bool = False) -> None:
        super().__init__(SimulatedEnvironment(process))
        self._process = process
        self._only_commits = only_commits

    @property
    def only_commits(self) -> bool:
        return self._only_commits

    def connect(self, location: StoreLocation) -> Store:
        return open_store(self._process)

    def open_object_store(self, location: StoreLocation) -> ObjectStore:
        return SimulatedStore(self._process, self.environment)


class Beginning(NamedTuple):
    """Where the first micro-batch that was written down began."""

    offsets: str
    earliest_slot: int
    """The newest slot when its run began."""
    latest_slot: int
    """The newest slot when it was written down."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query on a file system that creates each file once."""

    location: str
    query_id: str
    generation: str
    """Names the work that counts as one: after a fresh start the same micro-batches are work anew."""
    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    state: dict[int, int] = field(default_factory=dict)
    """Of a query that counts: the rows so far, by micro-batch."""
    starts_anew_after: str | None = None
    began: Beginning | None = None

    def copy(self, location: str) -> Checkpoint:
        return Checkpoint(
            location,
            self.query_id,
            self.generation,
            dict(self.offsets),
            set(self.commits),
            dict(self.state),
            self.starts_anew_after,
            self.began,
        )

    def write_offsets(self, batch_id: int, end: str) -> None:
        """Raises: GaveUp: another driver has planned this micro-batch."""
        if self.offsets.setdefault(batch_id, end) != end:
            raise GaveUp("concurrent updates of the offset log")

    def lose_newest(self) -> None:
        """The newest entries are gone, as in a copy that is older by one micro-batch."""
        if self.offsets:
            newest = max(self.offsets)
            del self.offsets[newest]
            self.commits.discard(newest)


class WorkerDied(Exception):
    """The worker of a call ended before the call did."""


class Waiting:
    """A process that looks again and again whether others have ended.

    A call may stand still for a day, so the time between two looks grows: the wait must end within few steps.
    """

    def __init__(self, process: Process, chooser: random.Random) -> None:
        self._process = process
        self._chooser = chooser
        self._since_ms = process.world.time_ms

    def sleep(self) -> None:
        waited_ms = self._process.world.time_ms - self._since_ms
        self._process.sleep(max(self._chooser.choice((5, 20, 100)), waited_ms // 10))


class Call(Generic[T]):
    """A call in a worker process of its own. Who made it may die meanwhile: it goes on."""

    def __init__(self, caller: Process, name: str, call: Callable[[Process], T]) -> None:
        self.ended = False
        self.result: T | None = None
        self.error: Exception = WorkerDied(name)
        self.succeeded = False
        self._call = call
        self._caller = caller
        caller.world.spawn(name, self._run)

    def wait(self, chooser: random.Random) -> T:
        """The answer. Raises: Exception: the call's error, or WorkerDied."""
        waiting = Waiting(self._caller, chooser)
        while not self.ended:
            waiting.sleep()
        if not self.succeeded:
            raise self.error
        return self.result  # type: ignore[return-value]

    def _run(self, process: Process) -> None:
        try:
            self.result = self._call(process)
            self.succeeded = True
        except EosLogError as error:
            self.error = WorkerDied("a read was cut short") if process.cut_reads else error
        except WorkerDied as error:
            self.error = error
        finally:
            self.ended = True


class Tasks:
    """The tasks of one job: attempts write, and the messages of one attempt each go to the driver."""

    def __init__(self, driver: Process, chooser: random.Random, name: str, writer: Any, properties: dict[str, str]):
        self._driver = driver
        self._chooser = chooser
        self._name = name
        self._writer = pickle.dumps(writer)
        self._properties = properties
        self._lost = -1
        """The task whose attempts all come to nothing."""
        self.ended = ""
        """How the job ended, for attempts that go on."""

    def run(self, rows: Rows, count: int) -> tuple[list[Any], Exception | None]:
        """The messages, null for a task that failed too often, and why the job failed."""
        if self._driver.happens("task's workers lost", self._driver.world.faults.lost_worker):
            self._lost = self._chooser.randrange(count)
        waiting = {task: [self._attempt(task, rows)] for task in range(count)}
        messages: list[Any] = [None] * count
        for task in range(count):
            if self._chooser.random() < 0.3:
                waiting[task].append(self._attempt(task, rows))
        for task, attempts in waiting.items():
            tried = len(attempts)
            pause = Waiting(self._driver, self._chooser)
            while messages[task] is None:
                done = next((each for each in attempts if each.ended), None)
                if done is None:
                    pause.sleep()
                elif done.succeeded:
                    assert done.result is not None
                    messages[task] = pickle.loads(done.result)
                else:
                    attempts.remove(done)
                    if tried == _MOST_ATTEMPTS:
                        return messages, done.error
                    if not attempts:
                        tried += 1
                        attempts.append(self._attempt(task, rows))
                        self._driver.world.marks["spark: task tried again"] += 1
        return messages, None

    def _attempt(self, task: int, rows: Rows) -> Call[bytes]:
        return Call(self._driver, f"{self._name}.task{task}", lambda process: self._write(process, task, rows))

    def _write(self, process: Process, task: int, rows: Rows) -> bytes:
        is_lost = task == self._lost
        if not is_lost:
            process.sleep(self._chooser.choice((1, 1, 50, 3_000)))
        elif self._chooser.random() < 0.5:
            raise WorkerDied(f"{self._name}: the worker of task {task} was lost before it wrote")
        with acting_as(SparkWorker(process)):
            writer = pickle.loads(self._writer)
            batches = rows(task)
            TaskContext._setTaskContext(None)
            TaskContext(partitionId=task, localProperties=self._properties)
            message = pickle.dumps(writer.write(batches))
        if self.ended:
            process.world.marks[f"spark: attempt went on after the {self.ended}"] += 1
        if is_lost:
            raise WorkerDied(f"{self._name}: the worker of task {task} was lost when it had written")
        return message


class Driver:
    """The driver of one run: the workers that its JVM keeps for planning and committing."""

    def __init__(self, process: Process, chooser: random.Random, name: str) -> None:
        self.process = process
        self.random = chooser
        self.name = name
        self.planner = SparkWorker(process)
        self._committer = SparkWorker(process, only_commits=True)

    def stop(self, what: str) -> None:
        """A moment in which the driver may be paused or killed."""
        self.process.stop("spark", what)

    def write(
        self,
        make: Callable[[], Any],
        rows: Rows,
        count: int,
        properties: dict[str, str],
        batch_id: int | None = None,
    ) -> None:
        """One job: planned, run, and committed or aborted.

        Args:
            make: makes the writer, in whatever worker plans or commits.
            batch_id: the micro-batch; then the writer that commits is made anew, as that of a batch is not.

        Raises:
            Exception: what the commit or the tasks failed with.
        """
        marks = self.process.world.marks
        with acting_as(self.planner):
            writer = make()
        tasks = Tasks(self.process, self.random, self.name, writer, properties)
        messages, failure = tasks.run(rows, count)
        if batch_id is None:
            packed = pickle.dumps(writer)

            def remake() -> Any:
                return pickle.loads(packed)
        else:
            remake = make
        arguments = () if batch_id is None else (batch_id,)
        if failure is not None:
            tasks.ended = "abort"
            self._in_new_worker(lambda: remake().abort(messages, *arguments))
            marks["spark: job aborted"] += 1
            raise failure
        self.stop("before the commit")
        try:
            if self.random.random() < 0.3:
                packed_messages = pickle.dumps(messages)
                Call(
                    self.process,
                    f"{self.name}.commit",
                    lambda process: self._commit(process, remake, packed_messages, arguments),
                ).wait(self.random)
            else:
                with acting_as(self._committer):
                    remake().commit(messages, *arguments)
            tasks.ended = "commit"
            if self.process.happens("commit worker lost", self.process.world.faults.lost_worker):
                raise WorkerDied("the commit worker died after it had committed")
        except (EosLogError, WorkerDied) as error:
            # The worker is replaced, whether or not what it did landed.
            self._committer = SparkWorker(self.process, only_commits=True)
            landed = tasks.ended == "commit"
            tasks.ended = "abort"
            self._in_new_worker(lambda: remake().abort(messages, *arguments))
            marks["spark: abort after a commit that landed" if landed else "spark: abort after a failed commit"] += 1
            raise error

    def _commit(self, process: Process, remake: Callable[[], Any], messages: bytes, arguments: tuple[int, ...]) -> None:
        with acting_as(SparkWorker(process, only_commits=True)):
            remake().commit(pickle.loads(messages), *arguments)
        if not self.process.alive:
            process.world.marks["spark: commit went on after its driver died"] += 1

    def _in_new_worker(self, call: Callable[[], None]) -> None:
        with acting_as(SparkWorker(self.process, only_commits=True)):
            call()
