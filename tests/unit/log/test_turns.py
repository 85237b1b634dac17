"""Processes of one host take turns. A process sends its requests to the one that has the turn, which appends them."""

from __future__ import annotations

import threading

import pytest

from eoslog.errors import CommitStateUnknown, StoreAccessDenied, StoreUnavailable
from eoslog.log import contention
from eoslog.log.log import Log
from eoslog.log.slots import first_line, slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import LARGEST_MESSAGE_BYTES, HostQueue
from tests.unit.log.ledger import AlreadyThere, Ledger, add
from tests.unit.log.queueing import await_queued, held
from tests.unit.log.turns import (
    SENT,
    ScriptedQueue,
    append_for,
    at,
    die,
    message_of,
    queued,
    queued_beside_another,
    record,
    request_names,
    share,
)
from tests.unit.log.world import Crashed, Fault, World, environment, names, script

TAIL = 64 << 10


def test_the_process_that_has_the_turn_appends_what_it_was_sent() -> None:
    world, other, log, queue = queued_beside_another()
    told: list[int] = []
    queue.while_waiting = lambda: told.append(append_for(other, queue.sent))

    slot = share(log, "x")

    assert told == [slot]
    assert ["x"] in request_names(world, slot)
    assert names(other) == ["created", "x", "other"]
    assert log.appender.counts.by_others == 1
    assert script(log).requests["PUT"] == 0


def records_of(log: Log[Ledger]) -> bytes:
    return log.replica.newest_records(LARGEST_MESSAGE_BYTES)


def requests_of_a_share(log: Log[Ledger], name: str) -> dict[str, int]:
    before = script(log).requests.copy()
    share(log, name)
    return dict(script(log).requests - before)


def test_a_process_that_was_answered_reads_no_record() -> None:
    world = World(tail_bytes=TAIL)
    other = world.created()
    log = world.process()
    queue = queued(log)
    queue.while_asking = lambda: [other.append(add(name)) for name in "ab"]
    queue.while_waiting = lambda: append_for(other, queue.sent)
    queue.answers, queue.hands_over = True, lambda: records_of(other)

    assert requests_of_a_share(log, "x") == {}

    assert names(log) == ["created", "a", "b", "x", "other"]
    assert log.appender.counts.by_others == 1


def test_a_process_that_gets_the_turn_with_the_newest_record_reads_none() -> None:
    world = World(tail_bytes=TAIL)
    other = world.created()
    log = world.process()
    queue = queued(log)
    queue.while_waiting = lambda: other.append(add("a"))
    queue.hands_over = lambda: records_of(other)

    assert requests_of_a_share(log, "x") == {"PUT": 1}

    assert names(log) == ["created", "a", "x"]
    assert log.appender.counts.conflicts == 0


def test_a_process_hands_over_the_record_of_its_turn() -> None:
    world = World(tail_bytes=TAIL)
    other = world.created()

    append_for(other, [])

    queue = script(other).host_queue
    assert isinstance(queue, ScriptedQueue)
    assert queue.newest == records_of(other)
    assert first_line(world.body(1)) in queue.newest


def test_a_process_that_appended_nothing_hands_over_nothing() -> None:
    """The next process must read the log: the outcome of the put is not known."""
    world = World(tail_bytes=TAIL)
    log = world.created()
    queue = queued(log)
    queue.is_first = True
    script(log).faults.append(Fault.DENIED)

    with pytest.raises(StoreAccessDenied):
        share(log, "x")

    assert queue.newest == b""


@pytest.mark.parametrize("most_bytes", [0, 1, 20, 200, 300, 600, 10_000])
def test_records_that_leave_a_gap_are_read(most_bytes: int) -> None:
    world = World(tail_bytes=TAIL)
    other = world.created()
    log = world.process()
    queue = queued(log)
    queue.while_asking = lambda: [other.append(add(name)) for name in "abc"]
    queue.hands_over = lambda: other.replica.newest_records(most_bytes)

    share(log, "x")

    assert len(queue.hands_over()) <= most_bytes
    assert names(log) == ["created", "a", "b", "c", "x"]
    assert log.appender.counts.conflicts == 0


@pytest.mark.parametrize("records", [b"x", b"1", b"1\n", b"1\n{}", b"-1\n{}", b"1\nnull\nnull", b"\n\n", b"1" * 5000])
def test_malformed_records_are_passed_over(records: bytes) -> None:
    world = World(tail_bytes=TAIL)
    other = world.created()
    log = world.process()
    queue = queued(log)
    queue.while_waiting = lambda: append_for(other, queue.sent)
    queue.hands_over = lambda: records

    share(log, "x")

    assert names(log) == names(other) == ["created", "x", "other"]


def test_records_of_another_log_are_passed_over() -> None:
    world, elsewhere = World(tail_bytes=TAIL), World(tail_bytes=TAIL)
    elsewhere.process()  # It takes the ids that a process of the other world has.
    other, stranger = world.created(), elsewhere.created()
    for name in "abc":
        stranger.append(add(name))
    log = world.process()
    queue = queued(log)
    queue.while_waiting = lambda: append_for(other, queue.sent)
    queue.hands_over = lambda: records_of(stranger)

    share(log, "x")

    assert names(log) == ["created", "x", "other"]


def test_processes_are_answered_after_their_requests_were_appended() -> None:
    _, other, log, queue = queued_beside_another()
    queue.while_waiting = lambda: append_for(other, queue.sent)

    share(log, "x")

    asked = script(other).host_queue
    assert isinstance(asked, ScriptedQueue)
    assert asked.answered == 1


def test_a_process_whose_request_was_appended_before_its_turn_puts_nothing() -> None:
    world, other, log, queue = queued_beside_another()
    queue.while_asking = lambda: append_for(other, queue.sent)

    slot = share(log, "x")

    assert log.appender.counts.records == 0
    assert ["x"] in request_names(world, slot)


def test_of_two_processes_none_sends_its_requests(world: World) -> None:
    log = world.process()
    queue = queued(log, is_crowded=False)

    slot = share(log, "x")

    assert queue.sent == [b""]
    assert SENT not in environment(log).points
    assert record(world, slot).requests is None


def test_a_process_that_waited_loses_no_race_against_those_before_it() -> None:
    world = World()
    other = world.created()
    log = world.process()
    queue = queued(log, is_crowded=False)
    queue.while_asking = lambda: [other.append(add(name)) for name in "abc"]
    queue.while_waiting = lambda: other.append(add("d"))

    share(log, "x")

    assert names(log) == ["created", "a", "b", "c", "d", "x"]
    assert log.appender.counts.conflicts == 0


def test_a_process_that_nobody_appended_for_appends_in_its_turn(world: World) -> None:
    log = world.process()
    queued(log)

    slot = share(log, "x")

    assert request_names(world, slot) == [["x"]]


def test_a_process_asks_each_process_that_has_the_turn(world: World) -> None:
    log = world.process()
    queue = queued(log)
    queue.waits = 3

    share(log, "x")

    assert len(queue.sent) == 3
    assert len(set(queue.sent)) == 1


@pytest.mark.parametrize(("reaches_holder", "reads"), [(True, 3), (False, 1)])
def test_only_a_process_whose_message_was_sent_reads_the_log_before_each_wait(reaches_holder: bool, reads: int) -> None:
    """The holder of an earlier turn may have appended the request, and have died. Without a message it cannot have."""
    world = World()
    world.created()
    log = world.process()
    queue = queued(log)
    queue.waits, queue.reaches_holder = 3, reaches_holder
    before = script(log).requests["GET"]

    share(log, "x")

    assert script(log).requests["GET"] - before == reads


def test_a_process_of_which_a_part_was_appended_waits_for_its_turn_without_a_message() -> None:
    """Each message would be answered at once, so its process would get a turn only after a second."""
    _, other, log, queue = queued_beside_another()
    queue.waits, queue.answers = 2, True
    told: list[str] = []
    shared = threading.Thread(target=lambda: (share(log, "x"), told.append("x")))
    unshared = threading.Thread(target=lambda: (log.append(add("own")), told.append("own")))

    def while_waiting() -> None:
        if queue.waits == 1:
            append_for(other, queue.sent)
        else:
            # Its thread was told before this process has its turn.
            shared.join()

    queue.while_waiting = while_waiting
    with held(log):
        unshared.start()
        await_queued(log, 1)
        shared.start()
        await_queued(log, 2)
    unshared.join()

    assert [bool(message) for message in queue.sent] == [True, False]
    assert told == ["x", "own"]
    assert names(log) == ["created", "x", "other", "own"]


def test_a_process_whose_requests_were_appended_after_a_lost_race_does_not_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other, log, queue = queued_beside_another()
    queue.is_first = True
    script(log).before.extend([lambda: other.append(add("a")), lambda: other.append(add("b"))])
    pauses: list[int] = []

    def back_off(environment: Environment, attempt: int) -> None:
        pauses.append(attempt)
        queue.is_first = False

    monkeypatch.setattr(contention, "back_off", back_off)
    queue.while_waiting = lambda: append_for(other, queue.sent)

    share(log, "x")

    assert pauses == [2]
    assert names(log) == ["created", "a", "b", "x", "other"]


def test_a_process_does_not_wait_for_a_stopped_one(world: World) -> None:
    log = world.process()
    queue = queued(log)
    queue.waits, queue.gets_turn = 3, False

    share(log, "x")

    assert queue.waits == 2
    assert names(log) == ["created", "x"]


def test_a_refused_request_that_was_sent_is_refused_by_its_own_process() -> None:
    world = World()
    other = world.created()
    share(other, "x")
    log = world.process()
    queue = queued(log)
    queue.while_waiting = lambda: append_for(other, queue.sent)

    with pytest.raises(AlreadyThere):
        share(log, "x")


def test_a_message_whose_request_a_record_has_is_passed_over() -> None:
    world, other, log, queue = queued_beside_another()
    share(log, "x")

    slot = append_for(other, queue.sent)

    assert request_names(world, slot) == []
    assert names(log) == ["created", "x", "other"]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"{}",
        b"[" * 100_000,
        b'{"name":"x","slot":1,"requests":[]}',
        message_of(-1, []),
        message_of(0, []).replace(b"[]", b"7"),
        message_of(0, [7]),
        message_of(0, *[[]] * 1_025),
        message_of(0, [{"type": "add"}]),
        message_of(1 << 42, [{"type": "add"}]),
    ],
)
def test_a_malformed_message_is_passed_over(message: bytes) -> None:
    world = World()
    other = world.created()

    append_for(other, [message])

    assert names(other) == ["created", "other"]


@pytest.mark.parametrize("point", ["log.shared.before_send", "log.shared.sent", "log.shared.appended_by_another"])
@pytest.mark.parametrize("tail_bytes", [0, TAIL])
def test_a_death_in_the_queue_leaves_at_most_one_copy(point: str, tail_bytes: int) -> None:
    world = World(tail_bytes=tail_bytes)
    other = world.created()
    dying = world.process()
    queue = queued(dying)
    queue.while_waiting = lambda: append_for(other, queue.sent)
    at(dying, point, lambda: die(dying))

    with pytest.raises(Crashed):
        share(dying, "x")

    append_for(other, queue.sent, "last")
    assert names(other).count("x") == len(queue.sent[:1])


@pytest.mark.parametrize("tail_bytes", [0, TAIL])
def test_a_process_that_dies_after_it_appended_for_others_leaves_one_copy(tail_bytes: int) -> None:
    """It has answered nobody, and has handed over no record."""
    world = World(tail_bytes=tail_bytes)
    dying = world.created()
    log = world.process()
    queue = queued(log)
    at(dying, "log.shared.appended_for_others", lambda: die(dying))

    def dies() -> None:
        with pytest.raises(Crashed):
            append_for(dying, queue.sent)

    queue.while_waiting = dies

    share(log, "x")

    assert names(log) == ["created", "x", "other"]


def test_a_put_without_an_answer_hands_over_nothing_and_leaves_one_copy() -> None:
    """The put of the process that has the turn lands, and it never learns this. The next process must read the log."""
    world = World(tail_bytes=TAIL)
    dying = world.created()
    log = world.process()
    queue = queued(log)

    def lands_without_an_answer() -> None:
        script(dying).requests_left, script(dying).dies_after_landing = 0, True
        holder = script(dying).host_queue = ScriptedQueue()
        holder.is_first, holder.received = True, queue.sent
        with pytest.raises(Crashed):
            share(dying, "other")
        queue.hands_over = lambda: holder.newest

    queue.while_waiting = lands_without_an_answer

    share(log, "x")

    assert queue.hands_over() == b""
    assert names(log) == ["created", "x", "other"]


def test_a_process_that_is_interrupted_in_the_queue_reports_an_unknown_outcome() -> None:
    _, other, log, queue = queued_beside_another()

    def interrupted() -> None:
        raise KeyboardInterrupt

    queue.while_waiting = interrupted
    with pytest.raises((KeyboardInterrupt, CommitStateUnknown)):
        share(log, "x")

    append_for(other, queue.sent)
    with pytest.raises(AlreadyThere):
        share(log, "x")
    assert names(other) == ["created", "x", "other"]


def test_without_others_a_commit_is_one_put() -> None:
    world = World()
    log = world.created()
    script(log).host_queue = HostQueue(lambda: None, Environment(), patience_ms=1_000)
    before = script(log).requests.copy()

    slot = share(log, "x")

    assert script(log).requests - before == {"PUT": 1}
    assert record(world, slot).requests is None


def test_a_request_in_anothers_record_is_acknowledged_only_when_durable() -> None:
    _, other, log, queue = queued_beside_another()
    queue.while_waiting = lambda: append_for(other, queue.sent)
    durable: list[str] = []
    script(log).make_durable = durable.append  # type: ignore[method-assign]

    slot = share(log, "x")

    assert slot_path(slot) in durable


def test_a_record_that_cannot_be_made_durable_is_not_acknowledged() -> None:
    _, other, log, queue = queued_beside_another()
    queue.while_waiting = lambda: append_for(other, queue.sent)

    def failing(path: str) -> None:
        raise StoreUnavailable("input/output error")

    script(log).make_durable = failing  # type: ignore[method-assign]

    with pytest.raises(CommitStateUnknown):
        share(log, "x")


def test_a_request_whose_deadline_is_near_is_not_sent(world: World) -> None:
    log = world.process()
    queued(log)

    share(log, "x", timeout_ms=500)

    assert SENT not in environment(log).points
