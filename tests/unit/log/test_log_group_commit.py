"""Several threads' appends share a record, and each gets the answer that is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.errors import CommitStateUnknown, EosLogError, StoreAccessDenied, StoreUnavailable
from eoslog.log.log import Log
from eoslog.store.environment import Environment
from eoslog.store.memory import MemoryStore
from tests.unit.log.ledger import AlreadyThere, Ledger, LedgerMachine, add, add_once, add_with_id
from tests.unit.log.world import Fault, World, names, script


def together(log: Log[Ledger], *proposals: Callable[[Any], Any]) -> list[Any]:
    """Append all in one group, in this order; the answers or errors of each."""
    outcomes: list[Any] = [None] * len(proposals)

    def run(index: int) -> None:
        try:
            outcomes[index] = log.append(proposals[index])
        except Exception as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(proposals))]
    with log._turns.lock:
        for count, thread in enumerate(threads, 1):
            thread.start()
            while len(log._turns.waiting) < count:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    return outcomes


def test_appends_that_wait_together_go_into_one_record() -> None:
    log = World().created()

    assert together(log, add("a"), add("b"), add("c")) == [1, 1, 1]
    assert names(log) == ["created", "a", "b", "c"]


def test_one_that_is_refused_does_not_hold_the_others_up() -> None:
    log = World().created()

    a, refused, b = together(log, add("a"), add("created"), add("b"))

    assert (a, b) == (1, 1)
    assert isinstance(refused, AlreadyThere)


def test_a_refused_append_leaves_nothing_of_its_entries() -> None:
    world = World()
    log = world.created()

    together(log, add("a"), add("half", "created"), add("b"))

    assert names(world.process()) == ["created", "a", "b"]


def test_after_a_lost_race_those_that_became_invalid_get_their_own_errors_and_the_rest_goes_on() -> None:
    world = World()
    other, log = world.created(), world.process()
    names(log)
    script(log).before.append(lambda: other.append(add("b")))

    a, b, c = together(log, add("a"), add("b"), add("c"))

    assert (a, c) == (2, 2)
    assert isinstance(b, AlreadyThere)


def test_what_does_not_fit_into_the_record_goes_into_the_next() -> None:
    log = World().created()

    assert together(log, add_with_id("a"), add_with_id("b"), add("c")) == [1, 2, 1]


def test_an_answer_that_leans_on_a_record_is_not_given_before_that_record_is_won() -> None:
    world = World()
    log = world.created()
    script(log).faults.append(Fault.DENIED)

    first, second = together(log, add_once("x"), add_once("x"))

    assert isinstance(first, StoreAccessDenied)
    assert not (second == "was there" and "x" not in names(world.process()))


def test_a_refusal_that_leans_on_a_record_is_not_given_before_that_record_is_won() -> None:
    world = World()
    other, log = world.created(), world.process()
    names(log)
    script(log).before.append(lambda: other.append(add("z")))

    def x_unless_z(draft: Any) -> int:
        if "z" in draft.names:
            raise AlreadyThere("z")
        return add("x")(draft)

    first, second = together(log, x_unless_z, add("x"))

    assert isinstance(first, AlreadyThere)
    assert second == 2


def test_when_the_fate_of_a_record_is_unknown_those_not_in_it_are_told_that_nothing_landed() -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.ANSWER_LOST] + [Fault.REQUEST_LOST] * 200)

    aboard, left_behind = together(log, add_with_id("a"), add_with_id("b"))
    script(log).faults.clear()

    assert isinstance(aboard, CommitStateUnknown)
    assert log.resolve(aboard.slot, aboard.token) is True
    assert isinstance(left_behind, StoreUnavailable)
    assert names(world.process()) == ["created", "a"]


class _InterruptedOnce:
    """A lock for which the first to wait is interrupted."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._is_over = False

    def acquire(self, timeout: float = -1) -> bool:
        if not self._is_over:
            self._is_over = True
            raise KeyboardInterrupt
        return bool(self._lock.acquire(timeout=timeout))

    def release(self) -> None:
        self._lock.release()


def test_who_is_interrupted_while_it_waits_for_its_turn_appends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.created()
    with monkeypatch.context() as patched:
        patched.setattr(log._turns, "lock", _InterruptedOnce(log._turns.lock))
        with pytest.raises(KeyboardInterrupt):
            log.append(add("a"))

    log.append(add("b"))

    assert names(world.process()) == ["created", "b"]


def test_an_interrupt_of_one_thread_tells_the_others_that_the_outcome_is_unknown() -> None:
    world = World()
    log = world.created()
    outcomes: list[BaseException | None] = [None, None]

    def interrupt() -> None:
        raise KeyboardInterrupt

    script(log).before.append(interrupt)

    def run(index: int) -> None:
        try:
            log.append(add(f"n{index}"))
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    with log._turns.lock:
        for count, thread in enumerate(threads, 1):
            thread.start()
            while len(log._turns.waiting) < count:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join()

    assert sorted(type(error).__name__ for error in outcomes) == ["CommitStateUnknown", "KeyboardInterrupt"]
    assert names(log) == ["created"]


def test_who_was_aboard_of_a_record_whose_thread_was_interrupted_twice_does_not_append_again() -> None:
    """The second interrupt came before the first was told to those aboard; the record lands."""
    world = World()
    log = world.created()
    told: list[BaseException] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupted_again(error: BaseException) -> None:
        del log._drop_view_unless_sound  # type: ignore[method-assign]
        script(log).land_late()
        raise KeyboardInterrupt

    def run() -> None:
        try:
            log.append(lambda draft: draft.entries.append({"type": "add", "name": f"passenger at {draft.slot}"}))
        except EosLogError as error:
            told.append(error)

    script(log).faults.append(Fault.LATE)
    script(log).before.extend([lambda: None, interrupt])
    log._drop_view_unless_sound = interrupted_again  # type: ignore[method-assign]
    passenger = threading.Thread(target=run)
    with log._turns.lock:
        passenger.start()
        while not log._turns.waiting:
            threading.Event().wait(0.001)
        with pytest.raises(KeyboardInterrupt):
            log.append(add("leader"))
    passenger.join()

    assert [type(error) for error in told] == [CommitStateUnknown]
    assert names(world.process()) == ["created", "passenger at 1", "leader"]


def test_what_a_thread_took_from_the_queue_and_was_interrupted_before_it_began_is_appended_by_its_owner() -> None:
    log = World().created()
    append_all = log._append_all

    def interrupted(*_: object, **__: object) -> None:
        log._append_all = append_all  # type: ignore[method-assign]
        raise KeyboardInterrupt

    owner = threading.Thread(target=lambda: log.append(add("waiting")), daemon=True)
    with log._turns.lock:
        owner.start()
        while not log._turns.waiting:
            threading.Event().wait(0.001)
        log._append_all = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            log.append(add("interrupted"))
    owner.join(timeout=30)

    assert not owner.is_alive()
    assert names(log) == ["created", "waiting"]


def test_a_group_too_large_for_a_record_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    from eoslog.log import log as log_module

    world = World()
    log = world.created()
    monkeypatch.setattr(log_module, "LARGEST_RECORD_BYTES", 1500)

    slots = together(log, add("a" * 800), add("b" * 800), add("c" * 800))

    assert sorted(slots) == [1, 2, 3]
    assert len(names(world.process())) == 4


def test_many_threads_lose_and_repeat_nothing_and_share_records() -> None:
    log = Log(MemoryStore(Environment()), LedgerMachine(), Environment())
    log.create(add("created"))
    threads, each = 8, 25
    answers: dict[str, int] = {}

    def work(thread: int) -> None:
        for number in range(each):
            name = f"{thread}-{number}"
            answers[name] = log.append(add(name))

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert log.read(lambda state, slot: {name: at for name, at in state.slots.items() if at}) == answers
    assert len(answers) == threads * each
