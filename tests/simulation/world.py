"""The simulated world: many processes in one thread, one clock, one object store, and a seed that decides everything.

Each thread of a process is a greenlet that stops at every request to the store and every sleep. The world picks
who goes on, what the store answers, who dies, and what lands later than its answer.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import greenlet

from eoslog.log.slots import slot_of
from eoslog.storage.latch import Latch
from eoslog.storage.object_store import StoredObject
from tests.simulation.append_network import Listener
from tests.simulation.choices import Choices
from tests.simulation.faults import CLOCK_JUMPS_MS, LATE_BY_MS, LONG_PAUSES_MS, Faults
from tests.simulation.line import Line

START_MS = 1_700_000_000_000
NEVER_MS = 10**18
"""Longer than any history."""
_STEPS_MS = (0, 1, 1, 2, 5, 20)
_NO_FAULTS = Faults()


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


class Thread:
    """A thread of a process: a greenlet with a place of its own in the program."""

    def __init__(self, process: Process, name: str, work: Callable[[], None], *, is_interruptible: bool) -> None:
        self.process = process
        self.name = name
        self.is_interruptible = is_interruptible
        self.wake_ms = process.world.time_ms
        self.awaited: threading.Event | Latch | None = None
        """What wakes it before ``wake_ms``."""
        self.ended = threading.Event()
        self._greenlet = greenlet.greenlet(lambda: self._run(work), parent=process.world.scheduler)

    @property
    def due_ms(self) -> int:
        """When it can go on."""
        if not self.process.alive:
            return 0
        is_woken = self.awaited is not None and self.awaited.is_set()
        return max(self.process.paused_until_ms, 0 if is_woken else self.wake_ms)

    def resume(self) -> None:
        """Let the thread go on to its next stop."""
        self._greenlet.switch()

    def _run(self, work: Callable[[], None]) -> None:
        process = self.process
        try:
            if process.alive:
                work()
        except Death:
            process.world.note(self.name, "died")
        except Exception as error:
            process.world.failures.append((self.name, error))
        finally:
            self.ended.set()
            if self is process.main:
                process.alive = False


class Process:
    """One process: it lives until its main thread ends or it is killed. All its threads end with it."""

    def __init__(self, world: World, name: str, work: Callable[[Process], None]) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused_until_ms = 0
        self.suspended_ms = 0
        """For how long the process's own clock stood still."""
        self.cut_reads = 0
        """How many of its reads gave less than there is."""
        self.held_locks: Callable[[], Iterable[str]] = tuple
        """The locks that no thread may hold at a stop. Another thread that wants one would block for ever there."""
        clocks = world.choices.stream(f"{name} clocks")
        self.clock_start_ms = clocks.randrange(10**9)
        """What its clock of elapsed time, which begins anywhere, showed at the world's start."""
        self.host_skew_ms = clocks.choice((0, 0, *CLOCK_JUMPS_MS))
        """By how much its host's time of day is wrong."""
        self._started = 0
        self.main = Thread(self, name, lambda: work(self), is_interruptible=False)

    def start_thread(self, work: Callable[[], None], *, is_interruptible: bool = False) -> Thread:
        """Start another thread.

        Args:
            is_interruptible: whether a ``KeyboardInterrupt`` may meet it. Then ``work`` must expect one.
        """
        self._started += 1
        thread = Thread(self, f"{self.name}.{self._started}", work, is_interruptible=is_interruptible)
        self.world.threads.append(thread)
        return thread

    def stop(self, what: str, path: str = "") -> None:
        """Hand over to the world; returns when the thread that runs now is to go on."""
        world = self.world
        if threading.get_ident() != world.thread:
            return  # The probe of put-if-absent, which makes a store, has threads of its own.
        if not self.alive:
            raise Death
        thread = self._running_thread()
        world.note(thread.name, what, path)
        if self.happens("pause", world.faults.pause):
            pauses = world.choices.stream(f"{self.name} pauses")
            duration_ms = pauses.choice(LONG_PAUSES_MS)
            self.paused_until_ms = thread.wake_ms = world.time_ms + duration_ms
            if pauses.random() < world.faults.suspend:
                self.suspended_ms += duration_ms
        if self.happens("clock jump", world.faults.clock_jump):
            self.host_skew_ms += world.choices.stream(f"{self.name} clocks").choice(CLOCK_JUMPS_MS)
        for lock in self.held_locks():
            # Not raised: the code under test may catch it.
            world.failures.append((thread.name, Violation(f"{lock} is held during {what} {path}")))
        world.scheduler.switch()
        self.die_perhaps()

    def sleep(self, duration_ms: float) -> None:
        thread = self._running_thread()
        thread.wake_ms = max(thread.wake_ms, self.world.time_ms + max(1, int(duration_ms)))
        self.stop("sleep")

    def wait_for(self, event: threading.Event | Latch, patience_ms: float | None = None) -> bool:
        """Let others go on until one sets the event, or the process's own clock has gone so far. Whether it is set."""
        thread = self._running_thread()
        end_ms = None if patience_ms is None else self.elapsed_ms() + patience_ms
        thread.awaited = event
        try:
            while not event.is_set():
                left_ms = NEVER_MS if end_ms is None else end_ms - self.elapsed_ms()
                if left_ms <= 0:
                    return False
                thread.wake_ms = self.world.time_ms + max(1, int(left_ms))
                self.stop("wait")
            return True
        finally:
            thread.awaited = None
            thread.wake_ms = self.world.time_ms

    def die_perhaps(self) -> None:
        if not self.alive or self.happens("death", self.world.faults.death):
            self.alive = False
            raise Death
        if self._running_thread().is_interruptible and self.happens("interrupt", self.world.faults.interrupt):
            raise KeyboardInterrupt

    def _running_thread(self) -> Thread:
        thread = self.world.running
        assert thread is not None
        assert thread.process is self, f"{thread.name} acts as {self.name}"
        return thread

    def happens(self, fault: str, probability: float) -> bool:
        """Whether a fault meets this process now."""
        if probability <= 0:
            return False
        event = self.world.choices.happens(self.name, fault, probability)
        if event:
            self.world.note(self.name, "fault:", fault)
            self.world.marks[f"fault: {fault}"] += 1
        return bool(event)

    def elapsed_ms(self) -> int:
        """The process's own clock of elapsed time."""
        return self.clock_start_ms + self.world.time_ms - START_MS - self.suspended_ms

    def host_time_ms(self) -> int:
        """The time of day on the process's host, which nothing may rest on."""
        return self.world.time_ms + self.host_skew_ms


class Restartable(Protocol):
    """What the world starts again when it has died."""

    def start(self) -> None: ...


class World:
    """Everything outside of the processes."""

    def __init__(self, seed: int, faults: Faults, *, kept: frozenset[str] | None = None) -> None:
        self.seed = seed
        self.choices = Choices(seed, kept)
        self.random = self.choices.stream("world")
        self.faults = faults
        self.switches = 1.0
        """How often another process goes on than the one that went last."""
        self.time_ms = START_MS
        self.date_grain_ms = 1
        """What the store's dates are rounded down to: S3 tells whole seconds."""
        self.objects: dict[str, StoredObject] = {}
        self.every_slot: dict[int, bytes] = {}
        """Every record that ever took its slot in the log, also those deleted since."""
        self.late: list[LateWrite] = []
        self.threads: list[Thread] = []
        """Of all processes: those that have not ended."""
        self.running: Thread | None = None
        self.failures: list[tuple[str, Exception]] = []
        self.marks: Counter[str] = Counter()
        """How often rare things happened."""
        self.steps = 0
        self.stopping = False
        """Services end in order and are not started again."""
        self.tail_bytes = 0
        self.embeds_files = False
        """How much of the log's tail a record repeats: none, as on local disk, or some, as on S3."""
        self.line: Line | None = None
        """The processes that queue up before they append; None if they do not, as on S3."""
        self.listeners: dict[str, Listener] = {}
        """The append services that listen, by the names of their hosts."""
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

    def end_faults(self) -> None:
        """From here on nothing fails any more; what is under way still lands late."""
        self.note("world", "no more faults")
        self.faults = _NO_FAULTS

    def spawn(self, name: str, work: Callable[[Process], None]) -> Process:
        process = Process(self, name, work)
        self.threads.append(process.main)
        return process

    def restart_later(self, service: Restartable) -> None:
        """Start a service anew after a while."""
        self._restarts.append((self.time_ms + self.random.randrange(1, 5_000), service))

    def run(self, most_steps: int) -> None:
        """Run until every thread has ended, one has failed, or so many steps were taken."""
        last = self.steps + most_steps
        while self.steps < last and self.threads and not self.failures:
            self.step()

    def step(self) -> None:
        self.steps += 1
        self.time_ms += _STEPS_MS[int(self.random.random() * len(_STEPS_MS))]
        for due in [each for each in self._restarts if each[0] <= self.time_ms]:
            self._restarts.remove(due)
            if not self.stopping:
                due[1].start()
        awake = [thread for thread in self.threads if thread.due_ms <= self.time_ms]
        if not awake:
            self.time_ms = min(thread.due_ms for thread in self.threads)
            if self.time_ms >= NEVER_MS:
                names = ", ".join(thread.name for thread in self.threads)
                raise Violation(f"each waits for another thread, for ever: {names}")
            awake = [thread for thread in self.threads if thread.due_ms <= self.time_ms]
        self._land_late()
        thread = self._next(awake)
        self.running = thread
        thread.resume()
        if thread.ended.is_set():
            self.threads.remove(thread)

    def _next(self, awake: list[Thread]) -> Thread:
        """Who goes on: the one that went last, or another."""
        chosen = awake[int(self.random.random() * len(awake))]
        if self.running is None or chosen is self.running or self.running not in awake:
            return chosen
        return chosen if self.choices.happens("world", "switch", self.switches) else self.running

    def date_ms(self) -> int:
        """The time as the store tells it."""
        return self.time_ms // self.date_grain_ms * self.date_grain_ms

    def put(self, path: str, body: bytes, *, if_absent: bool) -> bool:
        """The effect of a put. False if the object was there."""
        if if_absent and path in self.objects:
            return False
        self.objects[path] = StoredObject(body, self.date_ms())
        slot = slot_of(path)
        if slot is not None and self.every_slot.setdefault(slot, body) is not body:
            self.marks["a deleted slot's name was taken"] += 1
        return True

    def put_later(self, path: str, body: bytes, *, if_absent: bool) -> None:
        stream = self.choices.stream("late puts")
        delay = stream.choice(LATE_BY_MS)
        self.late.append(LateWrite(self.time_ms + stream.randrange(delay), path, body, if_absent))

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
