"""Processes of one host queue up. A process far back in the queue publishes, and a process before it appends for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from eoslog.errors import CommitStateUnknown, StoreAccessDenied, StoreUnavailable, StoreVanished
from eoslog.log.log import Log
from eoslog.log.slot_paths import slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue, Place
from tests.unit.log.ledger import AlreadyThere, Ledger, add, shared_add
from tests.unit.log.test_sharing import PUBLISHED, at, die, publish, published, record, request_names, share
from tests.unit.log.world import Crashed, World, environment, names, script


def nothing() -> None:
    pass


@dataclass
class ScriptedQueue(HostQueue):
    """A queue that says where the process stands, and calls functions instead of waiting."""

    is_behind: bool = False
    while_behind: Callable[[], object] = nothing
    while_next: Callable[[], object] = nothing
    turns: int = 0
    """How often the process waited for its turn."""

    @contextmanager
    def place(self, deadline_ms: int | None = None) -> Iterator[Place]:
        yield ScriptedPlace(self)


class ScriptedPlace(Place):
    """A place of a process that must wait."""

    def __init__(self, queue: ScriptedQueue) -> None:
        super().__init__(Environment(), None, must_wait=True)
        self._queue = queue

    @property
    def is_behind(self) -> bool:
        return self._queue.is_behind

    def wait_to_be_next(self) -> None:
        self._queue.while_behind()

    def wait_for_turn(self) -> None:
        self._queue.turns += 1
        self._queue.while_next()


def queued(log: Log[Ledger], is_behind: bool) -> ScriptedQueue:
    """Let the process find others before it from here on: two if it is behind, else one that has its turn."""
    log.read(lambda state, slot: None)
    queue = ScriptedQueue(is_behind)
    script(log).host_queue = queue
    return queue


def append_for_others(log: Log[Ledger], name: str) -> int:
    """Let a process that was behind append a name in its turn, and what others have published. Return the slot."""
    queued(log, is_behind=True)
    return share(log, name)


def test_a_process_that_is_behind_publishes_and_another_appends_for_it() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=True)
    told: list[int] = []
    queue.while_behind = lambda: told.append(append_for_others(other, "other"))

    slot = share(log, "x")

    assert told == [slot]
    assert ["x"] in request_names(world, slot)
    assert names(other) == ["created", "x", "other"]
    assert queue.turns == 0
    assert log.appender.counts.by_others == 1
    assert script(log).requests["DELETE"] == 0
    assert published(world) == []


def test_a_process_whose_request_is_appended_while_it_is_next_puts_nothing() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=True)
    queue.while_next = lambda: append_for_others(other, "other")

    slot = share(log, "x")

    assert queue.turns == 1
    assert log.appender.counts.records == 0
    assert ["x"] in request_names(world, slot)


def test_the_next_process_publishes_nothing() -> None:
    world = World()
    world.created()
    log = world.process()
    queued(log, is_behind=False)

    share(log, "x")

    assert PUBLISHED not in environment(log).points
    assert script(log).requests["PUT"] == 1


def test_a_process_that_waited_loses_no_race_against_those_before_it() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=False)
    queue.while_behind = lambda: [other.append(add(name)) for name in "abc"]
    queue.while_next = lambda: other.append(add("d"))

    share(log, "x")

    assert names(log) == ["created", "a", "b", "c", "d", "x"]
    assert log.appender.counts.conflicts == 0


def test_a_process_that_is_behind_and_not_helped_appends_in_its_turn() -> None:
    world = World()
    world.created()
    log = world.process()
    queued(log, is_behind=True)

    slot = share(log, "x")

    assert request_names(world, slot) == [["x"]]
    assert published(world) == []


def test_a_refused_request_that_was_published_is_refused_by_its_own_process() -> None:
    world = World()
    other = world.created()
    share(other, "x")
    log = world.process()
    queue = queued(log, is_behind=True)
    queue.while_behind = lambda: append_for_others(other, "other")

    with pytest.raises(AlreadyThere):
        share(log, "x")

    assert published(world) == []


def test_publications_of_a_dead_process_are_appended_by_the_next_that_waits() -> None:
    world = World()
    log = world.created()
    publish(world, log.replica.slot, shared_add("dead").shared_entries)

    slot = append_for_others(log, "x")

    assert ["dead"] in request_names(world, slot)
    assert published(world) == []


def test_a_process_that_was_only_next_does_not_ask_for_publications() -> None:
    world = World()
    log = world.created()
    queued(log, is_behind=False)
    before = script(log).requests["LIST"]

    share(log, "x")

    assert script(log).requests["LIST"] == before


@pytest.mark.parametrize("point", ["log.shared.published", "log.shared.appended_by_another"])
def test_a_process_that_dies_in_the_queue_leaves_one_copy_of_its_request(point: str) -> None:
    world = World()
    other = world.created()
    dying = world.process()
    queue = queued(dying, is_behind=True)
    queue.while_behind = lambda: append_for_others(other, "other")
    at(dying, point, lambda: die(dying))

    with pytest.raises(Crashed):
        share(dying, "x")

    append_for_others(other, "last")
    assert names(other).count("x") == 1


def test_a_process_that_is_interrupted_in_the_queue_reports_an_unknown_outcome() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=True)

    def interrupted() -> None:
        raise KeyboardInterrupt

    queue.while_behind = interrupted
    with pytest.raises((KeyboardInterrupt, CommitStateUnknown)):
        share(log, "x")

    append_for_others(other, "other")
    queue.while_behind = nothing
    share(log, "x")
    assert names(other) == ["created", "other", "x"]


def test_without_others_a_commit_is_one_put() -> None:
    world = World()
    log = world.created()
    script(log).host_queue = HostQueue("/no/such/directory", Environment())
    before = script(log).requests.copy()

    slot = share(log, "x")

    assert script(log).requests - before == {"PUT": 1}
    assert record(world, slot).requests is None


def test_a_request_in_anothers_record_is_acknowledged_only_when_that_record_is_durable() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=True)
    queue.while_behind = lambda: append_for_others(other, "other")
    durable: list[str] = []
    script(log).make_durable = durable.append  # type: ignore[method-assign]

    slot = share(log, "x")

    assert slot_path(slot) in durable


def test_a_record_that_cannot_be_made_durable_is_not_acknowledged() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_behind=True)
    queue.while_behind = lambda: append_for_others(other, "other")

    def failing(path: str) -> None:
        raise StoreUnavailable("input/output error")

    script(log).make_durable = failing  # type: ignore[method-assign]

    with pytest.raises(CommitStateUnknown):
        share(log, "x")


def test_a_directory_that_refuses_publications_leaves_the_outcome_definite(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.created()
    log = world.process()
    queued(log, is_behind=True)

    def refused(objects: object, *, durable: bool = True) -> None:
        raise StoreAccessDenied("no space left on the device")

    with monkeypatch.context() as full:
        full.setattr(script(log), "put_new", refused)
        slot = share(log, "x")
    assert record(world, slot).requests is None

    assert request_names(world, share(log, "y")) == [["y"]]


def test_a_store_that_vanished_while_it_is_published_to_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.created()
    log = world.process()
    queued(log, is_behind=True)

    def vanished(objects: object, *, durable: bool = True) -> None:
        raise StoreVanished("the store has been removed")

    monkeypatch.setattr(script(log), "put_new", vanished)

    with pytest.raises(StoreVanished):
        share(log, "x")


def test_a_request_whose_deadline_is_near_is_not_published() -> None:
    world = World()
    world.created()
    log = world.process()
    queued(log, is_behind=True)

    share(log, "x", timeout_ms=500)

    assert PUBLISHED not in environment(log).points
