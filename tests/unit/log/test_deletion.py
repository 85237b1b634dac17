"""Deleting slots and checkpoints: nothing that a cold reader, a paused process or a late entry can need."""

from __future__ import annotations

import contextlib

import pytest

from eoslog.errors import CommitStateUnknown, OutcomeLost
from eoslog.log.checkpoint import INLINE_PART_BYTES
from eoslog.log.log import Log
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.log.slots import CHECKPOINTS, SLOTS, slot_of, slot_path
from tests.unit.log.ledger import Ledger, LedgerMachine, add, move_horizon
from tests.unit.log.world import DAY_MS, HOUR_MS, Crashed, Fault, World, environment, names, script


def slots(log: Log[Ledger]) -> list[int]:
    return sorted(slot for info in log.store.list(SLOTS) if (slot := slot_of(info.path)) is not None)


def checkpoints(log: Log[Ledger]) -> set[str]:
    return {info.path for info in log.store.list(CHECKPOINTS)}


def with_two_checkpoints(world: World) -> Log[Ledger]:
    """Slots 0 to 8; checkpoints of slots 2 and 5, which slots 3 and 6 name."""
    log = world.created()
    log.append(add("a"))
    log.append(add("b"))
    log.checkpoint()
    log.append(add("c"))
    log.append(add("d"))
    log.checkpoint()
    log.append(add("e"))
    log.append(add("f"))
    return log


def test_slots_below_the_older_checkpoint_go_after_their_retention() -> None:
    world = World()
    log = with_two_checkpoints(world)
    world.now_ms += DAY_MS + HOUR_MS

    assert delete_old_slots(log) == 2
    assert slots(log) == [2, 3, 4, 5, 6, 7, 8]
    assert names(world.process()) == names(log)
    assert log.append(add("g")) == 9


@pytest.mark.parametrize(("needed", "deleted"), [(0, 0), (1, 1), (7, 2)])
def test_a_slot_stays_while_a_reader_may_need_it_or_an_older_one(
    needed: int, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    log = with_two_checkpoints(world)
    world.now_ms += DAY_MS + HOUR_MS
    monkeypatch.setattr(LedgerMachine, "oldest_needed_slot", lambda self, state: needed)

    assert delete_old_slots(log) == deleted
    assert slots(log) == list(range(deleted, 9))


def test_a_slot_within_the_grace_stays_and_so_do_those_after_it() -> None:
    world = World()
    log = world.created()
    log.append(add("a"))
    world.now_ms += DAY_MS
    log.append(add("b"))
    world.now_ms += HOUR_MS
    for _ in range(2):
        log.checkpoint()
    log.checkpoint()

    assert delete_old_slots(log) == 2
    assert slots(log)[0] == 2


def test_the_stores_clock_decides_the_age_of_a_slot_and_not_the_processs() -> None:
    world = World()
    log = with_two_checkpoints(world)

    assert delete_old_slots(log) == 0


def test_one_answer_that_is_dated_far_ahead_makes_no_slot_old() -> None:
    world = World()
    log = with_two_checkpoints(world)
    names(log)
    script(log).clock.observe(world.now_ms + 3 * DAY_MS)

    assert delete_old_slots(log) == 0


def test_no_slot_goes_before_there_are_two_checkpoints() -> None:
    world = World()
    log = world.created()
    for number in range(4):
        log.append(add(f"n{number}"))
    log.checkpoint()
    world.now_ms += 3 * DAY_MS

    assert delete_old_slots(log) == 0


@pytest.mark.parametrize("which", ["checkpoint", "previous_checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_no_slot_goes_while_a_checkpoint_cannot_be_read_back(which: str, damage: str) -> None:
    world = World()
    log = with_two_checkpoints(world)
    world.now_ms += 3 * DAY_MS
    path = getattr(log.replica, which).path
    if damage == "missing":
        script(log).delete([path])
    else:
        script(log).put(path, script(log).get(path).body[:-5])

    assert delete_old_slots(log) == 0
    assert names(world.process()) == names(log)


def test_a_crash_between_deletes_leaves_the_later_slots_and_another_goes_on() -> None:
    for request in range(1, 12):
        for landing in (False, True):
            world = World()
            log = with_two_checkpoints(world)
            expected = names(log)
            world.now_ms += 3 * DAY_MS
            dying = world.process()
            script(dying).requests_left = request
            script(dying).dies_after_landing = landing
            with contextlib.suppress(Crashed):
                delete_old_slots(dying)

            left = slots(log)
            assert left == list(range(left[0], 9))
            assert names(world.process()) == expected
            delete_old_slots(world.process())
            assert slots(log) == [2, 3, 4, 5, 6, 7, 8]


def test_a_paused_process_that_wins_a_deleted_slot_does_not_trust_its_win() -> None:
    world = World()
    log = world.created()
    paused = world.process_that_read()

    def meanwhile() -> None:
        for number in range(3):
            log.append(add(f"n{number}"))
            log.checkpoint()
        world.now_ms += 3 * DAY_MS
        assert delete_old_slots(log) > 0
        assert 1 not in slots(log)

    script(paused).before.append(meanwhile)
    with pytest.raises(CommitStateUnknown):
        paused.append(add("mine"))
    paused.append(add("mine"))

    assert "log.slot.stale_win_refused" in environment(paused).points
    assert names(world.process()) == ["created", "n0", "n1", "n2", "mine"]
    assert names(log) == names(paused)


def test_stray_slots_of_paused_processes_are_deleted_too_and_delay_nothing() -> None:
    world = World()
    log = with_two_checkpoints(world)
    for number in range(3):
        log.append(add(f"n{number}"))
        log.checkpoint()
    world.now_ms += 3 * DAY_MS
    delete_old_slots(log)
    first = slots(log)[0]
    world.put(1, b"stray\n")
    for number in range(3):
        log.append(add(f"m{number}"))
        log.checkpoint()
    world.now_ms += HOUR_MS

    assert delete_old_slots(log) > 0
    assert slots(log)[0] == 1
    assert slots(log)[1] > first

    world.now_ms += 3 * DAY_MS
    assert delete_old_slots(log) > 0
    assert 1 not in slots(log)


def test_a_follower_within_half_the_grace_never_misses_a_slot() -> None:
    world = World()
    log, follower = world.created(), world.process()
    names(follower)
    world.now_ms += 11 * HOUR_MS
    for number in range(5):
        log.append(add(f"n{number}"))
        log.checkpoint()
        world.now_ms += HOUR_MS // 10
    delete_old_slots(log)
    lists = script(follower).requests["LIST"]

    assert names(follower) == names(log)
    assert script(follower).requests["LIST"] == lists


def test_objects_that_the_two_newest_checkpoints_name_are_never_deleted() -> None:
    world = World()
    log = world.created()
    log.append(add("x" * (INLINE_PART_BYTES + 1)))
    for number in range(5):
        log.append(add(f"a{number}"))
        log.checkpoint()
    world.now_ms += DAY_MS
    log.append(move_horizon(world.now_ms - HOUR_MS))

    assert delete_old_checkpoints(log) == 3
    assert names(world.process()) == names(log)
    kept = checkpoints(log)
    assert len(kept) == 3  # two roots, and the large part that they share

    previous = log.replica.previous_checkpoint
    assert previous is not None
    assert log.replica.checkpoint is not None
    script(log).delete([log.replica.checkpoint.path])
    assert names(world.process()) == names(log)


def test_a_checkpoint_that_can_still_be_named_is_not_deleted() -> None:
    """Its objects stand, the entry that names them is on its way."""
    world = World()
    log, slow = with_two_checkpoints(world), world.process()
    names(slow)
    deleted: list[int] = []
    script(slow).before.append(lambda: deleted.append(delete_old_checkpoints(log)))

    reference = slow.checkpoint()

    assert deleted == [0]
    assert reference.path in checkpoints(log)
    assert slow.replica.checkpoint == reference


def test_a_checkpoint_that_was_deleted_can_no_longer_be_named() -> None:
    world = World()
    log, slow = with_two_checkpoints(world), world.process(slot_retention_ms=100 * DAY_MS)
    names(slow)

    def meanwhile() -> None:
        world.now_ms += 8 * DAY_MS
        log.append(move_horizon(world.now_ms - 7 * DAY_MS))
        assert delete_old_checkpoints(log) == 1

    script(slow).before.append(meanwhile)

    written_again = slow.checkpoint()

    assert names(world.process()) == names(log)
    assert log.replica.checkpoint == written_again
    assert written_again.path in checkpoints(log)


def test_no_checkpoint_is_deleted_while_a_root_cannot_be_read() -> None:
    world = World()
    log = with_two_checkpoints(world)
    log.checkpoint()
    world.now_ms += DAY_MS
    log.append(move_horizon(world.now_ms - 1))
    assert log.replica.checkpoint is not None
    script(log).put(log.replica.checkpoint.path, b"{}")

    assert delete_old_checkpoints(log) == 0


def test_a_crash_between_deletes_of_checkpoints_harms_nobody() -> None:
    for request in range(1, 12):
        world = World()
        log = world.created()
        for number in range(6):
            log.append(add(f"n{number}"))
            log.checkpoint()
        world.now_ms += DAY_MS
        log.append(move_horizon(world.now_ms - 1))
        dying = world.process()
        script(dying).requests_left = request
        with contextlib.suppress(Crashed):
            delete_old_checkpoints(dying)

        assert names(world.process()) == names(log)
        delete_old_checkpoints(world.process())
        assert len(checkpoints(log)) == 2


def test_a_slot_that_is_deleted_while_its_outcome_is_unknown_is_reported_as_deleted() -> None:
    world = World()
    log = world.created()
    script(log).faults.extend([Fault.ANSWER_LOST] + [Fault.REQUEST_LOST] * 200)
    with pytest.raises(CommitStateUnknown) as caught:
        log.append(add("x"))
    script(log).faults.clear()
    other = world.process()
    for number in range(3):
        other.append(add(f"n{number}"))
        other.checkpoint()
    world.now_ms += 3 * DAY_MS
    delete_old_slots(other)
    assert slot_path(1) not in {info.path for info in other.store.list(SLOTS)}

    with pytest.raises(OutcomeLost):
        log.resolve(1, caught.value.append_id)
