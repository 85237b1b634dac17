"""An object that admits one call at a time: which waiting call enters, and when a wait ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from eoslog.errors import ConcurrentAccess
from eoslog.storage.calls import Call, Exclusive, StepLock
from eoslog.storage.environment import Environment

LONG_MS = 1_000_000


@pytest.fixture
def exclusive() -> Exclusive:
    return Exclusive("object", "Repeat the call.", Environment())


def of_another_thread(name: str) -> Call:
    call = Call(name)
    call.thread = -1
    return call


def test_a_call_waits_for_the_call_whose_turn_it_is(exclusive: Exclusive) -> None:
    exclusive.next_call = of_another_thread("next")

    assert not exclusive.enter(Call("overtaking"), 10)


def test_a_call_out_of_turn_does_not_wait(exclusive: Exclusive) -> None:
    exclusive.next_call = of_another_thread("next")

    assert exclusive.enter(Call("close()"), 0, out_of_turn=True)


def test_a_handler_s_call_does_not_wait_for_the_call_that_it_interrupts(exclusive: Exclusive) -> None:
    waiting = exclusive.next_call = Call("waiting")

    assert exclusive.enter(Call("of the handler"), 0)
    assert exclusive.next_call is waiting


@pytest.mark.parametrize("patience_ms", [LONG_MS, None])
def test_a_turn_passes_if_its_thread_does_not_run(exclusive: Exclusive, patience_ms: int | None) -> None:
    exclusive.next_call = of_another_thread("of a thread that waits for this one")

    assert exclusive.enter(Call("waiting"), patience_ms)


def test_a_turn_passes_with_its_call(exclusive: Exclusive) -> None:
    left = exclusive.next_call = of_another_thread("left")
    left.has_left = True

    assert exclusive.enter(Call("entering"), 0)
    assert exclusive.next_call is None


def test_an_overtaken_call_has_the_next_turn() -> None:
    turns: list[Call | None] = []

    class Overtaking(Environment):
        """Each time a call waits, the object becomes free. At first another call enters before the waiting one runs."""

        def wait_for(self, event: Any, patience_s: float | None = None) -> bool:
            turns.append(exclusive.next_call)
            exclusive.holder = None
            exclusive.wake()
            assert event.is_set()
            if len(turns) == 1:
                assert exclusive.enter(of_another_thread("overtaking"), 0)
            else:
                assert not exclusive.enter(of_another_thread("too late"), 0)
            return True

    exclusive = Exclusive("object", "Repeat the call.", Overtaking())
    assert exclusive.enter(of_another_thread("first"), 0)
    waiting = Call("waiting")

    assert exclusive.enter(waiting, LONG_MS)
    assert turns == [None, waiting]
    assert exclusive.next_call is None


def test_a_wait_ends_in_time_though_others_wake_it(exclusive: Exclusive) -> None:
    assert exclusive.enter(of_another_thread("long"), 0)
    is_over = threading.Event()

    def wake() -> None:
        while not is_over.is_set():
            exclusive.wake()

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        assert not exclusive.enter(Call("waiting"), 20)
    finally:
        is_over.set()
        thread.join()


def test_a_wait_can_be_given_up(exclusive: Exclusive) -> None:
    assert exclusive.enter(of_another_thread("long"), 0)

    assert not exclusive.enter(Call("waiting"), LONG_MS, is_given_up=lambda: True)
    assert not exclusive.waiting


def test_a_step_is_refused_in_the_thread_that_holds_its_lock() -> None:
    lock = StepLock()
    with lock.checked("the step"), pytest.raises(ConcurrentAccess, match="the step is not allowed"):
        lock.checked("the step")

    with lock.checked("the step"):
        pass
