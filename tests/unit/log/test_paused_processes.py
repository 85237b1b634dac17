"""A process paused for longer than half the retention of slots trusts neither its replica nor a deleted name."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    OutcomeLost,
    StoreUnavailable,
)
from eoslog.log.slots import SlotRecord, decode_line, encode_line, first_line, slot_body, slot_path
from tests.requests import Applying
from tests.unit.log.ledger import Ledger, add, add_once
from tests.unit.log.world import DAY_MS, HOUR_MS, Fault, World, environment, names, script


def replaced_history(world: World) -> Callable[[], None]:
    """Others append and make checkpoints, days pass, their slots go, and a paused process wins the name of slot 1."""
    first = first_line(world.body(0))
    stray = SlotRecord(
        slot=1, append_id="5" * 32, prev=decode_line(first, 0).append_id, entries=({"type": "add", "name": "stray"},)
    )

    def meanwhile() -> None:
        other = world.process()
        for number in range(4):
            other.append(add(f"n{number}"))
            other.checkpoint()
        world.now_ms += 3 * DAY_MS
        script(other).delete([slot_path(slot) for slot in range(3)])
        world.put(1, slot_body(encode_line(stray), [first]))

    return meanwhile


@pytest.mark.parametrize("suspended", [True, False])
def test_a_reader_that_slept_opens_anew_and_follows_no_deleted_names(world: World, suspended: bool) -> None:
    """A suspended machine's elapsed time stands still; the store's answers tell."""
    reader = world.process_that_read()
    before = world.now_ms
    replaced_history(world)()
    environment(reader).suspended_ms = world.now_ms - before if suspended else 0

    assert names(reader) == ["created", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("is_first", [True, False])
def test_one_answer_dated_far_ahead_does_not_hide_a_later_sleep(world: World, is_first: bool) -> None:
    reader = world.process()
    if not is_first:
        names(reader)
    script(reader).clock.observe(world.now_ms + 4 * DAY_MS)
    assert names(reader) == ["created"]
    before = world.now_ms
    replaced_history(world)()
    environment(reader).suspended_ms = world.now_ms - before

    assert names(reader) == ["created", "n0", "n1", "n2", "n3"]


def test_a_log_that_changes_during_each_opening_is_not_corrupt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.process()
    attempts = itertools.count()

    def changed(replaced: Ledger) -> None:
        raise CorruptRecord(f"slot {next(attempts)} is missing")

    monkeypatch.setattr(log.replica, "_open_once", changed)

    with pytest.raises(StoreUnavailable, match="changes faster"):
        names(log)


def test_a_reader_that_slept_while_it_opened_opens_again() -> None:
    world = World(tail_bytes=64 << 10)
    world.created().append(add("x"))
    reader = world.process()
    history = [replaced_history(world)]
    script(reader).on_list = lambda: history.pop()() if history else None

    assert names(reader) == ["created", "x", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("suspended", [True, False])
def test_a_writer_that_slept_does_not_append_behind_a_deleted_name(world: World, suspended: bool) -> None:
    writer = world.process_that_read()
    before = world.now_ms
    replaced_history(world)()
    environment(writer).suspended_ms = world.now_ms - before if suspended else 0
    if suspended:
        # Its first answer tells how late it is.
        with pytest.raises(CommitStateUnknown):
            writer.append(add("mine"))

    writer.append(add("mine"))

    assert names(world.process()) == ["created", "n0", "n1", "n2", "n3", "mine"]


def test_a_sleeping_writer_that_lost_to_a_void_record_opens_anew(world: World) -> None:
    writer = world.process_that_read()
    script(writer).before.append(replaced_history(world))
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))

    writer.append(add("mine"))

    assert names(writer) == ["created", "n0", "n1", "n2", "n3", "mine"]
    assert names(world.process()) == names(writer)


MINE_AGAIN = {"type": "add", "name": "mine"}


def sleeps_until_its_slot_is_deleted(world: World, *, deleted: int) -> Callable[[], None]:
    def meanwhile() -> None:
        other = world.process()
        for number in range(4):
            other.append(add(f"n{number}"))
            other.checkpoint()
        world.now_ms += 3 * DAY_MS
        script(other).delete([slot_path(slot) for slot in range(deleted)])

    return meanwhile


def test_a_writer_that_slept_twice_does_not_believe_its_win(world: World) -> None:
    """The answer after the second sleep confirms what the one after the first told, and tells of more."""
    writer = world.process()

    def suspended(passes: Callable[[], object]) -> None:
        before = world.now_ms
        passes()
        environment(writer).suspended_ms += world.now_ms - before

    script(writer).on_list = lambda: suspended(lambda: environment(writer).sleep_ms(2 * 60_000))
    script(writer).before.append(lambda: suspended(sleeps_until_its_slot_is_deleted(world, deleted=2)))

    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))

    assert names(world.process()) == ["created", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("deleted", [2, 5])
def test_a_win_in_a_deleted_name_is_not_believed(world: World, deleted: int) -> None:
    writer = world.process_that_read()
    script(writer).before.append(sleeps_until_its_slot_is_deleted(world, deleted=deleted))
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))

    slot = writer.append(add("mine"))

    assert slot > 4
    assert names(world.process()) == ["created", "n0", "n1", "n2", "n3", "mine"]


def test_a_win_in_a_deleted_name_beside_the_log_is_doubted(world: World) -> None:
    """Its slots are contiguous to the newest, but the next record does not continue it."""
    writer = world.process_that_read()

    def meanwhile() -> None:
        sleeps_until_its_slot_is_deleted(world, deleted=2)()

    script(writer).before.append(meanwhile)
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))
    writer.append(add("mine"))

    assert names(writer).count("mine") == 1
    assert names(world.process()) == names(writer)


def test_a_win_that_the_log_goes_on_from_is_done_once(world: World) -> None:
    writer = world.process_that_read()

    def sleep() -> None:
        world.now_ms += 3 * DAY_MS

    script(writer).before.append(sleep)

    assert writer.append(add_once("mine")) == "added"
    assert names(world.process()) == ["created", "mine"]


def test_a_win_that_cannot_be_checked_is_no_clean_error(world: World) -> None:
    writer = world.process_that_read()

    def sleep() -> None:
        world.now_ms += 3 * DAY_MS
        script(writer).on_list = deny

    def deny() -> None:
        from eoslog.errors import StoreUnavailable

        raise StoreUnavailable("no answer")

    script(writer).before.append(sleep)
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))


@pytest.mark.parametrize("why", ["refused", "no answer"])
def test_after_a_win_in_doubt_each_error_leaves_the_outcome_unknown(world: World, why: str) -> None:
    """The record landed and was deleted since, with the slots around it."""
    writer = world.process_that_read()
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=3)

    def lose_its_way() -> None:
        sleep()
        if why == "no answer":
            script(writer).faults.extend([Fault.NONE] + [Fault.DENIED] * 200)

    script(writer).faults.append(Fault.ANSWER_LOST)
    script(writer).before.extend([lambda: None, lose_its_way])

    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine") if why == "refused" else Applying(lambda draft: draft.entries.append(MINE_AGAIN)))


def test_a_lost_race_does_not_make_a_replica_new() -> None:
    """The winner may be as old as the replica itself."""
    world = World()
    other, writer = world.created(), world.process()
    names(writer)
    for number in range(3):
        other.append(add(f"n{number}"))
    world.now_ms += 11 * HOUR_MS
    script(writer).faults.extend([Fault.NONE] + [Fault.REQUEST_LOST] * 200)
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))
    script(writer).faults.clear()
    assert writer.replica.slot == 1
    world.now_ms += 2 * HOUR_MS
    lists = script(writer).requests["LIST"]

    names(writer)

    assert script(writer).requests["LIST"] > lists


def test_resolve_does_not_take_a_stray_record_for_the_log() -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.LATE] * 100)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("mine"))
    script(log).faults.clear()
    sleeps_until_its_slot_is_deleted(world, deleted=2)()
    script(log).land_late()

    with pytest.raises(OutcomeLost):
        log.resolve(caught.value.slot, caught.value.append_id)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.RETRIED_INSIDE])
def test_a_slot_deleted_before_it_was_read_may_be_my_own(fault: Fault) -> None:
    """Whether the put was not answered, or was sent twice on its way and answered for the second."""
    world = World()
    log = world.created()
    history = [sleeps_until_its_slot_is_deleted(world, deleted=4)]

    def others_go_on(path: str) -> None:
        if path == slot_path(1) and history:
            history.pop()()

    script(log).faults.append(fault)
    script(log).refuse_get = others_go_on  # type: ignore[assignment]

    with pytest.raises(CommitStateUnknown):
        log.append(add_once("mine"))

    assert names(world.process()).count("mine") == 1


@pytest.mark.parametrize("stray", ["none", "of this version", "of a newer version"])
def test_a_landed_record_whose_slot_is_gone_is_not_appended_again(world: World, stray: str) -> None:
    """Neither when its name is free for it again, nor when a stray record has taken that."""
    writer = world.process_that_read()
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=3)

    def oversleep() -> None:
        sleep()
        body = world.body(4).replace(b'"slot":4', b'"slot":1')
        if stray == "of a newer version":
            body = body.replace(b'"format":1', b'"format":2')
        if stray != "none":
            world.put(1, body)

    script(writer).faults.append(Fault.ANSWER_LOST)
    script(writer).before.extend([lambda: None, oversleep])

    with pytest.raises(CommitStateUnknown):
        writer.append(Applying(lambda draft: draft.entries.append({"type": "add", "name": f"mine at {draft.slot}"})))

    assert [name for name in names(world.process()) if name.startswith("mine")] == ["mine at 1"]


def test_a_landed_record_replaced_by_a_stray_is_not_appended_again(world: World) -> None:
    """Its put was sent twice on its way, and the second was answered: the slot is another's by then."""
    writer = world.process_that_read()
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=4)
    history = [sleep]

    def others_go_on(path: str) -> None:
        if path == slot_path(1) and history:
            history.pop()()
            world.put(1, world.body(4).replace(b'"slot":4', b'"slot":1'))

    script(writer).faults.append(Fault.RETRIED_INSIDE)
    script(writer).refuse_get = others_go_on  # type: ignore[assignment]
    with pytest.raises(CommitStateUnknown):
        writer.append(Applying(lambda draft: draft.entries.append({"type": "add", "name": f"mine at {draft.slot}"})))

    assert [name for name in names(world.process()) if name.startswith("mine")] == ["mine at 1"]


def test_a_stray_landing_during_a_resolve_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.LATE] * 100)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("mine"))
    script(log).faults.clear()
    world.process().append(add("first"))
    names(log)
    sleep, append_id_of = sleeps_until_its_slot_is_deleted(world, deleted=4), log._conditional_append.append_id_of

    def lands_meanwhile(slot: int, deadline_ms: int | None = None) -> str | None:
        sleep()
        script(log).land_late()
        return append_id_of(slot, deadline_ms)

    monkeypatch.setattr(log._conditional_append, "append_id_of", lands_meanwhile)

    with pytest.raises(OutcomeLost):
        log.resolve(caught.value.slot, caught.value.append_id)


def test_a_process_that_slept_between_two_answers_opens_anew(world: World) -> None:
    """Its own clock stood still, and before its first answer it knew no date."""
    paused = world.process()
    history = [sleeps_until_its_slot_is_deleted(world, deleted=0)]

    def falls_asleep(path: str) -> None:
        if history:
            before = world.now_ms
            history.pop()()
            environment(paused).suspended_ms = world.now_ms - before

    script(paused).refuse_get = falls_asleep  # type: ignore[assignment]

    assert paused.read(lambda state, slot: list(state.names), refresh=False) == ["created", "n0", "n1", "n2", "n3"]
