"""What a simulated process runs: a service, which is started anew when it dies or gives up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from eoslog.errors import AbortableError, ApplicationRecoverableError, CorruptRecord, OutOfOrderSequence, RetriableError
from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.store import Store
from tests.simulation.append_network import SimulatedClient
from tests.simulation.ledger import Ledger
from tests.simulation.store import SimulatedEnvironment, SimulatedStore
from tests.simulation.world import Process, World

T = TypeVar("T")
SLOT_RETENTION_MS = 3_600_000
PATIENCES_MS = (1, 200, 20_000)
"""For how long a process asks what became of its slot; the impatient are often not told."""
INLINE_LIMITS_BYTES = (0, 1_200, 32 << 10, 1 << 20)
"""Up to which size a data file travels in the record; at the second one some do, and some do not."""
SHARED_LIMITS_BYTES = (0, 8 << 20)
"""Up to which size a data file shares an object."""
IN, OUT, OTHER, JOB, TABLE, SPARK, TOTALS = "in", "out", "other", "job", "table", "spark", "totals"
PARTITIONS = {IN: 2, OUT: 2, OTHER: 1, JOB: 2, TABLE: 1, SPARK: 2, TOTALS: 1}
"""The topics, and how many partitions each has."""
ROWS_GO = (TABLE, TOTALS)
"""Topics whose rows are compacted away or replaced by newer ones."""


def open_store(process: Process, *, has_threads: bool = False) -> Store:
    """The store, as a process that was just started holds it."""
    environment = SimulatedEnvironment(process, has_threads=has_threads)
    patience_ms = process.world.choices.stream(f"{process.name} patience").choice(PATIENCES_MS)
    inline_bytes, shared_bytes = 0, 0
    if process.world.embeds_files:
        inline_bytes = process.world.choices.stream(f"{process.name} inline limit").choice(INLINE_LIMITS_BYTES)
        shared_bytes = process.world.choices.stream(f"{process.name} shared limit").choice(SHARED_LIMITS_BYTES)
    config = LogConfig(
        slot_retention_ms=SLOT_RETENTION_MS,
        checkpoint_slots=8,
        commit_timeout_ms=patience_ms,
        inline_limit_bytes=inline_bytes,
        shared_limit_bytes=shared_bytes,
    )
    tail_bytes = process.world.tail_bytes
    store = Store(SimulatedStore(process, environment, tail_bytes=tail_bytes), environment, config)
    store.log.appender._contention._client = SimulatedClient(process, store.object_store, environment)
    watch_locks(process, store.log)
    return store


def watch_locks(process: Process, log: Log[Any]) -> None:
    """From here on, a request or a sleep of the process while it holds a lock of the log ends the history.

    Its threads are greenlets of one thread, and an RLock would let each of them in.
    """
    held_before = process.held_locks

    def held() -> Iterable[str]:
        yield from held_before()
        if log.replica.lock._is_owned():  # type: ignore[attr-defined]
            yield "Replica.lock"
        if log.appender._queue._mutex.locked():
            yield "AppendQueue._mutex"
        if log._checkpointing._lock.locked():
            yield "Checkpointing._lock"

    process.held_locks = held


class GaveUp(Exception):
    """The service ends this incarnation in order; another one goes on."""


class Service:
    """Something that runs for ever: killed or given up, it is started anew."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name

    @property
    def random(self) -> random.Random:
        """What it chooses to do."""
        return self.world.choices.stream(f"{self.name} work")

    def start(self) -> None:
        self.world.spawn(self.name, self._live)

    def _live(self, process: Process) -> None:
        try:
            with self.giving_up(process):
                self.incarnation(process)
        finally:
            if not self.world.stopping:
                self.world.restart_later(self)

    @contextmanager
    def giving_up(self, process: Process) -> Iterator[None]:
        """Within it, an error that faults explain ends what the service does, and goes no further."""
        try:
            yield
        except OutOfOrderSequence:
            # No fault explains it: a producer sends its batches one after the other, and repeats them as they were.
            raise
        except (GaveUp, RetriableError, AbortableError, ApplicationRecoverableError) as error:
            self.world.note(self.name, "gave up", type(error).__name__)
            self.world.marks[f"told: {type(error).__name__}"] += 1
        except CorruptRecord as error:
            if not process.cut_reads:
                raise
            self.world.marks["cut read detected"] += 1
            self.world.note(self.name, "gave up", type(error).__name__)

    def incarnation(self, process: Process) -> None:
        raise NotImplementedError

    def settle(self, process: Process) -> None:
        """Finish what was begun, when nothing fails any more."""

    def check(self, store: Store) -> None:
        """Compare what the store holds with what the service promises beyond its works. Raises: Violation"""

    def pause(self, process: Process, most_ms: int = 3_000) -> None:
        process.sleep(self.random.randrange(1, most_ms))


def until_done(call: Callable[[], T], attempts: int = 6) -> T:
    """Repeat a call that may be repeated."""
    for attempt in range(attempts):
        try:
            return call()
        except RetriableError:
            if attempt == attempts - 1:
                raise
    raise AssertionError
