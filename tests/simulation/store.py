"""The object store as one process of the simulated world sees it: every request is a stop, every answer a choice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TypeVar

from eoslog.errors import StoreUnavailable
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment
from eoslog.storage.latch import Latch
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome, StoredObject
from tests.simulation.line import SimulatedQueue
from tests.simulation.world import Process

T = TypeVar("T")
_PAGE = 7


class SimulatedEnvironment(Environment):
    """Time, sleep and randomness of the world, as one process has them."""

    def __init__(self, process: Process, *, has_threads: bool = False) -> None:
        """
        Args:
            has_threads: whether background work runs in a thread of its own, and not in the caller's.
        """
        self._process = process
        self._has_threads = has_threads
        self._random = process.world.choices.stream(f"{process.name} tokens")

    def monotonic_ms(self) -> int:
        return self._process.elapsed_ms()

    def monotonic_ns(self) -> int:
        return self._process.elapsed_ms() * 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        self._process.sleep(duration_ms)

    def wait_ms(self, duration_ms: float, wakeups: SimpleQueue[None]) -> None:
        self.sleep_ms(duration_ms)

    def wait_for(self, event: threading.Event | Latch, patience_s: float | None = None) -> bool:
        return self._process.wait_for(event, None if patience_s is None else patience_s * 1000)

    def new_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._random.random()

    def reached(self, crash_point: str) -> None:
        self._process.world.marks[crash_point] += 1
        self._process.die_perhaps()

    def uninterrupted(self, step: Callable[[], T]) -> T:
        # Only the threads of the simulation may run. So its interrupts meet a step, too.
        return step()

    def background(self, work: Callable[[], None]) -> None:
        if self._has_threads:
            self._process.start_thread(work)
        else:
            work()


class SimulatedStore(ObjectStore):
    """The world's objects behind a network that may do anything that a network does."""

    reads_at_once = 1
    """Only the threads of the simulation may send requests."""

    def __init__(self, process: Process, environment: Environment, *, tail_bytes: int = 0) -> None:
        super().__init__("sim://store", StoreClock(environment))
        self.lists_in_order = not process.world.faults.unordered_lists
        self.tail_bytes = tail_bytes
        if process.world.line is not None:
            self.host_queue = SimulatedQueue(environment, process.world.line)
        self._process = process
        self._world = process.world

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        self._request("PUT", path)
        if self._happens("409", self._world.faults.conflict):
            return self._put_answer(PutOutcome.CONFLICT)
        self._fail_before(path, body, if_absent=True)
        created = self._world.put(path, body, if_absent=True)
        self._fail_after(path, body, if_absent=True)
        if created and self._happens("own success told as another's", self._world.faults.twice):
            created = False
        return self._put_answer(PutOutcome.CREATED if created else PutOutcome.EXISTS)

    def put(self, path: str, body: bytes) -> None:
        self._request("PUT", path)
        self._fail_before(path, body, if_absent=False)
        self._world.put(path, body, if_absent=False)
        self._fail_after(path, body, if_absent=False)
        self._answer("200")

    def get(self, path: str) -> StoredObject:
        self._request("GET", path)
        self._fail_read()
        found = self._world.objects.get(path)
        self._answer("404" if found is None else f"200 {len(found.body)} bytes")
        if found is None:
            raise ObjectNotFound(path)
        return StoredObject(self._cut_perhaps(found.body), found.last_modified_ms)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path).body[start : start + length]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        given = 0
        after = start_after
        while True:
            self._request("LIST", prefix)
            self._fail_read()
            paths = sorted(path for path in self._world.objects if path.startswith(prefix) and path > after)
            page = paths[: limit if limit is not None else _PAGE]
            infos = [
                ObjectInfo(path, len(found.body), found.last_modified_ms)
                for path in page
                if (found := self._world.objects.get(path))
            ]
            self._answer(f"200 {len(infos)} of {len(paths)}")
            if not self.lists_in_order:
                self._world.choices.stream("lists").shuffle(infos)
            yield from infos
            given += len(page)
            if limit is not None or len(page) == len(paths):
                return
            after = page[-1]

    def list_directories(self, prefix: str) -> Sequence[str]:
        self._request("LIST", prefix)
        self._fail_read()
        below = (path[len(prefix) :] for path in self._world.objects if path.startswith(prefix))
        found = sorted({rest.partition("/")[0] for rest in below if "/" in rest})
        self._answer(f"200 {len(found)}")
        return found

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._request("DELETE", path)
            if self._happens("503", self._world.faults.slow_down):
                raise self._unavailable("503 SlowDown")
            self._world.objects.pop(path, None)
            if self._happens("answer lost", self._world.faults.lost_answer):
                raise self._unavailable("connection reset")
            self._answer("204")

    def _request(self, kind: str, path: str) -> None:
        self.requests[kind] += 1
        self._process.stop(kind, path)

    def _put_answer(self, outcome: PutOutcome) -> PutOutcome:
        self._answer(outcome.value)
        return outcome

    def _answer(self, text: str) -> None:
        """The answer travels back: others go on meanwhile."""
        date_ms = self._world.date_ms()
        self._process.stop("answer", text)
        self.clock.observe(date_ms)

    def _fail_before(self, path: str, body: bytes, *, if_absent: bool) -> None:
        """Errors of a put that has had no effect yet."""
        faults = self._world.faults
        if self._happens("503", faults.slow_down):
            raise self._unavailable("503 SlowDown")
        if self._happens("500 before", faults.internal_error / 2):
            raise self._unavailable("500 InternalError")
        if self._happens("put delayed", faults.late_put):
            self._world.put_later(path, body, if_absent=if_absent)
            raise self._unavailable("timed out")

    def _fail_after(self, path: str, body: bytes, *, if_absent: bool) -> None:
        """What goes wrong when a put has had its effect."""
        faults = self._world.faults
        if self._happens("put copied", faults.again_later):
            self._world.put_later(path, body, if_absent=if_absent)
        if self._happens("500 after", faults.internal_error / 2):
            raise self._unavailable("500 InternalError")
        if self._happens("answer lost", faults.lost_answer):
            raise self._unavailable("connection reset")

    def _fail_read(self) -> None:
        if self._happens("read failed", self._world.faults.failed_read):
            raise self._unavailable("503 SlowDown")

    def _cut_perhaps(self, body: bytes) -> bytes:
        if not self._happens("read cut", self._world.faults.cut_read):
            return body
        self._process.cut_reads += 1
        return body[: self._world.choices.stream("cuts").randrange(len(body) + 1)]

    def _happens(self, fault: str, probability: float) -> bool:
        return self._process.happens(fault, probability)

    def _unavailable(self, answer: str) -> StoreUnavailable:
        return StoreUnavailable(f"sim://store: {answer}")
