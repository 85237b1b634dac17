"""Requests that were sent to another process: which record has them, and what their own process is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eoslog.errors import CommitStateUnknown, OutcomeLost
from eoslog.log import contention, next_record
from eoslog.log.log import Log
from eoslog.log.slots import IncludedRequest, SlotRecord, encode_line, slot_path
from tests.unit.log.ledger import Ledger, SharedAdd, add, add_once, shared_add
from tests.unit.log.queueing import await_queued, held
from tests.unit.log.turns import (
    SENT,
    ScriptedQueue,
    append_for,
    at,
    message_of,
    queued,
    queued_beside_another,
    record,
    request_names,
    share,
)
from tests.unit.log.world import Fault, World, environment, names, script
from tests.unit.support.recorded import Recorded, attributes

LONG_MS = 60_000


def raced(log: Log[Ledger], other: Log[Ledger], count: int) -> None:
    """Let ``other`` append before each of the log's next puts, so that the log loses these races."""
    log.read(lambda state, slot: None)
    script(log).before.extend(lambda name=f"lost {number}": other.append(add(name)) for number in range(count))  # type: ignore[misc]


def passing_time(world: World, queue: ScriptedQueue) -> Callable[[], None]:
    """Return a wait in which more time passes than the callers have. The turn does not come."""

    def wait() -> None:
        queue.gets_turn = False
        world.now_ms += 2 * LONG_MS

    return wait


# Without turns


def test_processes_without_turns_race_and_send_nothing() -> None:
    world = World()
    log = world.process()
    assert script(log).host_queue is None
    raced(log, world.created(), 3)
    before = script(log).requests["PUT"]

    slot = share(log, "x")

    assert slot == 4
    assert log.appender.counts.conflicts == 3
    assert script(log).requests["PUT"] - before == 4
    assert record(world, slot).requests is None
    assert SENT not in environment(log).points


# What is sent


def test_a_request_that_no_other_process_may_append_is_not_sent(world: World) -> None:
    log = world.process()
    queue = queued(log)

    log.append(add("mine"))

    assert queue.sent == [b""]
    assert names(log)[-1] == "mine"


def test_a_request_too_large_for_a_message_is_appended_by_its_own_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.process()
    queue = queued(log)
    monkeypatch.setattr(contention, "LARGEST_MESSAGE_BYTES", 200)

    slot = share(log, "x" * 200)

    assert queue.sent == [b""]
    assert record(world, slot).requests is None


# One record for several processes


def test_one_record_holds_several_processes_requests_and_each_learns_its_slot() -> None:
    world = World()
    holder = world.created()
    first, second = world.process(), world.process()
    queues = [queued(first), queued(second)]
    told: list[int] = []
    queues[0].while_waiting = lambda: told.append(share(second, "y"))
    queues[1].while_waiting = lambda: told.append(append_for(holder, [queue.sent[0] for queue in queues], "z"))

    told.append(share(first, "x"))

    slot = holder.replica.slot
    assert told == [slot] * 3
    assert request_names(world, slot) == [["x"], ["y"]]
    assert names(holder) == ["created", "x", "y", "z"]
    assert "log.shared.appended_for_others" in environment(holder).points
    assert environment(first).points[-1] == "log.shared.appended_by_another"


def test_the_span_of_a_request_that_another_process_has_appended_says_so(recorded: Recorded) -> None:
    _, holder, log, queue = queued_beside_another()
    queue.while_waiting = lambda: append_for(holder, queue.sent)

    slot = share(log, "x")

    named = "eoslog.append.conflicts", "eoslog.append.by_another_process"
    found = [
        tuple(attributes(span).get(name) for name in named)
        for span in recorded.spans
        if attributes(span).get("eoslog.slot") == slot
    ]
    assert found == [(0, False), (0, True)]


def test_the_threads_of_a_process_learn_their_outcomes_one_by_one() -> None:
    world, holder, log, queue = queued_beside_another()
    queue.while_waiting = lambda: append_for(holder, queue.sent)
    told: dict[str, int] = {}
    threads = [threading.Thread(target=lambda name=name: told.update({name: share(log, name)})) for name in "xyz"]  # type: ignore[misc]
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
    for thread in threads:
        thread.join()

    assert told == dict.fromkeys("xyz", holder.replica.slot)
    assert request_names(world, holder.replica.slot) == [["x"], ["y"], ["z"]]


def test_a_request_already_done_is_left_out() -> None:
    world = World()
    holder = world.created()
    share(holder, "done")

    slot = append_for(holder, [message_of(1, shared_add("done").shared_entries, shared_add("new").shared_entries)])

    assert request_names(world, slot) == [["new"]]
    assert names(holder) == ["created", "done", "new", "other"]


def test_a_process_that_is_sent_a_newer_slot_reads_the_log_first() -> None:
    """On the state that it knows, the request of the other process may not be valid yet."""
    world = World()
    holder, other = world.created(), world.process()
    queue = queued(holder)
    for name in "ab":
        other.append(add(name))
    queue.is_first, queue.received = True, [message_of(2, shared_add("x").shared_entries)]

    slot = share(holder, "y")

    assert slot == 3
    assert holder.appender.counts.conflicts == 0
    assert request_names(world, slot) == [["x"]]


def test_requests_that_make_a_record_too_large_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    holder = world.created()
    messages = [
        message_of(0, shared_add(f"n{number}{'x' * 300}").shared_entries, name=f"{number:032x}") for number in range(4)
    ]
    monkeypatch.setattr(next_record, "_LARGEST_SHARED_RECORD_BYTES", 1_500)

    first, second = append_for(holder, messages, "first"), append_for(holder, messages[2:], "second")

    assert [len(request_names(world, slot)) for slot in (first, second)] == [2, 2]
    assert len(names(holder)) == 7


def test_a_refusal_beside_others_requests_is_asked_again_without_them() -> None:
    world = World()
    holder = world.created()
    queue = queued(holder)
    queue.is_first, queue.received = True, [message_of(0, shared_add("x").shared_entries)]

    assert holder.append(SharedAdd(("x",), add_once("x"), lambda entries, slot: "added")) == "added"
    assert names(holder) == ["created", "x"]


# Deadlines, and answers that are lost


def test_a_writer_whose_time_is_up_learns_its_request_may_land(world: World) -> None:
    log = world.process()
    queue = queued(log)
    queue.while_waiting = passing_time(world, queue)

    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x", timeout_ms=LONG_MS)

    assert caught.value.is_sent
    assert log.replica.awaited == {}
    assert log.appender.find_request(caught.value.slot, caught.value.append_id) is None


def test_a_request_given_up_and_landed_is_found_by_its_id() -> None:
    world, holder, log, queue = queued_beside_another()
    queue.while_waiting = passing_time(world, queue)
    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x", timeout_ms=LONG_MS)

    slot = append_for(holder, queue.sent)

    found = log.appender.find_request(caught.value.slot, caught.value.append_id)
    assert found is not None
    assert ([entry["name"] for entry in found[0]], found[1]) == (["x"], slot)


def test_an_unanswered_put_of_the_own_record_leaves_the_request_unknown(world: World) -> None:
    log = world.process()
    queued(log)
    at(log, SENT, lambda: script(log).faults.extend([Fault.LATE] * 200))

    with pytest.raises(CommitStateUnknown) as caught:
        share(log, "x")

    script(log).faults.clear()
    script(log).land_late()
    assert caught.value.is_sent
    assert log.appender.find_request(caught.value.slot, caught.value.append_id) is not None


# Records that a replica skipped


def test_a_reopened_replica_looks_for_its_request_in_the_skipped_records() -> None:
    world, holder, log, queue = queued_beside_another()

    def another_appends_and_the_replica_is_opened_again() -> None:
        append_for(holder, queue.sent)
        log.replica.open()

    at(log, SENT, another_appends_and_the_replica_is_opened_again)

    slot = share(log, "x")

    assert slot == holder.replica.slot
    assert request_names(world, slot) == [["x"]]


def test_a_skipped_record_that_is_gone_leaves_the_outcome_lost() -> None:
    _, holder, log, queue = queued_beside_another()

    def another_appends_and_its_record_goes() -> None:
        slot = append_for(holder, queue.sent)
        script(holder).host_queue = None
        for number in range(3):
            holder.append(add(f"n{number}"))
            holder.checkpoint()
        script(holder).delete([slot_path(each) for each in range(slot + 1)])
        log.replica.open()

    at(log, SENT, another_appends_and_its_record_goes)

    with pytest.raises(OutcomeLost):
        share(log, "x")

    assert names(log).count("x") == 1


# What no version of eoslog writes


@pytest.mark.parametrize(("first_entry", "entry_count"), [(0, 0), (7, 1), (1, 1)])
def test_a_record_that_names_a_request_for_other_entries_answers_nobody(
    world: World, first_entry: int, entry_count: int
) -> None:
    log = world.process()
    queue = queued(log)

    def forge() -> None:
        name = json.loads(queue.sent[0])["name"]
        request = IncludedRequest(request_id=f"{name}-0", first_entry=first_entry, entry_count=entry_count)
        entries = ({"type": "add", "name": "forged"}, {"type": "add", "name": "forged, too"})
        newest = record(world, log.replica.slot)
        forged = SlotRecord(
            slot=newest.slot + 1, append_id="7" * 32, prev=newest.append_id, entries=entries, requests=(request,)
        )
        world.put(forged.slot, encode_line(forged))

    at(log, SENT, forge)

    slot = log.append(replace(shared_add("x"), answer=_only_for_x))

    assert names(log)[-1] == "x"
    assert slot == log.replica.slot


def _only_for_x(entries: Sequence[Any], slot: int) -> int:
    (entry,) = entries
    if entry["name"] != "x":
        raise ValueError("another request's entry")
    return slot


# Interrupts


def test_an_interrupted_writer_leaves_nothing_that_waits(world: World) -> None:
    log = world.process()
    queued(log)

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(log, SENT, interrupt)

    with pytest.raises(KeyboardInterrupt):
        share(log, "x")

    assert log.replica.awaited == {}
    share(log, "y")
    assert names(log)[-1] == "y"


def test_a_follower_of_an_interrupted_writer_learns_its_request_may_land(world: World) -> None:
    log = world.process()
    queued(log)
    told: list[BaseException] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(log, SENT, interrupt)

    def run(name: str) -> None:
        try:
            share(log, name)
        except BaseException as error:
            told.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "xy"]
    with held(log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(log, count)
    for thread in threads:
        thread.join()

    assert sorted(type(each).__name__ for each in told) == ["CommitStateUnknown", "KeyboardInterrupt"]
    (unknown,) = (each for each in told if isinstance(each, CommitStateUnknown))
    assert unknown.is_sent
