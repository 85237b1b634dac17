"""A view: opened cold, followed, and never trusted for longer than half the grace."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    EosLogError,
    NotAStore,
    OutcomeLost,
    StoreUnavailable,
    UnsupportedFormat,
)
from eoslog.log.log import Log
from eoslog.log.paths import slot_path
from eoslog.log.record import SlotRecord, decode_line, encode_line, first_line, with_tail
from tests.unit.log.ledger import AlreadyThere, Ledger, add, add_once
from tests.unit.log.world import DAY_MS, HOUR_MS, Fault, World, environment, names, script

TAIL = 64 << 10


def test_a_place_without_slots_is_no_store() -> None:
    with pytest.raises(NotAStore):
        names(World().process())


@given(st.integers(1, 60), st.sampled_from([0, 700, TAIL]), st.integers(2, 20))
def test_a_cold_reader_sees_what_a_follower_sees(appends: int, tail_bytes: int, checkpoint_slots: int) -> None:
    world = World(tail_bytes=tail_bytes)
    log = world.created(checkpoint_slots=checkpoint_slots)
    for number in range(appends):
        log.append(add(f"{'abc'[number % 3]}{number}"))
        cold, full = world.process(), world.process()
        full.view.slot, full.view.token = 0, decode_line(first_line(world.body(0)), 0).token
        full.view.machine.fold(full.view.state, 0, [{"type": "add", "name": "created"}])
        full.view.prove(full.view.moment())
        full.view.refresh()
        cold.view.open()
        assert cold.view.state == full.view.state == log.view.state
        assert cold.view.slot == full.view.slot
        assert cold.view.token == full.view.token
        assert cold.view.checkpoint == full.view.checkpoint == log.view.checkpoint
        assert cold.view.previous_checkpoint == full.view.previous_checkpoint == log.view.previous_checkpoint


def test_slots_between_checkpoint_and_tail_are_read() -> None:
    world = World(tail_bytes=600)
    log = world.created(checkpoint_slots=1000)
    environment(log).inline = False
    for number in range(40):
        log.append(add(f"n{number}"))

    assert names(world.process()) == names(log)


def test_a_slot_missing_in_the_middle_is_no_silent_gap() -> None:
    world = World()
    log = world.created()
    for number in range(3):
        log.append(add(f"n{number}"))
    script(log).delete([slot_path(2)])

    with pytest.raises(CorruptRecord, match="slot 2 is missing"):
        names(world.process())


def spoil(body: bytes, how: str) -> bytes:
    record = decode_line(first_line(body), 2)
    spoilt = {
        "no JSON": b"{nonsense\n",
        "empty": b"",
        "truncated": body[: len(body) // 2],
        "an array": b"[1, 2]\n",
        "another slot": record.model_copy(update={"slot": 7}).model_dump_json().encode(),
        "no token": body.replace(b'"token"', b'"taken"'),
        "entries that are no objects": b'{"format":1,"slot":2,"token":"' + b"0" * 32 + b'","prev":"","entries":[3]}',
        "not a continuation": record.model_copy(update={"prev": "f" * 32}).model_dump_json().encode(),
    }
    return spoilt[how]


@pytest.mark.parametrize("follower", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        "no JSON",
        "empty",
        "truncated",
        "an array",
        "another slot",
        "no token",
        "entries that are no objects",
        "not a continuation",
    ],
)
def test_a_damaged_record_is_a_corrupt_record(how: str, follower: bool) -> None:
    world = World()
    log, reader = world.created(), world.process()
    log.append(add("x"))
    if follower:
        names(reader)
    log.append(add("y"))
    world.put(2, spoil(world.body(2), how))

    with pytest.raises(CorruptRecord, match="slot 2"):
        names(reader)


def test_a_record_that_does_not_continue_what_a_follower_knows_makes_it_open_the_log_anew() -> None:
    world = World()
    log, reader = world.created(), world.process()
    log.append(add("x"))
    names(reader)
    log.append(add("y"))
    world.put(2, spoil(world.body(2), "not a continuation"))

    with pytest.raises(CorruptRecord):
        names(reader)

    assert "log.view.slot_deleted_meanwhile" in environment(reader).points


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"format":1', b'"format":2', 1),
        lambda body: body.replace(b'"type":"add"', b'"type":"future"', 1),
    ],
)
def test_a_record_of_a_newer_version_is_an_unsupported_format(change: Callable[[bytes], bytes]) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, change(world.body(1)))

    with pytest.raises(UnsupportedFormat):
        names(world.process())


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, world.body(1).replace(b'"format":1', b'"format":1,"note":"new"', 1))

    assert names(world.process()) == ["created", "x"]


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_in_a_slot_raise_anything_but_an_error_of_ours(noise: bytes, as_tail: bool) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    world.put(1, world.body(1).rstrip(b"\n") + b"\n" + noise if as_tail else noise)

    try:
        seen = names(world.process())
    except EosLogError:
        return
    assert seen == ["created", "x"]


ENTRY_NOISE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"type": st.just("checkpoint")},
        optional={"reference": ENTRY_NOISE, "upload_ms": ENTRY_NOISE, "shares_with": ENTRY_NOISE},
    )
)
def test_a_malformed_checkpoint_entry_makes_its_record_inert(entry: dict[str, object]) -> None:
    world = World()
    log = world.created()
    log.append(add("x"))
    record = decode_line(first_line(world.body(1)), 1)
    reference = {"slot": 0, "path": "__transaction_state/checkpoint/a", "length": 1, "crc32c": 1}
    for value in (entry, {"reference": reference, **entry}):
        line = record.model_copy(update={"entries": ({"type": "add", "name": "y"}, value)})
        world.put(1, line.model_dump_json(exclude_none=True).encode() + b"\n")

        assert names(world.process()) in (["created"], ["created", "y"])


def replaced_history(world: World) -> Callable[[], None]:
    """Others append and make checkpoints, days pass, their slots go, and a sleeper wins the name of slot 1."""
    first = first_line(world.body(0))
    stray = SlotRecord(
        slot=1, token="5" * 32, prev=decode_line(first, 0).token, entries=({"type": "add", "name": "stray"},)
    )

    def meanwhile() -> None:
        other = world.process()
        for number in range(4):
            other.append(add(f"n{number}"))
            other.checkpoint()
        world.now_ms += 3 * DAY_MS
        script(other).delete([slot_path(slot) for slot in range(3)])
        world.put(1, with_tail(encode_line(stray), [first]))

    return meanwhile


@pytest.mark.parametrize("suspended", [True, False])
def test_a_reader_that_slept_opens_anew_instead_of_following_what_stands_in_deleted_names(suspended: bool) -> None:
    """A suspended machine's elapsed time stands still; the store's answers tell."""
    world = World()
    world.created()
    reader = world.process()
    names(reader)
    before = world.now_ms
    replaced_history(world)()
    environment(reader).suspended_ms = world.now_ms - before if suspended else 0

    assert names(reader) == ["created", "n0", "n1", "n2", "n3"]


def test_a_log_that_changes_under_each_attempt_to_read_it_is_no_corrupt_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.created()
    log = world.process()
    attempts = itertools.count()

    def changed() -> None:
        raise CorruptRecord(f"slot {next(attempts)} is missing")

    monkeypatch.setattr(log.view, "_open_once", changed)

    with pytest.raises(StoreUnavailable, match="changes faster"):
        names(log)


def test_a_reader_that_slept_while_it_opened_opens_again() -> None:
    world = World(tail_bytes=TAIL)
    world.created().append(add("x"))
    reader = world.process()
    history = [replaced_history(world)]
    script(reader).on_list = lambda: history.pop()() if history else None

    assert names(reader) == ["created", "x", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("suspended", [True, False])
def test_a_writer_that_slept_does_not_append_behind_what_stands_in_deleted_names(suspended: bool) -> None:
    world = World()
    world.created()
    writer = world.process()
    names(writer)
    before = world.now_ms
    replaced_history(world)()
    environment(writer).suspended_ms = world.now_ms - before if suspended else 0
    if suspended:
        # Its first answer tells how late it is.
        with pytest.raises(CommitStateUnknown):
            writer.append(add("mine"))

    writer.append(add("mine"))

    assert names(world.process()) == ["created", "n0", "n1", "n2", "n3", "mine"]


def test_a_writer_that_slept_before_its_put_and_lost_to_a_void_record_opens_anew() -> None:
    world = World()
    world.created()
    writer = world.process()
    names(writer)
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


@pytest.mark.parametrize("deleted", [2, 5])
def test_a_win_in_a_deleted_name_is_not_believed(deleted: int) -> None:
    world = World()
    world.created()
    writer = world.process()
    names(writer)
    script(writer).before.append(sleeps_until_its_slot_is_deleted(world, deleted=deleted))
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))

    slot = writer.append(add("mine"))

    assert slot > 4
    assert names(world.process()) == ["created", "n0", "n1", "n2", "n3", "mine"]


def test_a_win_in_a_deleted_name_next_to_the_log_is_not_believed() -> None:
    """Its slots are contiguous to the newest, but the next record does not continue it."""
    world = World()
    world.created()
    writer = world.process()
    names(writer)

    def meanwhile() -> None:
        sleeps_until_its_slot_is_deleted(world, deleted=2)()

    script(writer).before.append(meanwhile)
    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine"))
    writer.append(add("mine"))

    assert names(writer).count("mine") == 1
    assert names(world.process()) == names(writer)


def test_a_genuine_win_of_a_writer_that_slept_is_done_once() -> None:
    world = World()
    world.created()
    writer = world.process()
    names(writer)

    def sleep() -> None:
        world.now_ms += 3 * DAY_MS

    script(writer).before.append(sleep)

    assert writer.append(add_once("mine")) == "added"
    assert names(world.process()) == ["created", "mine"]


def test_a_win_that_cannot_be_checked_is_no_clean_error() -> None:
    world = World()
    world.created()
    writer = world.process()
    names(writer)

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
def test_after_a_win_that_is_not_believed_no_error_is_a_clean_one(why: str) -> None:
    """The record landed and was deleted since, with the slots around it."""
    world = World()
    world.created()
    writer = world.process()
    names(writer)
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=3)

    def lose_its_way() -> None:
        sleep()
        if why == "no answer":
            script(writer).faults.extend([Fault.NONE] + [Fault.DENIED] * 200)

    script(writer).faults.append(Fault.ANSWER_LOST)
    script(writer).before.extend([lambda: None, lose_its_way])

    with pytest.raises(CommitStateUnknown):
        writer.append(add("mine") if why == "refused" else lambda draft: draft.entries.append(MINE_AGAIN))


def test_a_lost_race_is_no_proof_that_a_view_is_new() -> None:
    """The winner may be as old as the view itself."""
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
    assert writer.view.slot == 1
    world.now_ms += 2 * HOUR_MS
    lists = script(writer).requests["LIST"]

    names(writer)

    assert script(writer).requests["LIST"] > lists


def test_resolve_does_not_take_a_stray_record_in_a_deleted_name_for_the_log() -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.LATE] * 100)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("mine"))
    script(log).faults.clear()
    sleeps_until_its_slot_is_deleted(world, deleted=2)()
    script(log).land_late()

    with pytest.raises(OutcomeLost):
        log.resolve(caught.value.slot, caught.value.token)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.RETRIED_INSIDE])
def test_a_slot_deleted_between_the_answer_that_it_exists_and_its_reading_may_have_been_mine(fault: Fault) -> None:
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


@pytest.mark.parametrize("stray", [True, False])
def test_a_record_that_landed_is_not_appended_again_when_its_slot_was_deleted_meanwhile(stray: bool) -> None:
    """Neither when its name is free for it again, nor when a stray record has taken that."""
    world = World()
    world.created()
    writer = world.process()
    names(writer)
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=3)

    def oversleep() -> None:
        sleep()
        if stray:
            world.put(1, world.body(4).replace(b'"slot":4', b'"slot":1'))

    script(writer).faults.append(Fault.ANSWER_LOST)
    script(writer).before.extend([lambda: None, oversleep])

    with pytest.raises(CommitStateUnknown):
        writer.append(lambda draft: draft.entries.append({"type": "add", "name": f"mine at {draft.slot}"}))

    assert [name for name in names(world.process()) if name.startswith("mine")] == ["mine at 1"]


def test_a_record_continues_the_log_only_without_a_gap_up_to_the_newest() -> None:
    world = World()
    log = world.created()
    for number in range(4):
        log.append(add(f"n{number}"))
    tokens = [decode_line(first_line(world.body(slot)), slot).token for slot in range(5)]
    assert all(log._claims.continues(log.view, slot, tokens[slot]) for slot in range(5))
    assert not log._claims.continues(log.view, 2, tokens[1])

    script(log).delete([slot_path(3)])
    assert not log._claims.continues(log.view, 1, tokens[1])
    assert log._claims.continues(log.view, 4, tokens[4])


def test_a_store_that_lists_in_no_order_finds_its_newest_slot() -> None:
    world = World()
    log = world.created()
    for number in range(3):
        log.append(add(f"n{number}"))
    reader: Log[Ledger] = world.process()
    script(reader).lists_in_order = False

    assert names(reader) == names(log)
    assert reader.view.slots_from(2) == [2, 3]


def test_the_newest_slot_is_found_across_groups() -> None:
    world = World()
    log = world.created(checkpoint_slots=5000)
    for number in range(1005):
        log.append(add(f"n{number}"))

    for ordered in (True, False):
        reader = world.process()
        script(reader).lists_in_order = ordered
        reader.view.open()
        assert reader.view.slot == 1005
        assert reader.view.slots_from(998) == list(range(998, 1006))


def test_a_record_that_landed_is_not_appended_again_when_a_stray_took_its_name_before_it_was_read() -> None:
    """Its put was sent twice on its way, and the second was answered: the slot is another's by then."""
    world = World()
    world.created()
    writer = world.process()
    names(writer)
    sleep = sleeps_until_its_slot_is_deleted(world, deleted=4)
    history = [sleep]

    def others_go_on(path: str) -> None:
        if path == slot_path(1) and history:
            history.pop()()
            world.put(1, world.body(4).replace(b'"slot":4', b'"slot":1'))

    script(writer).faults.append(Fault.RETRIED_INSIDE)
    script(writer).refuse_get = others_go_on  # type: ignore[assignment]
    with pytest.raises(CommitStateUnknown):
        writer.append(lambda draft: draft.entries.append({"type": "add", "name": f"mine at {draft.slot}"}))

    assert [name for name in names(world.process()) if name.startswith("mine")] == ["mine at 1"]


def test_a_stray_that_lands_while_a_slot_is_resolved_is_not_taken_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.LATE] * 100)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("mine"))
    script(log).faults.clear()
    world.process().append(add("first"))
    names(log)
    sleep, token_of = sleeps_until_its_slot_is_deleted(world, deleted=4), log._claims.token_of

    def lands_meanwhile(slot: int, deadline_ms: int | None = None) -> str | None:
        sleep()
        script(log).land_late()
        return token_of(slot, deadline_ms)

    monkeypatch.setattr(log._claims, "token_of", lands_meanwhile)

    with pytest.raises(OutcomeLost):
        log.resolve(caught.value.slot, caught.value.token)


def test_a_log_that_another_made_while_its_first_put_was_lost_is_told_as_such() -> None:
    world = World()
    late, other = world.process(), world.process()
    script(late).faults.append(Fault.REQUEST_LOST)
    script(late).before.extend([lambda: None, lambda: other.create(add("created"))])

    with pytest.raises(AlreadyThere):
        late.create(add("created"))


def test_a_process_that_slept_between_its_first_two_answers_does_not_take_its_view_for_fresh() -> None:
    """Its own clock stood still, and before its first answer it knew no date."""
    world = World()
    world.created()
    sleeper = world.process()
    history = [sleeps_until_its_slot_is_deleted(world, deleted=0)]

    def falls_asleep(path: str) -> None:
        if history:
            before = world.now_ms
            history.pop()()
            environment(sleeper).suspended_ms = world.now_ms - before

    script(sleeper).refuse_get = falls_asleep  # type: ignore[assignment]

    assert sleeper.read(lambda state, slot: list(state.names), refresh=False) == ["created", "n0", "n1", "n2", "n3"]
