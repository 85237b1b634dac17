"""Publication as Iceberg tables: publishers that die or meet, other writers, and damaged tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog import Store, TopicPartition
from eoslog.maintenance.publication import Publisher
from eoslog.maintenance.vacuum import vacuum
from eoslog.storage.object_store import ObjectStore, PutOutcome
from tests.iceberg_tables import (
    check_iceberg_versions,
    hint_of,
    iceberg_versions,
    manifests,
    metadata_of,
    newest_version,
    path_of,
)
from tests.unit.maintenance.publication.published_topics import create, write
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.world import World, faulty

DIRECTORY = "__iceberg/t/metadata/"
HINT = f"{DIRECTORY}version-hint.text"
POINTS = ["iceberg.version.planned", "iceberg.manifests.put", "iceberg.version.put", "iceberg.hint.put"]
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store(world: World) -> Store:
    """A store with the topic ``t``, whose Iceberg table has three versions of one row each."""
    store = world.process()
    create(store, publish="iceberg")
    for key in range(3):
        write(store, key)
        store.admin.publish("t")
    return store


def keys(store: Store) -> list[int]:
    """Return the keys that an engine finds: it starts at the hint."""
    return sorted(row[2] for row in newest_version(store.object_store, "t").rows("key"))


@pytest.mark.parametrize("point", POINTS)
def test_a_publisher_that_dies_leaves_a_whole_table_and_the_next_one_continues(
    world: World, store: Store, point: str
) -> None:
    dying = world.process()
    write(store, 3)
    dies_at(dying, point)

    with pytest.raises(Died):
        dying.admin.publish("t")
    left = keys(store)
    store.admin.publish("t")

    assert left == ([0, 1, 2] if point != "iceberg.hint.put" else [0, 1, 2, 3])
    assert keys(store) == [0, 1, 2, 3]
    assert list(metadata_of(store.object_store, "t")) == [1, 2, 3, 4]
    check_iceberg_versions(store.object_store, "t")


def test_a_publisher_that_was_paused_for_half_a_day_puts_nothing_on_what_it_knew(world: World, store: Store) -> None:
    """The next version may have been there meanwhile, and vacuum may have deleted it."""
    slow = world.process()
    write(store, 3)

    def meanwhile() -> None:
        for key in (4, 5):
            write(store, key)
            store.admin.publish("t")
        world.pass_time(2 * DAY_MS)
        write(store, 6)
        store.admin.publish("t")
        vacuum(store)
        assert list(metadata_of(store.object_store, "t")) == [6]

    asleep_at(slow, "iceberg.manifests.put", meanwhile)
    slow.admin.publish("t")

    assert list(metadata_of(store.object_store, "t")) == [6]
    assert keys(store) == [0, 1, 2, 3, 4, 5, 6]


def test_a_version_whose_put_lands_after_vacuum_has_deleted_its_number_is_not_the_newest(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = world.process()
    write(store, 3)
    put_if_absent = faulty(slow).put_if_absent

    def put_late(path: str, body: bytes) -> PutOutcome:
        if path == f"{DIRECTORY}v4.metadata.json":
            monkeypatch.undo()
            store.admin.publish("t")
            write(store, 4)
            store.admin.publish("t")
            world.pass_time(DAY_MS + 1)
            write(store, 5)
            store.admin.publish("t")
            vacuum(store)
            assert list(metadata_of(store.object_store, "t")) == [6]
        return put_if_absent(path, body)

    monkeypatch.setattr(faulty(slow), "put_if_absent", put_late)
    (found,) = slow.admin.publish("t")

    assert found.version == hint_of(store.object_store, "t") == 6
    assert keys(store) == [0, 1, 2, 3, 4, 5]


def test_a_hint_that_is_late_or_gone_or_wrong_is_put_right(world: World, store: Store) -> None:
    for body in (b"1", b"2\n", b"17", b"", b"-1", b"9" * 400, b"three"):
        store.object_store.put(HINT, body)
        for each in (store, world.process()):
            each.admin.publish("t")
            assert hint_of(store.object_store, "t") == 3, body
    store.object_store.delete([HINT])
    world.process().admin.publish("t")
    assert hint_of(store.object_store, "t") == 3


Change = Callable[[ObjectStore, dict[str, Any]], dict[str, Any]]


def _with_snapshot(objects: ObjectStore, metadata: dict[str, Any]) -> dict[str, Any]:
    """An engine appends a snapshot of its own, with files of its own."""
    before = metadata["snapshots"][-1]
    path = before["manifest-list"].replace("/snap-", "/snap-9")
    objects.put(path_of(objects, path), b"of another program")
    added = before | {
        "snapshot-id": 99,
        "parent-snapshot-id": before["snapshot-id"],
        "sequence-number": before["sequence-number"] + 1,
        "timestamp-ms": before["timestamp-ms"] + 5,
        "manifest-list": path,
        "summary": {"operation": "append"},
    }
    return metadata | {"snapshots": [*metadata["snapshots"], added], "current-snapshot-id": 99}


FOREIGN: dict[str, Change] = {
    "snapshot": _with_snapshot,
    "rollback": lambda objects, metadata: metadata | {"current-snapshot-id": metadata["snapshots"][0]["snapshot-id"]},
    "only snapshot": lambda objects, metadata: metadata | {"snapshots": metadata["snapshots"][:1]},
    "properties": lambda objects, metadata: metadata | {"properties": {"write.format.default": "parquet"}},
    "schema": lambda objects, metadata: metadata | {"current-schema-id": 7},
    "spec": lambda objects, metadata: metadata | {"default-spec-id": 3},
    "uuid": lambda objects, metadata: metadata | {"table-uuid": "9a3f2c1e-0000-4000-8000-000000000000"},
    "format": lambda objects, metadata: metadata | {"format-version": 3},
    "place": lambda objects, metadata: metadata | {"location": "s3://elsewhere/t"},
    "list elsewhere": lambda objects, metadata: json.loads(
        json.dumps(metadata).replace("/metadata/snap-", "/../snap-")
    ),
    "no snapshots": lambda objects, metadata: metadata | {"snapshots": [], "current-snapshot-id": -1},
    "not a table": lambda objects, metadata: {"this": ["is", "no", "table"]},
}


@pytest.mark.parametrize("change", FOREIGN)
@pytest.mark.parametrize("is_known", [True, False])
def test_the_next_version_after_that_of_another_program_restores_the_table(
    world: World, store: Store, change: str, is_known: bool
) -> None:
    objects = store.object_store
    before = newest_version(objects, "t").metadata
    objects.put(f"{DIRECTORY}v4.metadata.json", json.dumps(FOREIGN[change](objects, before)).encode())
    objects.put(HINT, b"4")
    publisher = store if is_known else world.process()
    write(store, 3)

    publisher.admin.publish("t")

    table = newest_version(objects, "t")
    assert keys(store) == [0, 1, 2, 3]
    for name in ("table-uuid", "location", "properties", "schemas", "partition-specs", "format-version"):
        assert table.metadata[name] == before[name]
    assert publisher.admin.publish("t")[0].version == table.version
    # A stream that has read the snapshots before goes on, if they are there.
    if change in ("snapshot", "properties", "schema", "spec", "format"):
        assert [each["snapshot-id"] for each in table.metadata["snapshots"]][:3] == [
            each["snapshot-id"] for each in before["snapshots"]
        ]


@pytest.mark.parametrize("change", ["snapshot", "rollback"])
def test_a_version_of_another_program_is_taken_back_without_new_rows(store: Store, change: str) -> None:
    metadata = FOREIGN[change](store.object_store, newest_version(store.object_store, "t").metadata)
    store.object_store.put(f"{DIRECTORY}v4.metadata.json", json.dumps(metadata).encode())

    (found,) = store.admin.publish("t")

    assert found.version == hint_of(store.object_store, "t") == 5
    assert keys(store) == [0, 1, 2]


def _objects(objects: ObjectStore) -> dict[str, str]:
    table = newest_version(objects, "t")
    return {
        "metadata": f"{DIRECTORY}v{table.version}.metadata.json",
        "manifest list": path_of(objects, table.snapshot["manifest-list"]),
        "manifest": path_of(objects, manifests(objects, table.snapshot)[0]["manifest_path"]),
    }


@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut short", "other bytes"])
def test_a_damaged_table_is_written_anew(world: World, store: Store, kind: str, damage: str) -> None:
    objects = store.object_store
    path = _objects(objects)[kind]
    body = objects.get(path).body
    if damage == "gone":
        objects.delete([path])
    else:
        objects.put(path, {"empty": b"", "cut short": body[:-7], "other bytes": b"x" * len(body)}[damage])
    write(store, 3)

    world.process().admin.publish("t")

    assert keys(store) == [0, 1, 2, 3]
    assert newest_version(objects, "t").version == (3 if (kind, damage) == ("metadata", "gone") else 4)
    store.admin.publish("t")
    assert keys(store) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest"])
def test_a_read_that_is_cut_short_is_no_damage(world: World, store: Store, kind: str) -> None:
    publisher = world.process()
    write(store, 3)

    faulty(publisher).cut_one_read(_objects(store.object_store)[kind])
    publisher.admin.publish("t")

    check_iceberg_versions(store.object_store, "t")
    assert [table.operation for table in iceberg_versions(store.object_store, "t")] == ["append"] * 4


def test_a_table_that_was_deleted_is_written_anew(world: World, store: Store) -> None:
    store.object_store.delete([info.path for info in store.object_store.list("__iceberg/")])

    (found,) = store.admin.publish("t")

    assert found.version == 1
    assert keys(store) == [0, 1, 2]


def test_a_table_of_a_store_that_was_moved_gets_its_new_paths(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "old"), fsync=False)
    create(store, publish="iceberg")
    write(store, 1)
    store.admin.publish("t")
    (tmp_path / "old").rename(tmp_path / "new")
    moved = eoslog.connect(str(tmp_path / "new"), fsync=False)

    moved.admin.publish("t")

    table = newest_version(moved.object_store, "t")
    assert table.metadata["location"] == f"{tmp_path}/new/__iceberg/t"
    assert [row[2] for row in table.rows("key")] == [1]


def test_a_slot_that_the_log_does_not_have_is_reported(store: Store) -> None:
    objects = store.object_store
    metadata = json.dumps(newest_version(objects, "t").metadata)
    objects.put(
        f"{DIRECTORY}v4.metadata.json",
        metadata.replace('"eoslog.slot": "', '"eoslog.slot": "99').encode(),
    )

    with pytest.raises(eoslog.errors.IllegalState, match=r"Iceberg table of topic t shows slot 99.*__iceberg/t"):
        store.admin.publish("t")


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(("point", "nth"), [(point, nth) for nth in (1, 2) for point in POINTS])
def test_a_topic_that_is_published_again_keeps_its_rows_if_the_withdrawal_of_its_table_dies(
    world: World, store: Store, point: str, nth: int
) -> None:
    dying = world.process()
    store.admin.alter_topic("t", publish="none")
    dies_at(dying, point, nth)

    with pytest.raises(Died):
        Publisher.of(dying).release_files("t", "iceberg")
    store.admin.alter_topic("t", publish="iceberg")
    store.admin.publish("t")

    assert keys(store) == [0, 1, 2]
    assert "eoslog.publish" not in newest_version(store.object_store, "t").metadata["properties"]


@pytest.mark.parametrize("point", ["iceberg.version.planned", "iceberg.manifests.put"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_withdrawal_that_meets_a_publisher_does_not_empty_its_table(
    world: World, store: Store, point: str, nth: int
) -> None:
    slow = world.process()
    store.admin.alter_topic("t", publish="none")

    def publish_again() -> None:
        store.admin.alter_topic("t", publish="iceberg")
        store.admin.publish("t")

    asleep_at(slow, point, publish_again, nth)
    Publisher.of(slow).release_files("t", "iceberg")

    assert keys(store) == [0, 1, 2]
    check_iceberg_versions(store.object_store, "t")


def test_the_objects_of_a_table_that_another_program_changed_are_kept_until_it_is_restored(
    world: World, store: Store
) -> None:
    objects = store.object_store
    metadata = _with_snapshot(objects, newest_version(objects, "t").metadata)
    objects.put(f"{DIRECTORY}v4.metadata.json", json.dumps(metadata).encode())
    world.pass_time(2 * DAY_MS)
    before = {info.path for info in objects.list(DIRECTORY)}

    vacuum(store)
    kept = {info.path for info in objects.list(DIRECTORY)}
    store.admin.publish("t")
    vacuum(store)

    assert kept == before
    assert len({info.path for info in objects.list(DIRECTORY)}) < len(before)
    assert keys(store) == [0, 1, 2]


def test_rows_are_removed_before_new_ones_are_added_also_after_another_program(store: Store) -> None:
    objects = store.object_store
    metadata = _with_snapshot(objects, newest_version(objects, "t").metadata)
    objects.put(f"{DIRECTORY}v4.metadata.json", json.dumps(metadata).encode())
    store.admin.delete_records({TopicPartition("t", 0): 1})
    write(store, 3)

    store.admin.publish("t")

    found = {version: metadata["snapshots"][-1]["summary"] for version, metadata in metadata_of(objects, "t").items()}
    assert [found[version]["operation"] for version in (5, 6)] == ["delete", "append"]
    assert found[6]["added-records"] == "1"
    assert len(list(objects.list(DIRECTORY))) > 0
    assert keys(store) == [1, 2, 3]
