"""Publication: the versions in which a Delta table gets removed rows and new rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from eoslog import Store, TopicPartition
from eoslog.maintenance.key_compaction import compact_keys
from tests.delta_logs import check_versions, rows_by_stream, slot_of, versions
from tests.iceberg_tables import check_iceberg_versions
from tests.unit.maintenance.publication.published_topics import (
    COLUMNS,
    changes,
    compact,
    create,
    keys,
    seal,
    send,
    write,
)
from tests.unit.support.overwriting import overwrite
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World


def described(store: Store, since: int) -> list[tuple[str, int, dict[str, set[bool]]]]:
    """Return operation, slot and changes of the versions after a version."""
    return [
        (actions[0]["commitInfo"]["operation"], slot_of(actions), changes(actions))
        for actions in list(versions(store.object_store, "t"))[since + 1 :]
    ]


def stream(store: Store) -> list[int]:
    """Return the offsets that a Delta stream with skipChangeCommits takes from the one partition."""
    return [offset for _, offset in rows_by_stream(store.object_store, "t", skip_change_commits=True) or []]


def test_a_version_that_only_deletes_records_is_a_delete(store: Store) -> None:
    write(store, 0, 1, 2)
    (before,) = store.admin.publish("t")

    store.admin.delete_records({TopicPartition("t", 0): 2})
    (after,) = store.admin.publish("t")

    assert described(store, before.version) == [("DELETE", after.slot, {"add": {True}, "remove": {True}})]


def test_removed_rows_and_new_rows_have_a_version_each(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1, 2)
    (before,) = store.admin.publish("t")
    write(store, 3, 4)
    store.admin.delete_records({TopicPartition("t", 0): 2})

    (after,) = store.admin.publish("t")

    assert described(store, before.version) == [
        ("DELETE", before.slot, {"add": {True}, "remove": {True}}),
        ("WRITE", after.slot, {"add": {True}}),
    ]
    assert (after.version, after.files_added, after.files_removed) == (before.version + 2, 2, 1)
    assert keys(store, tmp_path, before.version + 1) == [2]
    assert keys(store, tmp_path) == [2, 3, 4]
    assert stream(store) == [0, 1, 2, 4, 5]


def test_a_seal_puts_published_rows_of_records_and_new_ones_into_files_of_their_own(world: World) -> None:
    store = world.process()
    create(store, publish="none")
    late = open_transaction(store, "late")
    send(late, 0)
    write(store, 1)
    store.admin.alter_topic("t", publish="delta,iceberg")
    store.admin.publish("t")
    late.commit_transaction()
    seal(store)

    store.admin.publish("t")

    check_versions(store.object_store, "t")
    check_iceberg_versions(store.object_store, "t")
    assert rows_by_stream(store.object_store, "t", skip_change_commits=True) == [(0, 0), (0, 1)]


def test_rows_compacted_by_key_and_new_rows_have_a_version_each(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, cleanup_policy="compact")
    for key in (1, 2, 1, 2):
        write(store, key)
    (before,) = store.admin.publish("t")
    seal(store)
    compact_keys(store, force=True)
    write(store, 3)

    (after,) = store.admin.publish("t")

    assert [each[:2] for each in described(store, before.version)] == [("DELETE", before.slot), ("WRITE", after.slot)]
    assert keys(store, tmp_path, before.version + 1) == [1, 2]
    assert stream(store) == [0, 2, 4, 6, 8]


def test_a_publisher_that_dies_between_removals_and_new_rows_leaves_a_whole_table(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0, 1, 2)
    (before,) = store.admin.publish("t")
    write(store, 3)
    store.admin.delete_records({TopicPartition("t", 0): 3})
    dying = world.process()
    dies_at(dying, "delta.version.put")

    with pytest.raises(Died):
        dying.admin.publish("t")
    left = keys(store, tmp_path)
    write(store, 4)
    store.admin.publish("t")

    assert left == []
    assert keys(store, tmp_path) == [3, 4]
    assert stream(store) == [0, 1, 2, 4, 6]
    assert [each[:1] for each in described(store, before.version)] == [("DELETE",), ("WRITE",)]


def test_another_publisher_between_removals_and_new_rows_puts_the_new_rows_once(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0)
    store.admin.publish("t")
    write(store, 1)
    store.admin.delete_records({TopicPartition("t", 0): 1})
    slow = world.process()
    asleep_at(slow, "delta.version.put", lambda: store.admin.publish("t"))

    (found,) = slow.admin.publish("t")

    assert (found.version, found.files_added, found.files_removed) == (2, 0, 1)
    assert keys(store, tmp_path) == [1]
    assert stream(store) == [0, 2]


def test_an_overwrite_is_one_version_and_later_rows_have_their_own(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1)
    (before,) = store.admin.publish("t")
    slot = overwrite(store, "t", pa.table({"key": [5, 6], "text": ["5", "6"]}, schema=COLUMNS))
    write(store, 7)

    (after,) = store.admin.publish("t")

    assert described(store, before.version) == [
        ("WRITE", slot, {"add": {True}, "remove": {True}}),
        ("WRITE", after.slot, {"add": {True}}),
    ]
    assert keys(store, tmp_path, before.version + 1) == [5, 6]
    assert keys(store, tmp_path) == [5, 6, 7]


def test_an_overwrite_without_rows_removes_rows(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1)
    (before,) = store.admin.publish("t")
    overwrite(store, "t", COLUMNS.empty_table())
    write(store, 7)

    store.admin.publish("t")

    assert [each[0] for each in described(store, before.version)] == ["DELETE", "WRITE"]
    assert keys(store, tmp_path) == [7]


def test_a_file_of_old_and_new_rows_keeps_removed_and_added_rows_in_one_version(store: Store, tmp_path: Path) -> None:
    write(store, 0)
    (before,) = store.admin.publish("t")
    store.admin.alter_topic("t", publish="none")
    write(store, 1)
    compact(store)
    store.admin.alter_topic("t", publish="delta")

    (after,) = store.admin.publish("t")

    assert described(store, before.version) == [("WRITE", after.slot, {"add": {True}, "remove": {True}})]
    assert keys(store, tmp_path) == [0, 1]
