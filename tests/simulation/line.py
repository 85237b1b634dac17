"""The turns of the processes of one host, simulated: a process that waits sends its requests to the one that has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue, Turn

_PAUSE_MS = 20


@dataclass
class Line:
    """What the processes of the host share."""

    holder: SimulatedTurn | None = None
    """The turn that has begun."""
    waiting: list[SimulatedTurn] = field(default_factory=list)
    """The turns that wait for its end, in their order."""


class SimulatedQueue(HostQueue):
    """A queue without sockets. A process that dies or leaves ends its turn. A paused process keeps its turn."""

    def __init__(self, environment: Environment, line: Line) -> None:
        super().__init__(lambda: None, environment, patience_ms=1_000)
        self.line = line

    @contextmanager
    def turn(self, deadline_ms: int | None = None) -> Iterator[Turn]:
        turn = SimulatedTurn(self, self._environment)
        try:
            yield turn
        finally:
            turn.leave()


class SimulatedTurn(Turn):
    def __init__(self, queue: SimulatedQueue, environment: Environment) -> None:
        super().__init__(queue, environment, None)
        self._line = queue.line
        self._message = b""
        self._read: list[SimulatedTurn] = []

    @property
    def is_crowded(self) -> bool:
        return True

    def begin(self) -> bool:
        if self._line.holder is None:
            self._line.holder = self
        return self._line.holder is self

    def ask(self, message: bytes) -> None:
        if self._line.holder is not self:
            self._message = message
            self._line.waiting.append(self)

    def wait(self) -> bool:
        self.handed_over = b""
        while self in self._line.waiting and self._environment.monotonic_ms() < self._end_ms:
            self._environment.sleep_ms(_PAUSE_MS)
        return self not in self._line.waiting

    def messages(self) -> Sequence[bytes]:
        if self._line.holder is self:
            self._read = [other for other in self._line.waiting if other._message]
        return [other._message for other in self._read]

    def answer(self, count: int) -> None:
        for other in self._read[:count]:
            if other in self._line.waiting:
                other.is_appended = True
                other.handed_over = self.newest
                self._line.waiting.remove(other)

    def leave(self) -> None:
        if self in self._line.waiting:
            self._line.waiting.remove(self)
        if self._line.holder is self:
            self._line.holder = self._line.waiting.pop(0) if self._line.waiting else None
            if self._line.holder is not None:
                self._line.holder.handed_over = self.newest
