"""A copy that dies at any point is no store until it is whole, and the next run completes it. So do two at once."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.copying.store_copy import StoreCopy
from eoslog.errors import InvalidRequest, NotAStore, StoreAlreadyExists, StoreUnavailable
from eoslog.log.slots import slot_path
from eoslog.maintenance.coordinator import Coordinator
from eoslog.session.description import DESCRIPTION_PATH
from eoslog.storage.object_store import ObjectInfo
from tests.depth import sweep
from tests.unit.copying.copies import Place, another_busy_store, busy_store, check_copy, rewrite_everything, state_of
from tests.unit.support.paused_processes import Died
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty

POINTS = (
    "log.checkpoint.parts_written",
    "log.checkpoint.root_written",
    "store.copy.begun",
    "store.copy.checkpoints_written",
    "store.copy.completed",
    "store.copy.described",
    "store.copy.file_put",
    "store.copy.files_copied",
    "store.copy.planned",
    "store.copy.probed",
    "store.copy.slots_put",
    "store.copy.verified",
)
FINAL = {"store.copy.completed", "store.copy.slots_put", "store.copy.verified", "store.copy.described"}
"""Points at which the plan can no longer change."""
PLANNED = {"store.copy.planned", "store.copy.file_put"}
"""Points at which the plan changes only if the source has deleted files of it."""
QUICK = {"store.copy.begun", "store.copy.file_put", "store.copy.completed", "store.copy.described"}
"""Points with one for each step of a copy."""
UNANSWERED = [
    (path, lands) for path in (".copy/0000", ".copy/0001", ".copy/0002", DESCRIPTION_PATH) for lands in (False, True)
]
QUICKLY_UNANSWERED = [(".copy/0000", False), (".copy/0001", True), (DESCRIPTION_PATH, True), ("t/", True)]


class Death:
    """Ends a process when it reaches a point for the n-th time. The dead do nothing more."""

    def __init__(self, point: str, times: int = 1) -> None:
        self._point = point
        self._left = times

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
        if self._left <= 0:
            raise Died


def copied_slot(place: Place) -> int | None:
    try:
        copied = place.process().describe().copied
    except NotAStore:
        return None
    assert copied is not None
    return copied.slot


@pytest.mark.parametrize(
    ("point", "times", "deletes"),
    sweep(
        [
            (point, times, deletes)
            for deletes in (True, False)
            for point in POINTS
            for times in ((1, 7) if "file_put" in point else (1,))
        ],
        # At other points it makes no difference whether the source has deleted files.
        quick=[*((point, 1, True) for point in QUICK), ("store.copy.file_put", 1, False)],
    ),
)
def test_a_killed_copy_is_no_store_and_the_next_run_completes_it(point: str, times: int, deletes: bool) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    state, slot = state_of(source)
    snapshot = source.scan("t", isolation_level="snapshot").to_table()

    with pytest.raises(Died):
        source.admin.copy(place.hooked(Death(point, times)))

    assert copied_slot(place) == (slot if point == "store.copy.described" else None)
    if deletes:
        rewrite_everything(world.process(), world)
    else:
        world.process().producer().send("t", b"more", partition=0)
    report = source.admin.copy(place.process())
    newest, newest_slot = state_of(source)
    if point in FINAL | {"store.copy.files_copied"} or (point in PLANNED and not deletes):
        # The slot of the first run: its files are still at the source, or were copied.
        assert report.slot == slot
        check_copy(place.process(), state, slot)
        assert place.process().scan("t", isolation_level="snapshot").to_table().equals(snapshot)
    else:
        assert report.slot == newest_slot
        check_copy(place.process(), newest, newest_slot, source)
    assert report.was_complete is (point == "store.copy.described")


@pytest.mark.parametrize("point", ["store.copy.begun", "store.copy.slots_put"])
def test_the_errors_of_an_unfinished_copy_say_to_run_it_again(point: str) -> None:
    world = World()
    place = Place(world)
    with pytest.raises(Died):
        busy_store(world).admin.copy(place.hooked(Death(point)))

    with pytest.raises(NotAStore, match=r"a copy that was not completed\. Run the same eoslog copy again"):
        place.process().describe()

    if point == "store.copy.slots_put":
        (missing,) = (each for each in place.process().admin.verify() if each.kind == "description-missing")
        assert missing.remedy.startswith("if there is a directory .copy, run the same eoslog copy again; otherwise")


@pytest.mark.parametrize("point", sweep(POINTS, QUICK))
def test_a_copy_that_is_overtaken_at_any_point_is_one_slot(point: str) -> None:
    """While one copy is paused, the source goes on and deletes files, and a second copy to the same place completes."""
    world = World()
    place, source = Place(world), busy_store(world)
    paused: list[str] = []
    slots: list[int] = []

    def overtake(reached: str) -> None:
        if reached == point and not paused:
            paused.append(reached)
            rewrite_everything(world.process(), world)
            slots.append(world.process().admin.copy(place.process()).slot)
            used = place.process()
            etl = open_transaction(used, "etl")
            etl.send("t", b"in the copy", partition=0)
            etl.commit_transaction()

    overtaken = source.admin.copy(place.hooked(overtake))

    assert slots == [overtaken.slot] == [copied_slot(place)]
    target = place.process()
    assert b"in the copy" in target.scan("t").to_table().column("value").to_pylist()
    assert not [each for each in target.admin.verify(data=True) if each.severity.value == "error"]


def test_a_paused_copy_that_resumes_when_old_slots_are_deleted_harms_nothing() -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    done = []

    def pause(reached: str) -> None:
        if reached == "store.copy.completed" and not done:
            done.append(reached)
            world.process().admin.copy(place.process())
            used = place.process()
            for _ in range(2):
                for number in range(70):
                    used.producer().send("t", b"%d" % number, partition=0)
                used.log.checkpoint()
                world.pass_time(2 * 24 * 3600 * 1000)
                list(Coordinator(used).run_once())

    source.admin.copy(place.hooked(pause))

    target = place.process()
    assert not [each for each in target.admin.verify(data=True) if each.severity.value == "error"]
    target.producer().send("t", b"still alive", partition=0)


def test_damage_at_the_target_between_two_runs_is_mended() -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    with pytest.raises(Died):
        source.admin.copy(place.hooked(Death("store.copy.files_copied")))
    objects = place.process().object_store
    paths = [info.path for info in objects.list("t/") if info.path.endswith(".parquet")]
    objects.put(paths[0], b"x" * len(objects.get(paths[0]).body))
    objects.delete(paths[1:2])

    source.admin.copy(place.process())

    check_copy(place.process(), *state_of(source), source)


def test_a_file_that_is_deleted_at_the_target_after_the_list_is_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    with pytest.raises(Died):
        source.admin.copy(place.hooked(Death("store.copy.files_copied")))
    target = place.process()
    real = target.object_store.list
    deleted: list[str] = []

    def delete_after_list(prefix: str, **options: Any) -> list[ObjectInfo]:
        found = list(real(prefix, **options))
        # The indexes are looked at first.
        indexes = [each.path for each in found if each.path.endswith(".index.parquet")]
        if indexes and not deleted:
            deleted.append(indexes[0])
            target.object_store.delete(deleted)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(target.object_store, "list", delete_after_list)
        patched.setattr(StoreCopy, "_verified", lambda copy, description: [])
        source.admin.copy(target)

    assert deleted
    check_copy(place.process(), *state_of(source), source)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_checkpoint_of_an_unfinished_copy_is_replaced(damage: str) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    with pytest.raises(Died):
        source.admin.copy(place.hooked(Death("store.copy.file_put")))
    objects = place.process().object_store
    for info in list(objects.list("__transaction_state/checkpoint/")):
        objects.delete([info.path])
        if damage == "changed":
            objects.put(info.path, b"x" * info.size)

    source.admin.copy(place.process())

    check_copy(place.process(), *state_of(source), source)


def test_an_unfinished_copy_is_continued_only_by_its_kind() -> None:
    world, other = World(), World()
    place, source = Place(world), busy_store(world)
    with pytest.raises(Died):
        source.admin.copy(place.hooked(Death("store.copy.begun")))

    with pytest.raises(InvalidRequest, match="unfinished copy with the same identity"):
        source.admin.copy(place.process(), new_identity=True)
    with pytest.raises(InvalidRequest, match="unfinished copy of the store"):
        another_busy_store(other).admin.copy(place.process())
    with pytest.raises(NotAStore, match="belong to no store"):
        place.process().create()
    assert copied_slot(place) is None


def test_an_unfinished_copy_that_is_older_than_the_source_is_not_continued() -> None:
    """The source has the identity of the store that the unfinished copy is of, but never had its slot."""
    world = World()
    old, new, source = Place(world), Place(world), busy_store(world)
    with pytest.raises(Died):
        source.admin.copy(old.hooked(Death("store.copy.planned")))
    source.producer().send("t", b"more", partition=0)
    source.admin.copy(new.process())

    with pytest.raises(StoreAlreadyExists, match="no copy of"):
        new.process().admin.copy(old.process())


@pytest.mark.parametrize(("path", "lands"), sweep(UNANSWERED, QUICKLY_UNANSWERED))
def test_a_put_without_an_answer_is_repeated(path: str, lands: bool) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    target = place.process()
    faulty(target).lose_one_answer(path, lands=lands)

    report = source.admin.copy(target)

    check_copy(place.process(), *state_of(source), source)
    assert report.slot == copied_slot(place)


@pytest.mark.parametrize(("path", "lands"), sweep([*UNANSWERED, ("t/", False), ("t/", True)], QUICKLY_UNANSWERED))
def test_a_copy_continues_after_an_outage_of_the_target(path: str, lands: bool) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    target = place.process()
    faulty(target).lose_answers(path, lands=lands)

    with pytest.raises(StoreUnavailable):
        source.admin.copy(target)

    faulty(target).heal()
    source.admin.copy(target)
    check_copy(place.process(), *state_of(source), source)


@pytest.mark.parametrize("when", ["store.copy.completed", "store.copy.verified"])
def test_a_store_that_is_created_during_the_copy_stays(when: str) -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    description = b""

    def create(point: str) -> None:
        nonlocal description
        if point == when:
            other = World().process()
            other.create()
            description = other.object_store.get(DESCRIPTION_PATH).body
            place.process().object_store.put_if_absent(DESCRIPTION_PATH, description)

    with pytest.raises(StoreAlreadyExists, match="Another process created it"):
        source.admin.copy(place.hooked(create))

    assert place.process().object_store.get(DESCRIPTION_PATH).body == description
    slots = list(place.process().object_store.list("__transaction_state/slot/"))
    assert bool(slots) is (when == "store.copy.verified")


def test_slots_of_a_store_that_is_created_during_the_copy_stay() -> None:
    world = World()
    place, source = Place(world), busy_store(world)
    _, slot = state_of(source)
    path, others = slot_path(slot + 2), b"a slot of the other store"

    def create(point: str) -> None:
        if point == "store.copy.completed":
            place.process().object_store.put_if_absent(path, others)

    with pytest.raises(StoreAlreadyExists, match="created a store there"):
        source.admin.copy(place.hooked(create))

    assert place.process().object_store.get(path).body == others
    assert copied_slot(place) is None
