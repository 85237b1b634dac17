"""Several threads' appends share a record, and each gets the answer that is its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.errors import CommitStateUnknown, StoreAccessDenied, StoreUnavailable
from eoslog.log.log import Log
from eoslog.log.machine import Request
from eoslog.log.slots import slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.requests import Applying
from tests.unit.log.ledger import AlreadyThere, Ledger, LedgerMachine, add, add_once, add_with_id
from tests.unit.log.queueing import await_queued, held
from tests.unit.log.world import DAY_MS, Fault, World, names, script


def together(log: Log[Ledger], *requests: Request[Any]) -> list[Any]:
    """Append all in one group, in this order; the answers or errors of each."""
    outcomes: list[Any] = [None] * len(requests)

    def run(index: int) -> None:
        try:
            outcomes[index] = log.append(requests[index])
        except Exception as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(requests))]
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
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


def test_after_a_lost_race_only_requests_now_invalid_fail() -> None:
    world = World()
    other, log = world.created(), world.process()
    names(log)
    script(log).before.append(lambda: other.append(add("b")))

    a, b, c = together(log, add("a"), add("b"), add("c"))

    assert (a, c) == (2, 2)
    assert isinstance(b, AlreadyThere)


def test_an_entry_that_does_not_fit_into_a_record_goes_into_the_next_one() -> None:
    log = World().created()

    assert together(log, add_with_id("a"), add_with_id("b"), add("c")) == [1, 2, 1]


def test_an_answer_that_leans_on_a_record_waits_for_its_win() -> None:
    world = World()
    log = world.created()
    script(log).faults.append(Fault.DENIED)

    first, second = together(log, add_once("x"), add_once("x"))

    assert isinstance(first, StoreAccessDenied)
    assert not (second == "was there" and "x" not in names(world.process()))


def test_a_refusal_that_leans_on_a_record_waits_for_its_win() -> None:
    world = World()
    other, log = world.created(), world.process()
    names(log)
    script(log).before.append(lambda: other.append(add("z")))

    def x_unless_z(draft: Any) -> int:
        if "z" in draft.names:
            raise AlreadyThere("z")
        return add("x").apply(draft)

    first, second = together(log, Applying(x_unless_z), add("x"))

    assert isinstance(first, AlreadyThere)
    assert second == 2


def test_requests_outside_an_unknown_record_are_told_that_nothing_landed() -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.ANSWER_LOST] + [Fault.REQUEST_LOST] * 200)

    aboard, left_behind = together(log, add_with_id("a"), add_with_id("b"))
    script(log).faults.clear()

    assert isinstance(aboard, CommitStateUnknown)
    assert log.resolve(aboard.slot, aboard.append_id) is True
    assert isinstance(left_behind, StoreUnavailable)
    assert names(world.process()) == ["created", "a"]


def test_a_thread_that_is_interrupted_while_it_waits_appends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.created()

    def interrupted(proposal: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, held(log):
        patched.setattr(log.appender._queue, "_follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(add("a"))

    log.append(add("b"))

    assert names(world.process()) == ["created", "b"]


def test_an_interrupt_of_one_thread_leaves_the_others_an_unknown_outcome() -> None:
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
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
    for thread in threads:
        thread.join()

    assert sorted(type(error).__name__ for error in outcomes) == ["CommitStateUnknown", "KeyboardInterrupt"]
    assert names(log) == ["created"]


def test_a_follower_whose_leader_was_interrupted_twice_does_not_append_again() -> None:
    """The second interrupt comes before the leader has settled the follower's proposal. The record lands."""
    world = World()
    log = world.created()
    told: list[BaseException] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupted_again(error: BaseException) -> None:
        del log.replica.reset_unless_sound  # type: ignore[method-assign]
        script(log).land_late()
        raise KeyboardInterrupt

    def run(request: Request[Any]) -> None:
        try:
            log.append(request)
        except BaseException as error:
            told.append(error)

    script(log).faults.append(Fault.LATE)
    script(log).before.extend([lambda: None, interrupt])
    log.replica.reset_unless_sound = interrupted_again  # type: ignore[method-assign]
    follower = threading.Thread(
        target=run,
        args=(Applying(lambda draft: draft.entries.append({"type": "add", "name": f"follower at {draft.slot}"})),),
    )
    leader = threading.Thread(target=run, args=(add("leader"),))
    with held(log):
        for count, thread in enumerate((leader, follower), 1):
            thread.start()
            await_queued(log, count)
    leader.join()
    follower.join()

    assert sorted(type(error).__name__ for error in told) == ["CommitStateUnknown", "KeyboardInterrupt"]
    assert names(world.process()) == ["created", "leader", "follower at 1"]


def test_an_interrupted_leaders_queue_is_appended_by_its_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = World().created()
    append_all = log.appender._queue._append_all
    told: list[BaseException] = []

    def interrupted(*_: object) -> None:
        log.appender._queue._append_all = append_all
        raise KeyboardInterrupt

    def lead() -> None:
        try:
            log.append(add("interrupted"))
        except KeyboardInterrupt as error:
            told.append(error)

    leader = threading.Thread(target=lead)
    owner = threading.Thread(target=lambda: log.append(add("waiting")), daemon=True)
    with held(log):
        for count, thread in enumerate((leader, owner), 1):
            thread.start()
            await_queued(log, count)
        log.appender._queue._append_all = interrupted
    leader.join()
    owner.join(timeout=30)

    assert not owner.is_alive()
    assert len(told) == 1
    assert names(log) == ["created", "waiting"]


def test_a_group_too_large_for_a_record_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    from eoslog.log import next_record

    world = World()
    log = world.created()
    monkeypatch.setattr(next_record, "_LARGEST_SHARED_RECORD_BYTES", 1500)

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


def in_another_thread(work: Callable[[], Any]) -> Any:
    """Run ``work`` in another thread and return its result. It must not wait for this thread."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(timeout=60)
    return results[0]


def test_a_read_does_not_wait_for_the_record_that_another_thread_puts() -> None:
    log = World().created()
    seen: list[list[str]] = []
    script(log).before.append(lambda: seen.append(in_another_thread(lambda: names(log))))

    log.append(add("a"))

    assert seen == [["created"]]
    assert names(log) == ["created", "a"]


def test_a_read_may_show_a_record_before_its_writer_knows() -> None:
    log = World().created()
    seen: list[list[str]] = []
    script(log).faults.append(Fault.ANSWER_LOST)
    script(log).before.extend([lambda: None, lambda: seen.append(in_another_thread(lambda: names(log)))])

    assert log.append(add("a")) == 1

    assert seen == [["created", "a"]]
    assert log.append(add("b")) == 2
    assert names(log) == ["created", "a", "b"]


def test_a_read_may_open_the_replica_anew_while_a_record_is_put() -> None:
    world = World()
    log = world.created()
    script(log).before.append(lambda: in_another_thread(log.replica.open))

    assert log.append(add("a")) == 1

    assert names(log) == ["created", "a"] == names(world.process())


def test_an_opening_overtaken_by_an_append_keeps_the_newer_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = World().created()
    newest_slot = log.replica.reader.newest_slot

    def overtaken() -> int:
        slot = newest_slot()
        in_another_thread(lambda: log.append(add("a")))
        return slot

    monkeypatch.setattr(log.replica.reader, "newest_slot", overtaken)
    log.replica.open()

    assert log.read(lambda state, slot: slot, refresh=False) == 1
    assert log.read(lambda state, slot: state.names, refresh=False) == ["created", "a"]


def test_a_follower_learns_of_its_record_before_the_next_one_is_put() -> None:
    log = World().created()
    threads = {name: threading.Thread(target=log.append, args=(add(name),), daemon=True) for name in "abc"}
    is_follower_done: list[bool] = []

    def queue_third() -> None:
        threads["c"].start()
        await_queued(log, 1)

    def await_follower() -> None:
        threads["b"].join(timeout=60)
        is_follower_done.append(not threads["b"].is_alive())

    script(log).before.extend([queue_third, await_follower])
    with held(log):
        for count, name in enumerate("ab", 1):
            threads[name].start()
            await_queued(log, count)
    for thread in threads.values():
        thread.join()

    assert is_follower_done == [True]
    assert log.read(lambda state, slot: state.slots) == {"created": 0, "a": 1, "b": 1, "c": 2}


def test_another_threads_reopening_confirms_no_win_in_a_deleted_name() -> None:
    world = World()
    world.created()
    log = world.process(commit_timeout_ms=10 * DAY_MS)
    names(log)

    def delete_slots() -> None:
        other = world.process()
        for name in "xyz":
            other.append(add(name))
            other.checkpoint()
        world.now_ms += 3 * DAY_MS
        script(other).delete([slot_path(slot) for slot in range(3)])

    script(log).faults.append(Fault.ANSWER_LOST)
    script(log).before.extend([delete_slots, lambda: in_another_thread(lambda: names(log))])

    with pytest.raises(CommitStateUnknown):
        log.append(add("mine"))

    assert names(log) == ["created", "x", "y", "z"] == names(world.process())


def test_an_interrupted_follower_is_not_made_leader_by_an_interrupted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = World().created()
    append_all, follow = log.appender._queue._append_all, log.appender._queue._follow
    is_taken = threading.Event()
    threads: dict[str, threading.Thread] = {}
    requests = {name: add(name) for name in ("leader", "follower", "waiting")}

    def append(name: str) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            log.append(requests[name])

    def interrupted_follower(proposal: Any) -> bool:
        if proposal.content is not requests["follower"]:
            return follow(proposal)
        is_taken.wait(timeout=30)
        raise KeyboardInterrupt

    def interrupted_leader(*_: object) -> None:
        log.appender._queue._append_all = append_all
        is_taken.set()
        threads["follower"].join(timeout=30)
        raise KeyboardInterrupt

    monkeypatch.setattr(log.appender._queue, "_follow", interrupted_follower)
    threads |= {name: threading.Thread(target=append, args=(name,), daemon=True) for name in requests}
    leader = threads["leader"]
    with held(log):
        for count, thread in enumerate(threads.values(), 1):
            thread.start()
            await_queued(log, count)
        log.appender._queue._append_all = interrupted_leader
    leader.join(timeout=30)
    threads["waiting"].join(timeout=30)

    assert not threads["waiting"].is_alive()
    assert names(log) == ["created", "waiting"]
