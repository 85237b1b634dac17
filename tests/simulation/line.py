"""The queue of the processes of one host, simulated: a process far back publishes its requests and waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue, Place

_PATIENCE_MS = 1_000
_PAUSE_MS = 20


class SimulatedQueue(HostQueue):
    """A queue without files. A process that dies or leaves gives up its place. A paused process keeps its place."""

    def __init__(self, environment: Environment, line: list[SimulatedPlace]) -> None:
        super().__init__("", environment)
        self._line = line

    @contextmanager
    def place(self, deadline_ms: int | None = None) -> Iterator[Place]:
        place = SimulatedPlace(self._environment, self._line)
        self._line.append(place)
        try:
            yield place
        finally:
            self._line.remove(place)


class SimulatedPlace(Place):
    """A place in the queue. The process at the head has its turn."""

    def __init__(self, environment: Environment, line: list[SimulatedPlace]) -> None:
        super().__init__(environment, None, must_wait=bool(line))
        self._line = line

    @property
    def is_behind(self) -> bool:
        return self._line.index(self) > 1

    def wait_to_be_next(self) -> None:
        self._wait_until_before(1)

    def wait_for_turn(self) -> None:
        self._wait_until_before(0)

    def _wait_until_before(self, most: int) -> None:
        end_ms = self._environment.monotonic_ms() + _PATIENCE_MS
        while self._line.index(self) > most and self._environment.monotonic_ms() < end_ms:
            self._environment.sleep_ms(_PAUSE_MS)
