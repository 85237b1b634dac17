"""An object store in the memory of one process, for tests and experiments. A forked child cannot use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from eoslog.errors import OpenedBeforeFork
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment, host_time_ms
from eoslog.storage.object_store import (
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    StoredObject,
    check_directory,
    check_path,
    check_prefix,
    check_range,
)
from eoslog.storage.process import HomeProcess, forks
from eoslog.storage.request_log import logged


class MemoryStore(ObjectStore):
    """Objects in memory. Within the process, stores of the same name share objects; one without a name is private.

    ``wall_clock`` (ms since the epoch) is the store's clock.
    """

    least_poll_pause_ms = 20
    is_remote = False
    lists_in_order = True
    _shared: ClassVar[dict[tuple[int, str], dict[str, StoredObject]]] = {}
    """Objects by process (``forks()``) and name. So a forked child that opens a name finds an empty store."""

    def __init__(
        self,
        environment: Environment,
        name: str = "",
        *,
        wall_clock: Callable[[], int] = host_time_ms,
        tail_bytes: int = 0,
    ) -> None:
        super().__init__(f"memory://{name}", StoreClock(environment))
        self.tail_bytes = tail_bytes
        self._environment = environment
        self._wall_clock = wall_clock
        self._home = HomeProcess("store")
        # setdefault is atomic, so two stores that share these objects need no common lock.
        self._objects: dict[str, StoredObject] = self._shared.setdefault((forks(), name), {}) if name else {}

    def __repr__(self) -> str:
        return f"MemoryStore({self.url!r})"

    @logged("PUT")
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        check_path(path)
        mine = StoredObject(bytes(body), self._answer("PUT"))
        return PutOutcome.CREATED if self._objects.setdefault(path, mine) is mine else PutOutcome.EXISTS

    @logged("PUT")
    def put(self, path: str, body: bytes) -> None:
        check_path(path)
        self._objects[path] = StoredObject(bytes(body), self._answer("PUT"))

    @logged("GET")
    def get(self, path: str) -> StoredObject:
        check_path(path)
        self._answer("GET")
        try:
            return self._objects[path]
        except KeyError:
            raise ObjectNotFound(path) from None

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self.get(path).body[start : start + length]

    @logged("LIST")
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        self._answer("LIST")
        found = sorted(
            (path, stored)
            for path, stored in self._objects.copy().items()
            if path.startswith(prefix) and path > start_after
        )
        for path, stored in found[:limit]:
            yield ObjectInfo(path, len(stored.body), stored.last_modified_ms)

    @logged("LIST")
    def list_directories(self, prefix: str) -> Sequence[str]:
        check_directory(prefix)
        self._answer("LIST")
        below = (path[len(prefix) :] for path in self._objects.copy() if path.startswith(prefix))
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def holds(self, other: ObjectStore) -> bool:
        return isinstance(other, MemoryStore) and other._objects is self._objects

    @logged("DELETE")
    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)
            self._answer("DELETE")
            self._objects.pop(path, None)

    def _answer(self, kind: str) -> int:
        """Count a request, observe the date of its answer, and return it.

        Raises:
            OpenedBeforeFork: this is a forked child. Its writes would reach no other process.
        """
        if not self._home.is_this:
            raise OpenedBeforeFork(
                f"{self.url} lives in the memory of the process that opened it, and this process was forked from that "
                "one. Use a local directory or S3 to share a store between processes"
            )
        date_ms = self._wall_clock()
        # No lock: a signal handler may interrupt this thread here, and its calls send requests, too. No other thread
        # runs within the addition (``calls.py``).
        self.requests[kind] += 1
        self.clock.observe(date_ms)
        return date_ms
