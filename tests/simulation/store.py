"""The object store as one process of the simulated world sees it: every request is a stop, every answer a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eoslog.errors import StoreUnavailable
from eoslog.store.clock import StoreClock
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome, StoredObject
from tests.simulation.world import Process

_PAGE = 7


class SimulatedEnvironment(Environment):
    """Time, sleep and randomness of the world, as one process has them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def monotonic_ms(self) -> int:
        return self._process.world.time_ms - self._process.suspended_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._process.sleep(duration_ms)

    def new_token(self) -> str:
        return f"{self._process.world.random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._process.world.random.random()

    def reached(self, crash_point: str) -> None:
        self._process.world.marks[crash_point] += 1
        self._process.die_perhaps()

    def background(self, work: Callable[[], None]) -> None:
        work()


class SimulatedStore(ObjectStore):
    """The world's objects behind a network that may do anything that a network does."""

    def __init__(self, process: Process, environment: Environment, *, tail_bytes: int = 0) -> None:
        super().__init__("sim://store", StoreClock(environment))
        self.lists_in_order = not process.world.faults.unordered_lists
        self.tail_bytes = tail_bytes
        self._process = process
        self._world = process.world

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        self._request("PUT", path)
        world, faults = self._world, self._world.faults
        if self._chance(faults.conflict):
            return self._answer(PutOutcome.CONFLICT)
        self._fail_or_delay(path, body, if_absent=True)
        created = world.put(path, body, if_absent=True)
        if self._chance(faults.lost_answer):
            world.marks["answer lost"] += 1
            raise self._unavailable()
        if created and self._chance(faults.twice):
            world.marks["own success reported as another's"] += 1
            created = False
        return self._answer(PutOutcome.CREATED if created else PutOutcome.EXISTS)

    def put(self, path: str, body: bytes) -> None:
        self._request("PUT", path)
        self._fail_or_delay(path, body, if_absent=False)
        self._world.put(path, body, if_absent=False)
        if self._chance(self._world.faults.lost_answer):
            raise self._unavailable()
        self._answer(None)

    def get(self, path: str) -> StoredObject:
        self._request("GET", path)
        self._fail_read()
        found = self._world.objects.get(path)
        self._answer(None)
        if found is None:
            raise ObjectNotFound(path)
        return found

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
            self._answer(None)
            if not self.lists_in_order:
                self._world.random.shuffle(infos)
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
        self._answer(None)
        return found

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._request("DELETE", path)
            if self._chance(self._world.faults.failed_before):
                raise self._unavailable()
            self._world.objects.pop(path, None)
            if self._chance(self._world.faults.lost_answer):
                raise self._unavailable()
            self._answer(None)

    def _request(self, kind: str, path: str) -> None:
        self.requests[kind] += 1
        self._process.stop(kind, path)

    def _answer(self, outcome: PutOutcome | None) -> PutOutcome:
        """The answer travels back: others go on meanwhile."""
        date_ms = self._world.time_ms
        self._process.stop("answer")
        self.clock.observe(date_ms)
        return outcome if outcome is not None else PutOutcome.CREATED

    def _fail_or_delay(self, path: str, body: bytes, *, if_absent: bool) -> None:
        if self._chance(self._world.faults.failed_before):
            raise self._unavailable()
        if self._chance(self._world.faults.late_put):
            self._world.marks["put delayed"] += 1
            self._world.put_later(path, body, if_absent=if_absent)
            raise self._unavailable()

    def _fail_read(self) -> None:
        if self._chance(self._world.faults.failed_read):
            raise self._unavailable()

    def _chance(self, probability: float) -> bool:
        return self._world.faults.on and probability > 0 and self._world.random.random() < probability

    def _unavailable(self) -> StoreUnavailable:
        return StoreUnavailable("sim://store: no answer")
