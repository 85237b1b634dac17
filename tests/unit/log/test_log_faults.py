"""What an append makes of every outcome of its put: one logical append lies in one slot, or in none."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.errors import CommitStateUnknown, CorruptRecord, InvalidRequest, StoreAccessDenied, StoreUnavailable
from eoslog.log import next_record
from eoslog.log.append_queue import Proposal
from eoslog.log.log import Log
from eoslog.log.next_record import RecordLimits
from eoslog.log.slots import decode_line, first_line, slot_path
from tests.requests import Applying
from tests.unit.log.ledger import AlreadyThere, Ledger, LedgerMachine, add, add_once, add_with_id
from tests.unit.log.world import DAY_MS, Fault, World, environment, names, script


def unknown(log: Log[Ledger], name: str, fault: Fault) -> CommitStateUnknown:
    """Append a name through a store that never answers its puts."""
    script(log).faults.extend([fault] + [Fault.REQUEST_LOST] * 200)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add(name))
    script(log).faults.clear()
    return caught.value


def test_a_slot_that_was_created_is_won() -> None:
    log = World().created()

    assert log.append(add("x")) == 1
    assert names(log) == ["created", "x"]


def test_after_a_lost_race_the_append_id_tries_the_next_slot() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)
    append_ids: list[str] = []
    put = script(b).put_if_absent

    def note(path: str, body: bytes) -> Any:
        append_ids.append(decode_line(first_line(body), int(path[-25:-5])).append_id)
        return put(path, body)

    script(b).put_if_absent = note  # type: ignore[method-assign]
    script(b).before.append(lambda: a.append(add("a")))

    assert b.append(add("b")) == 2
    assert names(b) == ["created", "a", "b"]
    assert len(append_ids) == 2
    assert len(set(append_ids)) == 1


def test_a_writer_that_fell_behind_while_it_waited_catches_up_at_once() -> None:
    world = World()
    other, log = world.created(), world.process()
    names(log)
    other.append(add("o"))
    numbers = iter(range(1000))

    def others_go_on(duration_ms: float) -> None:
        for number in range(30):
            other.append(add(f"o{next(numbers)}-{number}"))

    environment(log).sleep_ms = others_go_on  # type: ignore[method-assign]
    script(log).before.extend([lambda: other.append(add("a")), lambda: other.append(add("b"))])
    before = script(log).requests["PUT"]

    log.append(add("x"))

    assert script(log).requests["PUT"] - before == 3


def test_an_entry_that_the_winner_of_a_race_makes_invalid_is_refused() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)
    script(b).before.append(lambda: a.append(add("x")))

    with pytest.raises(AlreadyThere):
        b.append(add("x"))

    assert names(b) == ["created", "x"]


def test_a_refusal_is_never_given_on_an_old_state() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)
    a.append(add("x"))

    def only_after_x(draft: Any) -> int:
        if "x" not in draft.names:
            raise InvalidRequest("x comes first")
        return add("y").apply(draft)

    assert b.append(Applying(only_after_x)) == 2


def test_an_answer_without_entries_is_never_given_on_an_old_state() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)
    a.append(add("x"))

    assert b.append(Applying(lambda draft: list(draft.names))) == ["created", "x"]


def test_a_conflict_is_answered_by_the_same_bytes_to_the_same_slot() -> None:
    log = World().created()
    script(log).faults.extend([Fault.CONFLICT, Fault.CONFLICT])

    assert log.append(add("x")) == 1


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_won_slot_whose_record_is_read_cut_is_read_again(cut: int) -> None:
    log = World().created()
    script(log).faults.append(Fault.RETRIED_INSIDE)
    script(log).cuts.append(cut)

    assert log.append(add("x")) == 1
    assert names(log) == ["created", "x"]


def test_a_slot_that_cannot_be_read_leaves_its_append_unknown() -> None:
    log = World().created()
    script(log).faults.append(Fault.RETRIED_INSIDE)
    script(log).cuts.extend([40] * 500)

    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("x"))

    script(log).cuts.clear()
    assert log.resolve(caught.value.slot, caught.value.append_id)
    assert names(log) == ["created", "x"]


def test_conflicts_without_end_leave_a_clean_error() -> None:
    log = World().created()
    script(log).faults.extend([Fault.CONFLICT] * 500)

    with pytest.raises(StoreUnavailable, match="Nothing was written"):
        log.append(add("x"))


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.RETRIED_INSIDE])
def test_a_put_without_answer_is_repeated_and_lands_once(fault: Fault) -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([fault, fault])

    assert log.append(add("x")) == 1
    assert log.append(add("y")) == 2
    assert names(world.process()) == ["created", "x", "y"]


def test_a_lost_answer_to_a_lost_race_is_a_lost_race() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)
    script(b).before.append(lambda: a.append(add("a")))
    script(b).faults.append(Fault.ANSWER_LOST)

    assert b.append(add("b")) == 2
    assert names(b) == ["created", "a", "b"]


def test_while_a_slot_is_unknown_no_other_slot_is_tried() -> None:
    world = World()
    log = world.created()

    error = unknown(log, "x", Fault.REQUEST_LOST)

    assert error.slot == 1
    assert names(world.process()) == ["created"]


@pytest.mark.parametrize(
    ("fault", "landed"), [(Fault.ANSWER_LOST, True), (Fault.REQUEST_LOST, False), (Fault.LATE, True)]
)
def test_resolve_tells_whether_the_record_landed(fault: Fault, landed: bool) -> None:
    world = World()
    log = world.created()
    error = unknown(log, "x", fault)
    script(log).land_late()

    assert log.resolve(error.slot, error.append_id) is landed
    assert ("x" in names(world.process())) is landed


def test_once_resolved_as_lost_the_put_can_land_no_more() -> None:
    world = World()
    log = world.created()
    error = unknown(log, "x", Fault.LATE)

    assert log.resolve(error.slot, error.append_id) is False
    script(log).land_late()

    assert names(world.process()) == ["created"]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.DENIED])
def test_a_failing_resolve_still_names_the_append_in_question(fault: Fault) -> None:
    log = World().created()
    error = unknown(log, "x", Fault.REQUEST_LOST)
    script(log).faults.extend([fault] * 200)

    with pytest.raises(CommitStateUnknown) as again:
        log.resolve(error.slot, error.append_id)

    script(log).faults.clear()
    assert (again.value.slot, again.value.append_id) == (error.slot, error.append_id)
    assert log.resolve(again.value.slot, again.value.append_id) is False


def test_a_resolve_that_cannot_read_the_log_is_no_clean_error() -> None:
    log = World().created()
    error = unknown(log, "x", Fault.REQUEST_LOST)
    script(log).refuse_get = lambda path: StoreUnavailable("no answer")

    with pytest.raises(CommitStateUnknown) as again:
        log.resolve(error.slot, error.append_id)

    assert (again.value.slot, again.value.append_id) == (error.slot, error.append_id)


def test_another_process_resolves_too() -> None:
    world = World()
    error = unknown(world.created(), "x", Fault.ANSWER_LOST)

    assert world.process().resolve(error.slot, error.append_id) is True


def test_the_same_call_again_after_an_unknown_outcome_is_done_once() -> None:
    world = World()
    log = world.created()
    unknown(log, "x", Fault.ANSWER_LOST)

    assert log.append(add_once("x")) == "was there"
    assert names(world.process()) == ["created", "x"]


def test_a_put_that_lands_late_in_a_slot_taken_meanwhile_changes_nothing() -> None:
    world = World()
    log = world.created()
    unknown(log, "x", Fault.LATE)
    log.append(add("y"))

    script(log).land_late()

    assert names(world.process()) == ["created", "y"]


def test_a_denied_put_is_a_clean_error_and_nothing_lands() -> None:
    world = World()
    log = world.created()
    script(log).faults.append(Fault.DENIED)

    with pytest.raises(StoreAccessDenied):
        log.append(add("x"))

    assert names(world.process()) == ["created"]
    assert log.append(add("x")) == 1


def test_a_put_denied_after_one_without_answer_is_no_clean_error() -> None:
    log = World().created()
    script(log).faults.extend([Fault.ANSWER_LOST, Fault.DENIED])

    with pytest.raises(CommitStateUnknown):
        log.append(add("x"))


@pytest.mark.parametrize("error", [StoreAccessDenied("denied"), StoreUnavailable("gone")])
def test_a_slot_that_exists_but_cannot_be_read_may_be_mine(error: Exception) -> None:
    """A client may retry inside, and then reports its own success as a slot that exists."""
    log = World().created()
    script(log).faults.append(Fault.RETRIED_INSIDE)
    script(log).refuse_get = lambda path: error if path == slot_path(1) else None

    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("x"))

    script(log).refuse_get = lambda path: None
    assert log.resolve(caught.value.slot, caught.value.append_id) is True


def test_the_answer_is_that_of_the_own_slot() -> None:
    world = World()
    a, b = world.created(), world.process()

    def answer(draft: Any) -> list[str]:
        add("a").apply(draft)
        return list(draft.names)

    b.read(lambda state, slot: None)
    script(a).faults.append(Fault.ANSWER_LOST)
    script(a).before.extend([lambda: None, lambda: b.append(add("b"))])

    assert a.append(Applying(answer)) == ["created", "a"]
    assert names(a) == ["created", "a", "b"]


def test_an_append_id_is_looked_up_in_its_own_slot() -> None:
    world = World()
    a, b = world.created(), world.process()
    b.read(lambda state, slot: None)

    def others_go_on() -> None:
        for number in range(30):
            b.append(add(f"b{number}"))

    script(a).faults.append(Fault.ANSWER_LOST)
    script(a).before.extend([lambda: None, others_go_on])
    reads: list[str] = []
    script(a).refuse_get = lambda path: reads.append(path)  # type: ignore[func-returns-value]

    assert a.append(add("a")) == 1
    assert reads == [slot_path(1)]
    assert names(world.process()).count("a") == 1


def test_a_call_that_asks_for_two_ids_is_refused_at_once() -> None:
    log = World().created()

    def two(draft: Any) -> None:
        add_with_id("x").apply(draft)
        add_with_id("y").apply(draft)

    with pytest.raises(InvalidRequest, match="no room for the producer ids"):
        log.append(Applying(two))


def test_a_record_larger_than_readers_take_is_refused_before_it_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.created()
    monkeypatch.setattr(next_record, "LARGEST_RECORD_BYTES", 1000)

    with pytest.raises(InvalidRequest, match="a slot holds at most"):
        log.append(add("x" * 1000))

    assert log.append(add("y")) == 1
    assert names(world.process()) == ["created", "y"]


def test_a_record_that_contradicts_the_state_is_inert_and_stops_writers_only() -> None:
    world = World()
    a, b = world.created(), world.process()
    a.append(add("x"))
    line = decode_line(first_line(world.body(1)), 1)
    bad = line.model_copy(update={"entries": ({"type": "add", "name": "half"}, {"type": "add", "name": "created"})})
    world.put(1, bad.model_dump_json(exclude_none=True).encode() + b"\n")

    assert names(b) == ["created"]
    with pytest.raises(CorruptRecord, match=r"Nothing more is appended\. Run eoslog verify"):
        b.append(add("y"))


def test_an_inert_record_that_the_opening_of_a_reset_replica_finds_stops_the_writer() -> None:
    """Another thread may reset the replica while this one makes a record. The opening is then the first to read it."""
    world = World()
    a, b = world.created(), world.process()
    assert names(b) == ["created"]
    a.append(add("x"))
    line = decode_line(first_line(world.body(1)), 1)
    bad = line.model_copy(update={"entries": ({"type": "add", "name": "created"},)})
    world.put(1, bad.model_dump_json(exclude_none=True).encode() + b"\n")
    b.replica.reset()

    with pytest.raises(CorruptRecord, match=r"Nothing more is appended\. Run eoslog verify"):
        b.appender._maker.make([Proposal(add("y"))], RecordLimits(), "0" * 32)


def test_the_log_goes_on_for_readers_after_a_record_that_is_inert() -> None:
    world = World()
    a = world.created()
    a.append(add("x"))
    a.append(add("y"))
    bad = decode_line(first_line(world.body(1)), 1).model_copy(
        update={"entries": ({"type": "add", "name": "created"},)}
    )
    world.put(1, bad.model_dump_json(exclude_none=True).encode() + b"\n")

    assert names(world.process()) == ["created", "y"]


def test_creating_a_log_twice_leaves_the_first() -> None:
    world = World()
    world.created()

    def refuse_if_begun(draft: Any) -> None:
        if draft.slot:
            raise AlreadyThere("the log has begun")
        add("mine").apply(draft)

    with pytest.raises(AlreadyThere):
        world.process().create(Applying(refuse_if_begun))

    assert names(world.process()) == ["created"]


def test_a_creator_that_slept_past_slot_0_distrusts_its_win() -> None:
    world = World()
    paused = world.process()

    def meanwhile() -> None:
        other = world.created()
        for number in range(3):
            other.append(add(f"n{number}"))
        world.now_ms += 3 * DAY_MS
        script(other).delete([slot_path(0)])

    def refuse_if_begun(draft: Any) -> None:
        if draft.slot:
            raise AlreadyThere("the log has begun")
        add("mine").apply(draft)

    script(paused).before.append(meanwhile)

    with pytest.raises((AlreadyThere, CommitStateUnknown)):
        paused.create(Applying(refuse_if_begun))


def test_a_log_created_by_another_meanwhile_is_already_there() -> None:
    world = World()
    late, other = world.process(), world.process()
    script(late).faults.append(Fault.REQUEST_LOST)
    script(late).before.extend([lambda: None, lambda: other.create(add("created"))])

    with pytest.raises(AlreadyThere):
        late.create(add("created"))


class InterruptedMachine(LedgerMachine):
    """Is interrupted right after the state was changed."""

    armed = False

    def fold(self, state: Ledger, slot: int, entries: Any) -> str | None:
        reason = super().fold(state, slot, entries)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return reason


@pytest.mark.parametrize("step", ["fold", "refresh"])
def test_an_interrupt_during_a_fold_leaves_a_usable_log(step: str) -> None:
    world = World()
    other, log = world.created(), world.process()
    machine = InterruptedMachine()
    log.machine = log.replica.machine = log.replica.reader.machine = machine
    names(log)
    other.append(add("o"))

    machine.armed = True
    call = (lambda: names(log)) if step == "refresh" else (lambda: log.append(add("x")))
    with pytest.raises(KeyboardInterrupt):
        call()

    log.append(add_once("x"))
    assert sorted(names(log)) == ["created", "o", "x"]
    assert names(world.process()) == names(log)


@pytest.mark.parametrize("step", ["merge", "refresh"])
def test_no_other_thread_reads_a_state_whose_change_was_interrupted(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is free again before the interrupted call ends."""
    world = World()
    other, log = world.created(), world.process()
    machine = InterruptedMachine()
    log.machine = log.replica.machine = log.replica.reader.machine = machine
    names(log)
    monkeypatch.setattr(log.replica, "reset_unless_sound", lambda error: None)

    if step == "refresh":
        other.append(add("o"))
        machine.armed = True
        with pytest.raises(KeyboardInterrupt):
            names(log)
    else:
        monkeypatch.setattr(log.replica, "advance", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(add("o"))
        monkeypatch.undo()

    assert not log.replica.is_open
    assert names(log) == ["created", "o"]


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt
