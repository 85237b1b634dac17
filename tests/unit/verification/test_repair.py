"""A repair puts right what can lose nothing, may die anywhere, and leaves a store that is verified as sound."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoslog import Store
from eoslog.errors import StoreAccessDenied
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore
from eoslog.verification.findings import Kind, Severity
from tests.depth import sweep
from tests.unit.support.paused_processes import At, Died, die
from tests.unit.verification.histories import copy_of_small_history, faults, newest, partition, references
from tests.unit.verification.test_corruptions import (
    DAMAGES,
    append_record,
    forge_checkpoint,
    lose_snapshot,
    sealed_index,
)


@pytest.fixture
def store(environment: Environment) -> Store:
    return copy_of_small_history(Store(MemoryStore(environment), environment))


def objects(store: Store) -> dict[str, bytes]:
    return {info.path: store.object_store.get(info.path).body for info in store.object_store.list("")}


def repair(store: Store) -> list[tuple[str, bool]]:
    """Kinds of what was found to be repaired, and whether it was."""
    found = list(store.admin.verify())
    return [(each.finding.kind, each.done) for each in store.admin.repair(found)]


def spoil(store: Store, path: str) -> None:
    store.object_store.put(path, b"x" + store.object_store.get(path).body[1:])


def derived(store: Store) -> list[str]:
    return [
        file.path for each in partition(store).sealed for file in (each.txnindex, each.snapshot) if file is not None
    ]


def test_nothing_is_done_where_nothing_is_wrong(store: Store) -> None:
    before = objects(store)

    assert repair(store) == []
    assert objects(store) == before


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_checkpoint_that_cannot_be_read_is_replaced(store: Store, which: int, damage: str) -> None:
    path = references(store)[which].path
    if damage == "missing":
        store.object_store.delete([path])
    else:
        spoil(store, path)

    assert repair(store) == [(f"checkpoint-{damage}", True)]

    assert path not in [each.path for each in references(store)]
    assert faults(store) == []


def test_both_checkpoints_are_replaced_while_all_slots_are_there(store: Store) -> None:
    for reference in references(store):
        spoil(store, reference.path)

    assert {done for _, done in repair(store)} == {True}
    assert faults(store) == []


def test_both_checkpoints_cannot_be_replaced_once_slots_are_gone(store: Store) -> None:
    named = references(store)
    store.object_store.delete([f"{path}" for path in objects(store) if _is_slot_below(path, named[1].slot)])
    for reference in named:
        spoil(store, reference.path)
    before = objects(store)

    assert repair(store) == []
    assert objects(store) == before
    found = faults(store)
    assert [each.kind for each in found] == ["checkpoint-damaged", "checkpoint-damaged", "log-unreadable"]
    assert {each.remedy for each in found} == {Kind.LOG_UNREADABLE.remedy}


def test_a_txnindex_whose_index_is_damaged_too_is_not_said_to_be_repairable(store: Store) -> None:
    segment = next(each for each in partition(store).sealed if each.txnindex is not None)
    assert segment.txnindex is not None
    spoil(store, segment.index.path)
    spoil(store, segment.txnindex.path)

    found = faults(store)

    assert [(each.kind, each.repairable) for each in found] == [("index-damaged", False), ("txnindex-damaged", False)]
    assert found[1].remedy == Kind.SLOT_DAMAGED.remedy
    assert repair(store) == []


def _is_slot_below(path: str, slot: int) -> bool:
    name = path.rpartition("/")[2].removesuffix(".json")
    return path.startswith("__transaction_state/slot/") and int(name) < slot


def test_derived_files_are_restored_as_they_were(store: Store) -> None:
    before = objects(store)
    first, second, *_ = derived(store)
    store.object_store.delete([first])
    spoil(store, second)

    assert [done for _, done in repair(store)] == [True, True]
    assert objects(store) == before


def test_a_file_is_put_back_beside_one_that_cannot_be(store: Store) -> None:
    lost = lose_snapshot(store)
    txnindex = next(each.txnindex.path for each in partition(store).sealed if each.txnindex is not None)
    before = store.object_store.get(txnindex).body
    spoil(store, txnindex)

    assert repair(store) == [("txnindex-damaged", True)]
    assert store.object_store.get(txnindex).body == before
    assert [(each.kind, each.path) for each in faults(store)] == [("snapshot-lost", lost)]


@pytest.mark.usefixtures("files_are_objects")
def test_no_slot_and_no_data_file_is_ever_changed(store: Store) -> None:
    before = objects(store)
    spoil(store, references(store)[0].path)
    store.object_store.delete(derived(store))
    lost = next(each.file.path for each in partition(store).active if each.file is not None)
    store.object_store.delete([lost])

    repair(store)

    after = objects(store)
    kept = [path for path in before if "/slot/" in path or (path.endswith(".parquet") and path != lost)]
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    assert lost not in after
    assert [each.kind for each in faults(store)] == ["data-missing"]


class Mortal(Environment):
    """A process that dies when it has come to so many named points."""

    def __init__(self, after: int) -> None:
        self.left = after

    def reached(self, crash_point: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died


@pytest.mark.parametrize("points", sweep(range(8), quick=range(0, 8, 4)))
def test_a_repair_that_dies_anywhere_is_gone_on_with(store: Store, points: int) -> None:
    spoil(store, references(store)[0].path)
    store.object_store.delete(derived(store))
    found = list(store.admin.verify())

    dying = Store(store.object_store, Mortal(points))
    try:
        list(dying.admin.repair(found))
    except Died:
        assert {each.kind for each in faults(store)} <= {each.kind for each in found}

    assert {done for _, done in repair(store)} <= {True}
    assert faults(store) == []


def test_a_repair_that_dies_between_two_checkpoints_leaves_the_first(store: Store) -> None:
    spoil(store, references(store)[0].path)
    found = list(store.admin.verify())
    before = newest(store)

    with pytest.raises(Died):
        list(Store(store.object_store, At("verification.repair.checkpoint_written", die)).admin.repair(found))

    assert newest(store) == before + 1
    assert {done for _, done in repair(store)} <= {True}
    assert faults(store) == []


def test_another_may_have_repaired_it_meanwhile(store: Store, environment: Environment) -> None:
    spoil(store, references(store)[0].path)
    store.object_store.delete(derived(store))
    found = list(store.admin.verify())
    repair(store)
    slot = newest(store)

    assert {each.done for each in Store(store.object_store, environment).admin.repair(found)} == {True}
    assert newest(store) == slot


class ReadOnly(MemoryStore):
    """A store whose writes are all refused."""

    def _refuse(self, *_: Any) -> Any:
        raise StoreAccessDenied("memory://: not allowed")

    put = put_if_absent = put_many = delete = delete_many = _refuse


def test_where_nothing_may_be_written_nothing_is_done_and_it_is_said(store: Store, environment: Environment) -> None:
    spoil(store, references(store)[0].path)
    store.object_store.delete(derived(store)[:1])
    read_only = ReadOnly(environment)
    for path, body in objects(store).items():
        MemoryStore.put(read_only, path, body)

    repairs = list(Store(read_only, environment).admin.repair(list(store.admin.verify())))

    assert [each.done for each in repairs] == [False, False]
    assert all("not allowed" in each.what for each in repairs)


@pytest.fixture
def old(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Callable[[], None]]:
    """A store on disk, and a function that lets two days pass for it."""
    kept = LocalStore(tmp_path / "store", environment, fsync=False)
    store = copy_of_small_history(Store(kept, environment))

    def pass_two_days() -> None:
        real = kept._clock_file.date_ms
        monkeypatch.setattr(kept._clock_file, "date_ms", lambda: real() + 2 * 24 * 3600 * 1000)

    return store, pass_two_days


def test_temporary_files_of_writers_are_removed_after_a_day_only(
    old: tuple[Store, Callable[[], None]], tmp_path: Path
) -> None:
    store, pass_two_days = old
    left = tmp_path / "store" / ".tmp" / ("ab" * 16)
    left.write_bytes(b"half a slot")
    object_store: ObjectStore = store.object_store
    object_store.put(".probe/x/twice", b"first")

    assert list(store.admin.verify()) == []
    pass_two_days()
    assert [(each.kind, each.path) for each in store.admin.verify() if each.kind == "leftovers"] == [
        ("leftovers", ".probe/"),
        ("leftovers", f".tmp/{'ab' * 16}"),
    ]

    repairs = list(store.admin.repair(list(store.admin.verify())))

    assert [each.done for each in repairs] == [True, True]
    assert not os.path.lexists(left)
    assert [each for each in store.admin.verify() if each.kind == "leftovers"] == []


def test_a_repair_keeps_temporary_files_while_the_chain_is_broken(
    old: tuple[Store, Callable[[], None]], tmp_path: Path
) -> None:
    store, pass_two_days = old
    left = tmp_path / "store" / ".tmp" / ("ab" * 16)
    left.write_bytes(b"it may be the slot that is lost")
    DAMAGES["slot: a predecessor of the first"].do(store)
    pass_two_days()

    assert repair(store) == [("leftovers", False)]
    assert left.exists()


IN_DOUBT = [name for name, damage in DAMAGES.items() if Kind(damage.kind).log_in_doubt]


def test_only_errors_that_no_repair_puts_right_put_the_log_in_doubt() -> None:
    doubts = [kind for kind in Kind if kind.log_in_doubt]

    assert doubts
    assert all(kind.severity is Severity.ERROR and not kind.repairable for kind in doubts)


def forge_the_newest_checkpoint_and_spoil_the_older(store: Store) -> None:
    forge_checkpoint(store)
    spoil(store, references(store)[1].path)
    # The record of a correct writer names the forged one as the newest.
    append_record(store, [])


def test_a_differing_checkpoint_beside_a_damaged_one_blocks_all_repairs(store: Store) -> None:
    forge_the_newest_checkpoint_and_spoil_the_older(store)
    before = objects(store)
    found = list(store.admin.verify())
    assert [each.kind for each in found] == ["checkpoint-damaged", "checkpoint-differs"]

    (left,) = store.admin.repair(found)

    assert (left.finding, left.done) == (found[0], False)
    assert left.what.startswith("nothing is repaired while the log is in doubt: checkpoint-differs: slot ")
    assert left.what.endswith(f"First: {found[1].remedy}")
    assert objects(store) == before


def test_the_log_stays_in_doubt_with_only_repairable_findings_handed_over(store: Store) -> None:
    forge_the_newest_checkpoint_and_spoil_the_older(store)
    before = objects(store)

    repairs = list(store.admin.repair([each for each in store.admin.verify() if each.repairable]))

    assert [(each.finding.kind, each.done) for each in repairs] == [("checkpoint-damaged", False)]
    assert objects(store) == before


@pytest.mark.parametrize("damage", sweep(IN_DOUBT, quick=sorted(IN_DOUBT)[::2]))
def test_while_the_log_is_in_doubt_nothing_is_repaired(store: Store, damage: str) -> None:
    store.object_store.delete(derived(store)[:1])
    DAMAGES[damage].do(store)
    before = objects(store)

    again = Store(store.object_store, store.environment)
    found = list(again.admin.verify())
    repairs = list(again.admin.repair(found))

    assert any(each.log_in_doubt for each in found)
    assert [each.finding for each in repairs if each.done] == []
    assert objects(store) == before


def test_a_lost_index_is_no_doubt_and_the_rest_is_repaired(store: Store) -> None:
    lost = sealed_index(store)
    store.object_store.delete([lost])
    spoil(store, references(store)[0].path)

    assert ("checkpoint-damaged", True) in repair(store)
    assert [(each.kind, each.path) for each in faults(store)] == [("index-missing", lost)]
