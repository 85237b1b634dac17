"""A complete copy says how far it is behind. An update brings it to the newest slot, and at any point it is a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import Store, StoreAlreadyExists
from eoslog.copying.store_copy import CopyReport
from eoslog.log.replica import LogConfig
from eoslog.log.slots import SLOTS, slot_path
from eoslog.maintenance.sealing import seal_now
from tests.depth import sweep
from tests.unit.copying.copies import Place, busy_store, rewrite_everything, state_of
from tests.unit.support.partitions import partition_of
from tests.unit.support.world import World
from tests.unit.verification.histories import faults

SETTLED = 3
"""Slots with which the log of a copy begins."""


@pytest.fixture
def source(world: World) -> Store:
    return busy_store(world)


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def update(source: Store, place: Place) -> CopyReport:
    return source.admin.copy(place.process(), update=True)


def check_same(copy: Store, source: Store) -> None:
    """Check that a copy is sound and has the state and the rows of the source's newest slot, and nothing else."""
    state, slot = state_of(source)
    found, _ = state_of(copy)
    assert found.transactions == state.transactions
    assert found.application_versions == state.application_versions
    assert found.groups == state.groups
    for topic in state.topic_ids:
        expected = source.scan(topic, isolation_level="snapshot").to_table()
        assert copy.scan(topic, isolation_level="snapshot").to_table().equals(expected)
    copied = copy.describe().copied
    assert copied is not None
    assert copied.slot == slot
    assert faults(copy) == []


def send(store: Store, value: bytes) -> None:
    with store.producer() as producer:
        producer.send("t", value, partition=0)


def test_a_complete_copy_says_how_far_it_is_behind(source: Store, place: Place) -> None:
    first = source.admin.copy(place.process())
    assert first.source_slot == first.slot
    send(source, b"more")
    newest = source.read(lambda state, slot: slot)

    again = source.admin.copy(place.process())

    assert (again.was_complete, again.slot, again.source_slot) == (True, first.slot, newest)
    assert newest > first.slot


@pytest.mark.parametrize("commits", sweep([1, 7], quick=[7]))
def test_an_update_copies_only_the_files_that_the_copy_lacks(source: Store, place: Place, commits: int) -> None:
    first = source.admin.copy(place.process())
    for number in range(commits):
        send(source, b"%d" % number)

    report = update(source, place)

    assert (report.was_complete, report.slot) == (False, report.source_slot)
    assert report.files - report.files_reused == commits
    assert report.files_reused == first.files
    check_same(place.process(), source)
    assert [info.path for info in place.process().object_store.list(SLOTS)] != []
    assert len(list(place.process().object_store.list(SLOTS))) == SETTLED


def test_a_copy_that_is_not_behind_is_not_updated(source: Store, place: Place) -> None:
    first = source.admin.copy(place.process())

    report = update(source, place)

    assert (report.was_complete, report.slot) == (True, first.slot)


def test_an_update_of_nothing_is_a_first_copy(source: Store, place: Place) -> None:
    assert not update(source, place).was_complete
    check_same(place.process(), source)


def test_files_that_the_source_dropped_leave_the_copy_too(source: Store, place: Place, world: World) -> None:
    source.admin.copy(place.process())
    rewrite_everything(source, world)

    for _ in range(3):
        send(source, b"more")
        update(source, place)

    check_same(place.process(), source)
    files = {info.path for info in place.process().object_store.list("") if not info.path.startswith((".", "__"))}
    fresh = Place(world)
    source.admin.copy(fresh.process())
    expected = {info.path for info in fresh.process().object_store.list("") if not info.path.startswith((".", "__"))}
    assert files == expected


def test_a_copy_that_was_written_to_is_not_updated(source: Store, place: Place) -> None:
    source.admin.copy(place.process())
    send(place.process(), b"written to the copy")
    send(source, b"more")

    with pytest.raises(StoreAlreadyExists, match="was written to"):
        update(source, place)

    values = place.process().scan("t", columns=["value"]).to_table().column("value").to_pylist()
    assert b"written to the copy" in values
    assert b"more" not in values


def test_a_copy_with_a_new_identity_is_updated_with_it(source: Store, place: Place) -> None:
    first = source.admin.copy(place.process(), new_identity=True)
    send(source, b"more")

    report = source.admin.copy(place.process(), new_identity=True, update=True)

    assert report.store_id == first.store_id == place.process().describe().store_id
    with pytest.raises(StoreAlreadyExists):
        update(source, place)


class _Died(BaseException):
    pass


class Death:
    """A process dies when it comes to a point for the n-th time."""

    def __init__(self, point: str, times: int) -> None:
        self._point, self._left = point, times

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                raise _Died


class Pause:
    """A process is paused when it comes to a point for the n-th time, while something else happens."""

    def __init__(self, point: str, times: int, meanwhile: Callable[[], None]) -> None:
        self._point, self._left, self._meanwhile = point, times, meanwhile

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()


@pytest.mark.parametrize(
    ("point", "times", "is_switched"),
    [
        pytest.param("store.copy.checkpoints_written", 1, False, marks=pytest.mark.slow),
        pytest.param("store.copy.planned", 1, False, marks=pytest.mark.slow),
        ("store.copy.file_put", 1, False),
        pytest.param("store.copy.files_copied", 1, False, marks=pytest.mark.slow),
        pytest.param("store.copy.completed", 1, False, marks=pytest.mark.slow),
        ("store.copy.slot_put", 1, True),
        pytest.param("store.copy.slot_put", 2, True, marks=pytest.mark.slow),
        pytest.param("store.copy.slots_put", 1, True, marks=pytest.mark.slow),
        pytest.param("store.copy.verified", 1, True, marks=pytest.mark.slow),
        pytest.param("store.copy.described", 1, True, marks=pytest.mark.slow),
        ("store.copy.outdated_files_deleted", 1, True),
    ],
)
def test_a_killed_update_leaves_the_old_copy_or_the_new_one(
    source: Store, place: Place, world: World, point: str, times: int, is_switched: bool
) -> None:
    source.admin.copy(place.process())
    before = place.process().scan("t", isolation_level="snapshot").to_table()
    rewrite_everything(source, world)
    after = source.scan("t", isolation_level="snapshot").to_table()

    with pytest.raises(_Died):
        source.admin.copy(place.hooked(Death(point, times)), update=True)

    copy = place.process()
    assert copy.scan("t", isolation_level="snapshot").to_table().equals(after if is_switched else before)
    assert {each.kind for each in faults(copy)} <= {"slot-lost", "slot-stray"}
    send(world.process(), b"more")
    update(world.process(), place)
    check_same(place.process(), world.process())


@pytest.mark.parametrize(
    ("point", "times"),
    [
        pytest.param("store.copy.completed", 1, marks=pytest.mark.slow),
        ("store.copy.slot_put", 1),
        pytest.param("store.copy.slot_put", 2, marks=pytest.mark.slow),
        pytest.param("store.copy.slots_put", 1, marks=pytest.mark.slow),
        pytest.param("store.copy.verified", 1, marks=pytest.mark.slow),
        ("store.copy.described", 1),
    ],
)
def test_an_update_that_newer_updates_overtake_ends_with_the_newest_copy(
    source: Store, place: Place, world: World, point: str, times: int
) -> None:
    """The newer updates delete the slots that the paused one then puts again."""
    source.admin.copy(place.process())
    rewrite_everything(source, world)

    def overtake() -> None:
        for number in range(2):
            send(world.process(), b"newer %d" % number)
            update(world.process(), place)

    overtaken = source.admin.copy(place.hooked(Pause(point, times, overtake)), update=True)

    check_same(place.process(), world.process())
    copied = place.process().describe().copied
    assert copied is not None
    assert overtaken.slot == copied.slot


def test_slots_that_a_dead_update_put_again_are_deleted_by_the_next_one(
    source: Store, place: Place, world: World
) -> None:
    source.admin.copy(place.process())
    rewrite_everything(source, world)
    death = Death("store.copy.slots_put", 1)

    def overtake() -> None:
        send(world.process(), b"newer")
        update(world.process(), place)

    pause = Pause("store.copy.slot_put", 1, overtake)

    def both(point: str) -> None:
        pause(point)
        death(point)

    with pytest.raises(_Died):
        source.admin.copy(place.hooked(both), update=True)
    assert {each.kind for each in faults(place.process())} == {"slot-lost"}
    send(world.process(), b"more")
    update(world.process(), place)

    check_same(place.process(), world.process())


@pytest.mark.parametrize("missing", [1, SETTLED])
def test_a_copy_that_lost_its_newest_slots_gets_them_back_from_the_same_command(
    source: Store, place: Place, missing: int
) -> None:
    report = source.admin.copy(place.process())
    last = report.slot + SETTLED
    store = place.process().object_store
    store.delete([slot_path(slot) for slot in range(last - missing + 1, last + 1)])

    found = faults(place.process())
    again = source.admin.copy(place.process())

    assert [(each.kind, each.slot) for each in found] == [
        ("copy-slot-missing", last - missing + 1),
        *([("log-unreadable", None)] if missing == SETTLED else []),
    ]
    assert again.slot == report.slot
    check_same(place.process(), source)


def test_a_lost_file_of_the_source_is_brought_back_from_the_copy(world: World, place: Place) -> None:
    source = world.process(LogConfig(inline_limit_bytes=0))
    source.admin.create_topic("t")
    for value in (b"0", b"1", b"2", b"3"):
        send(source, value)
        if value == b"1":
            seal_now(source, ["t"])
    source.admin.copy(place.process())
    segment = partition_of(source, "t").sealed[0]
    active = partition_of(source, "t").active[0].file
    assert active is not None
    source.object_store.delete([segment.index.path])
    source.object_store.put(active.path, b"damaged")
    assert {each.kind for each in faults(source)} == {"index-missing", "data-damaged"}

    for path in (segment.index.path, active.path):
        source.object_store.put(path, place.process().object_store.get(path).body)

    assert faults(source) == []
    assert source.scan("t").to_table().num_rows == 4
