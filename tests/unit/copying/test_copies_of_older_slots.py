"""A copy of an older slot, or of a time, is the store of then. If the source no longer has it, it is refused."""

from __future__ import annotations

import re

import pytest

from eoslog import Store
from eoslog.copying.store_copy import CopyReport
from eoslog.errors import CorruptRecord, InvalidOption, InvalidRequest, NotAStore, OffsetOutOfRange
from eoslog.log.replica import LogConfig
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.log.slots import CHECKPOINT_ENTRY, SlotRecord, decode_line, encode_line, first_line, slot_body, slot_path
from eoslog.session.store_machine import StoreMachine
from eoslog.state.store_state import StoreState
from eoslog.storage.memory_store import MemoryStore
from tests.depth import sweep
from tests.unit.copying.copies import Place, busy_store, check_copy, rewrite_everything, state_of
from tests.unit.support.paused_processes import Died
from tests.unit.support.world import World

DAY_MS = 24 * 3_600_000


@pytest.fixture
def source(world: World) -> Store:
    """A busy store whose log has several checkpoints. As on S3, its newest records repeat those before them."""
    store = busy_store(world)
    assert isinstance(store.object_store, MemoryStore)
    store.object_store.tail_bytes = 64 << 10
    for number in range(3):
        store.log.checkpoint()
        world.pass_time(10)
        send(store, b"later %d" % number)
    return store


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def send(store: Store, value: bytes) -> None:
    with store.producer() as producer:
        producer.send("t", value, partition=0)


def records_of(store: Store) -> list[SlotRecord]:
    newest = store.read(lambda state, slot: slot)
    return [decode_line(first_line(store.object_store.get(slot_path(slot)).body), slot) for slot in range(newest + 1)]


def states_of(store: Store) -> list[StoreState]:
    """The state after each slot, folded from slot 0."""
    machine, state, found = StoreMachine(), StoreState(), []
    for record in records_of(store):
        entries = [entry for entry in record.entries if entry["type"] != CHECKPOINT_ENTRY]
        assert machine.fold(state, record.slot, entries) is None
        found.append(state.frozen_copy())
    return found


def check_rows(copy: Store, source: Store, slot: int) -> None:
    """Check that a copy has the rows of the source's snapshot at a slot.

    The source has compacted topic ``k`` by key, so it has no snapshot of earlier slots of this topic.
    """
    for topic in copy.admin.list_topics():
        try:
            expected = source.scan(topic, slot=slot).to_table()
        except OffsetOutOfRange:
            assert topic == "k"
            continue
        assert copy.scan(topic, isolation_level="snapshot").to_table().equals(expected)


def slot_named(refusal: pytest.ExceptionInfo[OffsetOutOfRange]) -> int:
    """The oldest slot that can be copied, as a refusal names it."""
    found = re.search(r"can be copied is (\d+)|Slot (\d+) and later", str(refusal.value))
    assert found is not None, refusal.value
    return int(found.group(1) or found.group(2))


def forget_old_slots(store: Store, world: World) -> None:
    """Wait until old slots and checkpoints are deleted. Rows in records are moved to files before."""
    store.admin.compact_files(now=True)
    world.pass_time(2 * DAY_MS)
    store.admin.vacuum(staged_max_age_ms=DAY_MS, deleted_file_retention_ms=DAY_MS)
    for number in range(3):
        store.log.checkpoint()
        send(store, b"new %d" % number)
    assert delete_old_slots(store.log) > 0
    delete_old_checkpoints(store.log)


def copy_of(source: Store, world: World, slot: int) -> CopyReport:
    return source.admin.copy(Place(world).process(), slot=slot)


@pytest.mark.parametrize("stride", sweep([9, 20], quick=[20]))
def test_a_copy_of_a_slot_is_the_store_after_that_slot(source: Store, world: World, stride: int) -> None:
    states = states_of(source)

    for slot in (*range(0, len(states), stride), len(states) - 1):
        place = Place(world)
        report = source.admin.copy(place.process(), slot=slot)

        assert (report.slot, report.source_slot) == (slot, len(states) - 1)
        check_copy(place.process(), states[slot], slot)
        check_rows(place.process(), source, slot)
        for group in states[slot].groups:
            committed = place.process().admin.list_consumer_group_offsets(group)
            assert {each.offset for each in committed.values()} == {
                each.offset for each in states[slot].groups[group].offsets.values()
            }


def test_a_copy_of_a_time_is_of_the_last_slot_at_that_time(source: Store, world: World) -> None:
    states = states_of(source)
    times = sorted({state.time_ms for state in states})
    # In this world a slot is put at the time of its entries.
    put_ms = [source.object_store.get(slot_path(slot)).last_modified_ms for slot in range(len(states))]

    for time_ms in [*times[::5], times[-1], times[3] + 1]:
        expected = max(slot for slot, state in enumerate(states) if max(state.time_ms, put_ms[slot]) <= time_ms)
        place = Place(world)
        assert source.admin.copy(place.process(), timestamp=time_ms).slot == expected
        check_copy(place.process(), states[expected], expected)

    with pytest.raises(OffsetOutOfRange, match="The oldest slot that can be copied is 0"):
        source.admin.copy(Place(world).process(), timestamp=times[0] - 1)


def test_a_time_that_a_slow_clock_repeats_does_not_count(source: Store, place: Place, world: World) -> None:
    before_ms, slot = world.time_ms, source.read(lambda state, slot: slot)
    world.pass_time(10_000)
    send(source, b"at 10 s")
    world.time_ms -= 5_000
    slow = world.process()
    send(slow, b"at 5 s")
    slow.log.checkpoint()
    send(slow, b"at 5 s")
    world.pass_time(10_000)
    assert states_of(slow)[-1].time_ms == before_ms + 10_000

    assert slow.admin.copy(place.process(), timestamp=before_ms + 7_000).slot == slot


def test_a_change_without_a_time_counts_by_the_date_of_its_slot(source: Store, place: Place, world: World) -> None:
    before_ms, slot = world.time_ms, source.read(lambda state, slot: slot)
    world.pass_time(30_000)
    source.admin.delete_topic("k")
    assert source.read(lambda state, slot: state.time_ms) <= before_ms

    assert source.admin.copy(place.process(), timestamp=before_ms + 29_999).slot == slot
    assert "k" in place.process().admin.list_topics()
    assert source.admin.copy(place.process(), timestamp=before_ms + 30_000, update=True).slot == slot + 1
    assert "k" not in place.process().admin.list_topics()


def test_a_slot_of_a_copy_is_copied(source: Store, place: Place, world: World) -> None:
    first = source.admin.copy(place.process())
    copy = place.process()
    state, slot = state_of(copy)
    send(copy, b"later")
    other = Place(world)

    copy.admin.copy(other.process(), slot=slot)

    check_copy(other.process(), state, slot)
    with pytest.raises(OffsetOutOfRange) as refusal:
        copy_of(copy, world, first.slot)
    assert copy_of(copy, world, slot_named(refusal)).slot == first.slot + 1


def test_a_slot_that_was_deleted_is_refused_with_the_oldest_slot(source: Store, place: Place, world: World) -> None:
    time_ms = states_of(source)[5].time_ms
    forget_old_slots(source, world)

    with pytest.raises(OffsetOutOfRange, match="older slots and checkpoints were deleted") as refusal:
        source.admin.copy(place.process(), slot=5)
    with pytest.raises(OffsetOutOfRange) as refusal_of_time:
        source.admin.copy(place.process(), timestamp=time_ms)

    assert not place.process().is_occupied()
    oldest = slot_named(refusal)
    assert slot_named(refusal_of_time) == oldest
    assert copy_of(source, world, oldest).slot == oldest
    with pytest.raises(OffsetOutOfRange):
        copy_of(source, world, oldest - 1)


@pytest.mark.parametrize("is_next_deleted", [False, True])
def test_a_record_under_the_name_of_a_deleted_slot_is_not_copied(
    source: Store, place: Place, is_next_deleted: bool
) -> None:
    records = records_of(source)
    checkpoint = next(record.checkpoint for record in reversed(records) if record.checkpoint is not None)
    paused = records[checkpoint.slot + 1]
    for _ in range(3):
        source.log.checkpoint()
    # The checkpoint below exists longer than its slots.
    source.object_store.delete([slot_path(slot) for slot in range(paused.slot + 1 + is_next_deleted)])
    orphan = paused.model_copy(update={"append_id": "0" * 32, "entries": ()})
    source.object_store.put(slot_path(paused.slot), slot_body(encode_line(orphan)))

    with pytest.raises(OffsetOutOfRange):
        source.admin.copy(place.process(), slot=paused.slot)


def test_a_slot_whose_files_were_deleted_is_refused_and_not_replaced(world: World, place: Place) -> None:
    source = world.process(LogConfig(inline_limit_bytes=0))
    source.admin.create_topic("t")
    send(source, b"first")
    slot = source.read(lambda state, slot: slot)
    rewrite_everything(source, world)

    with pytest.raises(OffsetOutOfRange, match=f"slot {slot} can no longer be copied: .* was dropped") as refusal:
        source.admin.copy(place.process(), slot=slot)

    with pytest.raises(NotAStore):
        place.process().describe()
    newer = slot_named(refusal)
    assert copy_of(source, world, newer).slot == newer
    # The user may choose the newer slot for the same target, or the newest one.
    assert source.admin.copy(place.process(), slot=newer).slot == newer
    check_copy(place.process(), states_of(source)[newer], newer, source)


def test_if_the_files_are_deleted_during_the_copy_it_is_refused(source: Store, place: Place, world: World) -> None:
    slot = source.read(lambda state, slot: slot) - 1
    points = []

    def meanwhile(point: str) -> None:
        points.append(point)
        if point == "store.copy.file_put" and points.count(point) == 1:
            rewrite_everything(world.process(), world)

    with pytest.raises(OffsetOutOfRange, match="can no longer be copied"):
        source.admin.copy(place.hooked(meanwhile), slot=slot)

    assert points.count("store.copy.planned") == 1
    # Without a slot, the command falls forward.
    assert source.admin.copy(place.process()).slot > slot
    check_copy(place.process(), *state_of(source), source)


@pytest.mark.parametrize(
    "point",
    sweep(
        ["begun", "checkpoints_written", "planned", "file_put", "completed", "slot_put"],
        quick=["file_put", "slot_put"],
    ),
)
def test_a_killed_copy_of_a_slot_is_continued(source: Store, place: Place, world: World, point: str) -> None:
    state = states_of(source)[20]

    def die(reached: str) -> None:
        if reached == f"store.copy.{point}":
            raise Died

    with pytest.raises(Died):
        source.admin.copy(place.hooked(die), slot=20)
    send(source, b"meanwhile")

    assert source.admin.copy(place.process(), slot=20).slot == 20
    check_copy(place.process(), state, 20)
    check_rows(place.process(), source, 20)


def test_an_unfinished_copy_of_a_newer_slot_does_not_go_back(source: Store, place: Place) -> None:
    def die(reached: str) -> None:
        if reached == "store.copy.file_put":
            raise Died

    with pytest.raises(Died):
        source.admin.copy(place.hooked(die), slot=20)

    with pytest.raises(InvalidRequest, match="has a copy of slot 20, and a copy does not go back to slot 19"):
        source.admin.copy(place.process(), slot=19)
    assert source.admin.copy(place.process(), slot=21).slot == 21


def test_a_complete_copy_of_another_slot_is_refused(source: Store, place: Place) -> None:
    source.admin.copy(place.process(), slot=20)

    assert source.admin.copy(place.process(), slot=20).was_complete
    with pytest.raises(InvalidRequest, match="has a copy of slot 20, not of slot 21"):
        source.admin.copy(place.process(), slot=21)
    for is_update in (False, True):
        with pytest.raises(InvalidRequest, match="has a copy of slot 20, and a copy does not go back to slot 19"):
            source.admin.copy(place.process(), slot=19, update=is_update)


def test_an_update_may_stop_at_a_later_slot(source: Store, place: Place) -> None:
    first = source.admin.copy(place.process(), slot=20, new_identity=True)
    states = states_of(source)

    report = source.admin.copy(place.process(), slot=25, new_identity=True, update=True)

    assert (report.slot, report.store_id) == (25, first.store_id)
    found, _ = state_of(place.process())
    assert found.groups == states[25].groups
    assert found.time_ms == states[25].time_ms
    copied = place.process().scan("t", isolation_level="snapshot").to_table()
    assert copied.equals(source.scan("t", slot=25).to_table())
    assert source.admin.copy(place.process(), new_identity=True, update=True).slot == len(states) - 1


def test_a_copy_of_an_older_slot_goes_on_from_there(source: Store, place: Place, world: World) -> None:
    source.admin.copy(place.process(), slot=20)
    copy = place.process()
    before = copy.scan("t").to_table().num_rows

    send(copy, b"another future")

    assert copy.scan("t").to_table().num_rows > before
    assert not [each for each in copy.admin.verify(data=True) if each.severity.value == "error"]


def test_the_slots_below_an_invalid_record_are_copied(source: Store, place: Place, world: World) -> None:
    states = states_of(source)
    newest = len(states) - 1
    last = records_of(source)[newest]
    invalid = last.model_copy(update={"slot": newest + 1, "prev": last.append_id, "append_id": "1" * 32})
    source.object_store.put(slot_path(newest + 1), slot_body(encode_line(invalid)))

    world.process().admin.copy(place.process(), slot=newest)

    check_copy(place.process(), states[newest], newest)


@pytest.mark.parametrize(
    ("harm", "is_newest", "tail_bytes"),
    sweep(
        [
            (harm, is_newest, tail_bytes)
            for harm in ("spoil", "lose", "replace")
            for is_newest in (False, True)
            for tail_bytes in (0, 64 << 10)
        ],
        quick=[("spoil", True, 64 << 10), ("lose", True, 0), ("replace", False, 64 << 10)],
    ),
)
def test_the_slots_below_damaged_ones_are_copied(
    place: Place, world: World, tail_bytes: int, is_newest: bool, harm: str
) -> None:
    """If slots above the newest checkpoint are damaged, no process can open the log."""
    source = opened(world, tail_bytes)
    source.log.checkpoint()
    send(source, b"first")
    for number in range(12):
        send(source, b"more %d" % number)
    if not is_newest:
        for _ in range(3):
            source.log.checkpoint()
            send(source, b"later")
        for number in range(40):
            send(source, b"last %d" % number)
    states, records = states_of(source), records_of(source)
    base = records[-1].checkpoint
    assert base is not None
    # Records repeat those before them, so more than a few are damaged.
    damaged = range(len(records) - 9, len(records) - 1) if is_newest else range(base.slot - 14, base.slot - 6)
    for slot in damaged:
        if harm == "spoil":
            source.object_store.put(slot_path(slot), b"{spoiled}\n")
        elif harm == "lose":
            source.object_store.delete([slot_path(slot)])
        else:
            other = records[slot].model_copy(update={"append_id": "f" * 32, "prev": "e" * 32})
            source.object_store.put(slot_path(slot), slot_body(encode_line(other)))
    newest_good = damaged[0] - 1

    opened(world, tail_bytes).admin.copy(place.process(), slot=newest_good)

    check_copy(place.process(), states[newest_good], newest_good)
    with pytest.raises((CorruptRecord, OffsetOutOfRange)):
        opened(world, 0).admin.copy(Place(world).process(), slot=damaged[0])


def opened(world: World, tail_bytes: int) -> Store:
    store = world.process()
    assert isinstance(store.object_store, MemoryStore)
    store.object_store.tail_bytes = tail_bytes
    if not store.is_occupied():
        busy_store(world)
    return store


def test_a_slot_or_a_time_of_the_past_is_given(source: Store, place: Place, world: World) -> None:
    newest = source.read(lambda state, slot: slot)
    for given, problem in (
        ({"slot": 1, "timestamp": 1}, "not both"),
        ({"slot": newest + 1}, "is not there"),
        ({"slot": "5"}, "is a number of the log"),
        ({"timestamp": world.time_ms + DAY_MS}, "lies in the future"),
        ({"timestamp": "2026-01-31T12:00:00"}, "has no time zone"),
    ):
        with pytest.raises(InvalidOption, match=problem):
            source.admin.copy(place.process(), **given)  # type: ignore[arg-type]
    assert not place.process().is_occupied()
