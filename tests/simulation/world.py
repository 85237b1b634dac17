"""The simulated world: many processes in one thread, one clock, one object store, and a seed that decides everything.

Each process is a greenlet that stops at every request to the store, every sleep and every crash point. The world picks
who goes on, what the store answers, who dies, and what lands later than its answer.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import greenlet

from eoslog.log.paths import slot_of
from eoslog.store.object_store import StoredObject
from tests.simulation.faults import Faults

START_MS = 1_700_000_000_000


class Death(BaseException):
    """The process is killed: what it was doing ends here, and nothing that it does from here on has any effect."""


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class LateWrite:
    """A put that takes effect after its issuer was told nothing."""

    due_ms: int
    path: str
    body: bytes
    if_absent: bool


class Process:
    """One process: it lives until its work ends or it is killed."""

    def __init__(self, world: World, name: str, work: Callable[[Process], None]) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.wake_ms = world.time_ms
        self.suspended_ms = 0
        """For how long the process's own clock stood still."""
        self._greenlet = greenlet.greenlet(lambda: self._run(work))

    def _run(self, work: Callable[[Process], None]) -> None:
        try:
            work(self)
        except Death:
            self.world.note(self.name, "died")
        except Exception as error:
            self.world.failures.append((self.name, error))
        finally:
            self.alive = False

    def resume(self) -> None:
        """Let the process go on to its next stop."""
        self._greenlet.switch()

    def stop(self, what: str, path: str = "") -> None:
        """Hand over to the world; returns when the process is to go on."""
        world = self.world
        if threading.get_ident() != world.thread:
            return  # The probe of put-if-absent, which makes a store, has threads of its own.
        if not self.alive:
            raise Death
        world.note(self.name, what, path)
        if world.faults.on:
            pause = world.faults.pause_ms(world.random)
            if pause:
                self.wake_ms = world.time_ms + pause
                if world.random.random() < world.faults.suspend:
                    self.suspended_ms += pause
        world.scheduler.switch()
        self.die_perhaps()

    def sleep(self, duration_ms: float) -> None:
        self.wake_ms = max(self.wake_ms, self.world.time_ms + max(1, int(duration_ms)))
        self.stop("sleep")

    def die_perhaps(self) -> None:
        world = self.world
        if not self.alive or (world.faults.on and world.random.random() < world.faults.death):
            self.alive = False
            raise Death


class Restartable(Protocol):
    """What the world starts again when it has died."""

    def start(self) -> None: ...


class World:
    """Everything outside of the processes."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults = faults
        self.time_ms = START_MS
        self.objects: dict[str, StoredObject] = {}
        self.every_slot: dict[int, bytes] = {}
        """Every record that ever took its slot in the log, also those deleted since."""
        self.late: list[LateWrite] = []
        self.processes: list[Process] = []
        self.failures: list[tuple[str, Exception]] = []
        self.marks: Counter[str] = Counter()
        """How often rare things happened."""
        self.steps = 0
        self.stopping = False
        """Services end in order and are not started again."""
        self.tail_bytes = 0
        """How much of the log's tail a record repeats: none, as on local disk, or some, as on S3."""
        self._restarts: list[tuple[int, Restartable]] = []
        self.thread = threading.get_ident()
        self.scheduler = greenlet.getcurrent()
        self._trace = hashlib.sha256()
        self.lines: list[str] | None = None
        """The readable trace, if somebody asked for it."""

    def note(self, name: str, what: str, path: str = "") -> None:
        """Add a line to the trace, by which two runs of a seed are compared."""
        line = f"{self.time_ms - START_MS} {name} {what} {path}"
        self._trace.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def trace(self) -> str:
        return self._trace.hexdigest()

    def spawn(self, name: str, work: Callable[[Process], None]) -> Process:
        process = Process(self, name, work)
        self.processes.append(process)
        return process

    def restart_later(self, service: Restartable) -> None:
        """Start a service anew after a while."""
        self._restarts.append((self.time_ms + self.random.randrange(1, 5_000), service))

    def run(self, most_steps: int) -> None:
        """Run until every process has ended, one has failed, or so many steps were taken."""
        last = self.steps + most_steps
        while self.steps < last and self.processes and not self.failures:
            self.step()

    def step(self) -> None:
        self.steps += 1
        self.time_ms += self.random.choice((0, 1, 1, 2, 5, 20))
        for due in [each for each in self._restarts if each[0] <= self.time_ms]:
            self._restarts.remove(due)
            if not self.stopping:
                due[1].start()
        awake = [process for process in self.processes if process.wake_ms <= self.time_ms]
        if not awake:
            self.time_ms = min(process.wake_ms for process in self.processes)
            awake = [process for process in self.processes if process.wake_ms <= self.time_ms]
        self._land_late()
        process = self.random.choice(awake)
        process.resume()
        if not process.alive:
            self.processes.remove(process)

    def put(self, path: str, body: bytes, *, if_absent: bool) -> bool:
        """The effect of a put. False if the object was there."""
        if if_absent and path in self.objects:
            return False
        self.objects[path] = StoredObject(body, self.time_ms)
        slot = slot_of(path)
        if slot is not None:
            self.every_slot.setdefault(slot, body)
        return True

    def put_later(self, path: str, body: bytes, *, if_absent: bool) -> None:
        delay = self.random.choice((50, 500, 5_000, 60_000, 600_000, 3_600_000, 40_000_000))
        self.late.append(LateWrite(self.time_ms + self.random.randrange(delay), path, body, if_absent))

    def _land_late(self) -> None:
        if not self.late:
            return
        due = [write for write in self.late if write.due_ms <= self.time_ms]
        if due:
            self.late = [write for write in self.late if write.due_ms > self.time_ms]
            for write in due:
                landed = self.put(write.path, write.body, if_absent=write.if_absent)
                self.marks["late put landed" if landed else "late put found its place taken"] += 1
                self.note("store", "late put", f"{write.path} {landed}")
