"""Turns in tests: another process has the turn of the host, and what it does is called instead of waited for."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eoslog.log.log import Log
from eoslog.log.slots import SlotRecord, decode_line, entries_of, first_line
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue, Turn
from tests.unit.log.ledger import Ledger, shared_add
from tests.unit.log.world import Crashed, World, environment, script

SENT = "log.shared.sent"


def share(log: Log[Ledger], name: str, **options: Any) -> int:
    """Add a name by a request that other processes may append. Return its slot."""
    return log.append(shared_add(name), **options)


def record(world: World, slot: int) -> SlotRecord:
    return decode_line(first_line(world.body(slot)), slot)


def request_names(world: World, slot: int) -> list[list[str]]:
    """The names that each request in a record added, if it was sent to another process."""
    found = record(world, slot)
    return [[entry["name"] for entry in entries_of(found, each)] for each in found.requests or ()]


def message_of(slot: int, *requests: Sequence[Any], name: str = "ab" * 16) -> bytes:
    """The message of a process that knows the records up to a slot. Each request is a list of entries."""
    return json.dumps({"name": name, "slot": slot, "requests": [{"entries": each} for each in requests]}).encode()


def at(log: Log[Ledger], point: str, then: Callable[[], object]) -> None:
    """Call ``then`` when the process next reaches a crash point."""
    came: list[str] = []

    def reached(crash_point: str) -> None:
        environment(log).points.append(crash_point)
        came.append(crash_point)
        if crash_point == point and came.count(point) == 1:
            then()

    environment(log).reached = reached  # type: ignore[method-assign]


def die(log: Log[Ledger]) -> None:
    """From here on no request of the process has any effect."""
    script(log).requests_left = 0
    raise Crashed


def nothing() -> None:
    pass


@dataclass
class ScriptedQueue(HostQueue):
    """A queue where another process has the turn. It calls functions instead of waiting."""

    is_crowded: bool = True
    is_first: bool = False
    """Whether this process has the turn at once."""
    gets_turn: bool = True
    waits: int = 1
    """How often it waits until it has its turn."""
    while_asking: Callable[[], object] = nothing
    while_waiting: Callable[[], object] = nothing
    reaches_holder: bool = True
    """Whether messages reach the process that has the turn."""
    sent: list[bytes] = field(default_factory=list)
    received: Sequence[bytes] = ()
    answers: bool = False
    """Whether the process that has the turn says that it has appended what was sent."""
    answered: int = 0
    stopped: socket.socket | None = None
    patience_ms: int = 1_000
    hands_over: Callable[[], bytes] = bytes
    """The records that come with the answer or with the turn."""
    newest: bytes = b""
    """The records that this process hands over."""

    @contextmanager
    def turn(self, deadline_ms: int | None = None) -> Iterator[Turn]:
        turn = ScriptedTurn(self)
        yield turn
        self.newest = turn.newest


class ScriptedTurn(Turn):
    """A turn in that queue."""

    def __init__(self, queue: ScriptedQueue) -> None:
        super().__init__(queue, Environment(), None)
        self._script = queue

    def begin(self) -> bool:
        return self._script.is_first or self._script.waits == 0

    def ask(self, message: bytes) -> bool:
        self._script.sent.append(message)
        self._script.while_asking()
        return self._script.reaches_holder and bool(message)

    def wait(self) -> bool:
        self._script.waits -= 1
        self._script.while_waiting()
        self.is_appended = self._script.answers
        self.handed_over = self._script.hands_over()
        return self._script.gets_turn

    def messages(self) -> Sequence[bytes]:
        return self._script.received

    def answer(self, count: int) -> None:
        self._script.answered += count


def queued(log: Log[Ledger], *, is_crowded: bool = True) -> ScriptedQueue:
    """Let another process have the turn from here on."""
    log.read(lambda state, slot: None)
    queue = script(log).host_queue = ScriptedQueue()
    queue.is_crowded = is_crowded
    return queue


def queued_beside_another() -> tuple[World, Log[Ledger], Log[Ledger], ScriptedQueue]:
    """Return a world and the logs of two processes. The turn of the second one does not come in the returned queue."""
    world = World()
    other, log = world.created(), world.process()
    return world, other, log, queued(log)


def append_for(log: Log[Ledger], messages: Sequence[bytes], name: str = "other") -> int:
    """Let a process append a name in its turn, and what others have sent to it. Return the slot."""
    queue = queued(log)
    queue.is_first, queue.received = True, messages
    return share(log, name)
