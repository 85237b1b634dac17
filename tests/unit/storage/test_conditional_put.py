"""A conditional put tells whose object has a path, whatever the object store answers."""

from __future__ import annotations

import pytest

from eoslog.errors import StoreAccessDenied, StoreUnavailable
from eoslog.storage.conditional_put import Lost, Unknown, Won, put_next, put_once
from tests.unit.log.world import Fault, ProcessEnvironment, ScriptedStore, World

PATH = "decision/1"
MINE, OTHERS = b"mine", b"others'"


class Writer:
    """A process that puts objects."""

    def __init__(self, world: World, name: str = "a", *faults: Fault) -> None:
        self.environment = ProcessEnvironment(world, name)
        self.store = ScriptedStore(self.environment, world.name, clock=lambda: world.now_ms, tail_bytes=0)
        self.store.faults.extend(faults)

    def put(self, body: bytes, timeout_ms: int | None = None) -> Won | Lost | Unknown:
        deadline_ms = None if timeout_ms is None else self.environment.monotonic_ms() + timeout_ms
        return put_next(self.store, self.environment, PATH, body, deadline_ms=deadline_ms)

    def stored(self) -> bytes:
        return self.store.get(PATH).body


def test_the_first_of_two_puts_wins_and_the_second_one_gets_its_bytes() -> None:
    world = World()

    assert Writer(world, "other").put(OTHERS) == Won(was_found=False)
    assert Writer(world).put(MINE) == Lost(OTHERS)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.RETRIED_INSIDE])
def test_a_put_that_landed_without_its_answer_finds_its_own_object(fault: Fault) -> None:
    writer = Writer(World(), "a", fault)

    assert writer.put(MINE) == Won(was_found=True)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.CONFLICT])
def test_a_put_that_did_not_land_is_repeated(fault: Fault) -> None:
    writer = Writer(World(), "a", *[fault] * 10)

    assert writer.put(MINE) == Won(was_found=False)


def test_a_put_without_an_answer_in_time_is_unknown_and_may_land_later() -> None:
    writer = Writer(World(), "a", *[Fault.LATE] * 200)

    outcome = writer.put(MINE, timeout_ms=1_000)

    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    writer.store.land_late()
    assert writer.stored() == MINE


def test_conflicts_until_the_time_is_up_leave_nothing() -> None:
    writer = Writer(World(), "a", *[Fault.CONFLICT] * 200)

    with pytest.raises(StoreUnavailable, match="Nothing was written"):
        writer.put(MINE, timeout_ms=1_000)


def test_conflicts_after_a_put_without_an_answer_leave_the_outcome_unknown() -> None:
    writer = Writer(World(), "a", Fault.LATE, *[Fault.CONFLICT] * 200)

    assert isinstance(writer.put(MINE, timeout_ms=1_000), Unknown)


def test_a_refusal_is_raised_unless_an_earlier_put_got_no_answer() -> None:
    world = World()

    with pytest.raises(StoreAccessDenied):
        Writer(world, "a", Fault.DENIED).put(MINE)
    assert isinstance(Writer(world, "b", Fault.LATE, Fault.DENIED).put(MINE), Unknown)


def test_an_object_that_was_deleted_since_may_have_been_that_of_the_put() -> None:
    writer = Writer(World(), "a", Fault.RETRIED_INSIDE)

    def delete_before_the_read(path: str) -> None:
        writer.store.delete([path])

    writer.store.refuse_get = delete_before_the_read  # type: ignore[assignment]

    assert isinstance(writer.put(MINE), Unknown)


@pytest.mark.parametrize("error", [StoreAccessDenied("denied"), StoreUnavailable("gone")])
def test_an_object_that_cannot_be_read_may_be_that_of_the_put(error: Exception) -> None:
    writer = Writer(World(), "a", Fault.RETRIED_INSIDE)
    writer.store.refuse_get = lambda path: error

    assert isinstance(writer.put(MINE), Unknown)


def test_an_object_that_is_put_once_is_the_same_for_all() -> None:
    world = World()
    first, second = Writer(world, "a"), Writer(world, "b")

    assert put_once(first.store, first.environment, PATH, MINE) == MINE
    assert put_once(second.store, second.environment, PATH, OTHERS) == MINE


def test_an_object_that_is_put_once_without_an_answer_is_an_error() -> None:
    writer = Writer(World(), "a", *[Fault.REQUEST_LOST] * 200)

    with pytest.raises(StoreUnavailable, match="may land later"):
        put_once(writer.store, writer.environment, PATH, MINE)
