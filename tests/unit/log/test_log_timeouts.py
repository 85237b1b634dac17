"""A caller's own time limit shortens what the log's settings allow, and says truly whether something was appended."""

from __future__ import annotations

import itertools
import threading

import pytest

from eoslog.errors import CommitStateUnknown, StoreUnavailable
from tests.unit.log.ledger import add, add_once
from tests.unit.log.world import Fault, World, names, script


def test_an_unanswered_append_is_unknown_when_its_callers_time_is_up() -> None:
    world = World()
    log = world.created(commit_timeout_ms=60_000)
    script(log).faults.extend([Fault.LATE] * 1000)
    began_ms = world.now_ms

    with pytest.raises(CommitStateUnknown):
        log.append(add("x"), timeout_ms=700)

    assert 700 <= world.now_ms - began_ms < 1400
    script(log).faults.clear()
    script(log).land_late()
    assert names(log) == ["created", "x"]


def test_the_logs_settings_bound_an_append_of_a_patient_caller() -> None:
    world = World()
    log = world.created(commit_timeout_ms=1000)
    script(log).faults.extend([Fault.REQUEST_LOST] * 1000)
    began_ms = world.now_ms

    with pytest.raises(CommitStateUnknown):
        log.append(add("x"), timeout_ms=60_000)

    assert world.now_ms - began_ms < 2000


def test_an_append_without_any_time_is_tried_once() -> None:
    log = World().created()

    assert log.append(add("x"), timeout_ms=0) == 1


def test_a_caller_may_be_more_patient_than_a_lock_allows() -> None:
    """Kafka's largest ``max.block.ms``, 2**63 - 1."""
    world = World()

    world.created().append(add("x"), timeout_ms=2**63 - 1)

    assert names(world.process()) == ["created", "x"]


def test_an_append_that_loses_every_race_ends_and_leaves_nothing() -> None:
    world = World()
    log, other = world.created(), world.process()
    numbers = itertools.count()
    win = lambda: other.append(add(f"o{next(numbers)}"))  # noqa: E731
    names(other)
    script(log).before.extend([win] * 1000)

    with pytest.raises(StoreUnavailable, match=r"Nothing was appended\. Repeat the call"):
        log.append(add("x"), timeout_ms=50)

    script(log).before.clear()
    assert "x" not in names(log)


def test_an_append_leaves_the_queue_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    log = World().created()
    hangs, may_go_on = threading.Event(), threading.Event()
    put = log.store.put_if_absent

    def slow(path: str, body: bytes) -> object:
        hangs.set()
        assert may_go_on.wait(60)
        return put(path, body)

    monkeypatch.setattr(log.store, "put_if_absent", slow)
    first = threading.Thread(target=log.append, args=(add("first"),))
    first.start()
    assert hangs.wait(60)

    with pytest.raises(StoreUnavailable, match=r"Nothing was appended\. Repeat the call"):
        log.append(add("second"), timeout_ms=1)

    may_go_on.set()
    first.join(60)
    log.append(add_once("third"))
    assert names(log) == ["created", "first", "third"]
