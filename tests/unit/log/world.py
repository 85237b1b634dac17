"""A world for tests of the log: one memory that several processes share, its clock, and faults on request."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from eoslog.errors import StoreAccessDenied, StoreUnavailable
from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.log.slots import slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectInfo, PutOutcome, StoredObject
from tests.requests import Applying
from tests.unit.log.ledger import Ledger, LedgerMachine

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
_worlds = itertools.count()


class Fault(Enum):
    """What happens to one put-if-absent."""

    NONE = auto()
    ANSWER_LOST = auto()
    """It lands, and is not answered."""
    REQUEST_LOST = auto()
    """It never lands, and is not answered."""
    LATE = auto()
    """It is not answered, and lands when ``land_late`` is called."""
    RETRIED_INSIDE = auto()
    """It lands, and the client's own retry finds that it exists."""
    CONFLICT = auto()
    DENIED = auto()


class Crashed(BaseException):
    """The process is dead."""


class ProcessEnvironment(Environment):
    """Elapsed time follows the world's clock, unless the machine is suspended; sleep passes time; nothing is random."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._ids = itertools.count()
        self.suspended_ms = 0
        self.inline = True
        self.held: list[Callable[[], None]] = []
        self.points: list[str] = []
        """The named points to which the process came."""

    def monotonic_ms(self) -> int:
        return self._world.now_ms - self.suspended_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._world.now_ms += max(1, int(duration_ms))

    def new_id(self) -> str:
        return f"{self._name}{next(self._ids):x}".encode().hex().rjust(32, "0")

    def jitter(self) -> float:
        return 0.5

    def reached(self, crash_point: str) -> None:
        self.points.append(crash_point)

    def background(self, work: Callable[[], None]) -> None:
        if self.inline:
            work()
        else:
            self.held.append(work)


class ScriptedStore(MemoryStore):
    """The shared memory, as one process reaches it: puts of slots meet the faults in ``faults``, in order."""

    def __init__(self, environment: Environment, name: str, *, clock: Callable[[], int], tail_bytes: int) -> None:
        super().__init__(environment, name, wall_clock=clock, tail_bytes=tail_bytes)
        self.faults: deque[Fault] = deque()
        self.before: deque[Callable[[], object]] = deque()
        """Called before successive puts of slots: what other processes do first."""
        self.refuse_get: Callable[[str], Exception | None] = lambda path: None
        self.cuts: deque[int] = deque()
        """How many bytes the next reads give at most."""
        self.on_list: Callable[[], object] = lambda: None
        """Called after each LIST was answered."""
        self.requests_left = -1
        """The process dies at the request after so many; -1 never."""
        self.dies_after_landing = False
        """Whether the request at which it dies has its effect."""
        self._late: list[tuple[str, bytes]] = []

    def _step(self, effect: Callable[[], Any]) -> Any:
        if self.requests_left == 0:
            self.requests_left = -2
            if self.dies_after_landing:
                effect()
            raise Crashed
        if self.requests_left == -2:
            raise Crashed
        if self.requests_left > 0:
            self.requests_left -= 1
        return effect()

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        if self.before:
            self.before.popleft()()
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.CONFLICT:
            return PutOutcome.CONFLICT
        if fault is Fault.DENIED:
            raise StoreAccessDenied("no permission")
        if fault is Fault.LATE:
            self._late.append((path, body))
        if fault in (Fault.REQUEST_LOST, Fault.LATE):
            raise StoreUnavailable("no answer")
        outcome: PutOutcome = self._step(lambda: super(ScriptedStore, self).put_if_absent(path, body))
        if fault is Fault.RETRIED_INSIDE:
            return PutOutcome.EXISTS
        if fault is Fault.ANSWER_LOST:
            raise StoreUnavailable("no answer")
        return outcome

    def land_late(self) -> None:
        """The puts that were on their way arrive."""
        for path, body in self._late:
            super().put_if_absent(path, body)
        self._late.clear()

    def put(self, path: str, body: bytes) -> None:
        self._step(lambda: super(ScriptedStore, self).put(path, body))

    def get(self, path: str) -> StoredObject:
        error = self.refuse_get(path)
        if error is not None:
            raise error
        found: StoredObject = self._step(lambda: super(ScriptedStore, self).get(path))
        return replace(found, body=found.body[: self.cuts.popleft()]) if self.cuts else found

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        listed = self._step(lambda: list(super(ScriptedStore, self).list(prefix, start_after=start_after, limit=limit)))
        self.on_list()
        yield from listed

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._step(lambda path=path: super(ScriptedStore, self).delete([path]))


class World:
    """The shared memory and its clock."""

    def __init__(self, *, tail_bytes: int = 0) -> None:
        self.now_ms = 1_700_000_000_000
        self.tail_bytes = tail_bytes
        self.name = f"world-{next(_worlds)}"
        self._processes = itertools.count()

    def process(self, **config: Any) -> Log[Ledger]:
        """A new process that has not read anything yet."""
        environment = ProcessEnvironment(self, f"{next(self._processes):x}.")
        store = ScriptedStore(environment, self.name, clock=lambda: self.now_ms, tail_bytes=self.tail_bytes)
        return Log(store, LedgerMachine(), environment, LogConfig(**config))

    def process_that_read(self, **config: Any) -> Log[Ledger]:
        process = self.process(**config)
        names(process)
        return process

    def created(self, **config: Any) -> Log[Ledger]:
        """A process that has just made the log."""
        log = self.process(**config)
        log.create(Applying(lambda draft: draft.entries.append({"type": "add", "name": "created"})))
        return log

    def body(self, slot: int) -> bytes:
        return MemoryStore(Environment(), self.name).get(slot_path(slot)).body

    def put(self, slot: int, body: bytes) -> None:
        """Put a slot's bytes as they are."""
        MemoryStore(Environment(), self.name, wall_clock=lambda: self.now_ms).put(slot_path(slot), body)


def script(log: Log[Ledger]) -> ScriptedStore:
    """The process's way to the store."""
    assert isinstance(log.store, ScriptedStore)
    return log.store


def environment(log: Log[Ledger]) -> ProcessEnvironment:
    assert isinstance(log.environment, ProcessEnvironment)
    return log.environment


def names(log: Log[Ledger]) -> list[str]:
    """The names that a process sees now."""
    return log.read(lambda state, slot: state.names)
