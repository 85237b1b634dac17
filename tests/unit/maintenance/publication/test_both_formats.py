"""Publication: rules that hold for the tables of both formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eoslog import Store, TopicPartition
from eoslog.errors import StoreUnavailable
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.entries import TableFormat
from eoslog.storage.object_store import ObjectStore
from tests.delta_logs import check_versions, versions
from tests.iceberg_tables import check_iceberg_versions, hint_of, metadata_of, newest_version
from tests.unit.maintenance.publication import published_topics
from tests.unit.maintenance.publication.published_topics import create, write
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World, faulty


@dataclass(frozen=True)
class Format:
    """A format of tables, and what an engine finds of the table of topic ``t``."""

    name: TableFormat
    directory: str
    """All objects of the table's log are below it."""
    versions: str
    """The paths of the table's versions begin with it."""
    first_version: int
    keys: Callable[[Store, Path], list[int]]
    identity: Callable[[ObjectStore], str]
    count: Callable[[ObjectStore], int]
    """Returns the number of versions."""
    check: Callable[[ObjectStore], None]
    """Checks each version against the one before."""


def _delta_identity(objects: ObjectStore) -> str:
    found = [
        action["metaData"]["id"] for actions in versions(objects, "t") for action in actions if "metaData" in action
    ]
    return str(found[-1])


def _check_iceberg(objects: ObjectStore) -> None:
    assert hint_of(objects, "t") == max(metadata_of(objects, "t"))
    check_iceberg_versions(objects, "t")


DELTA = Format(
    "delta",
    "t/_delta_log/",
    "t/_delta_log/",
    0,
    published_topics.keys,
    _delta_identity,
    lambda objects: len(list(versions(objects, "t"))),
    lambda objects: check_versions(objects, "t"),
)
ICEBERG = Format(
    "iceberg",
    "__iceberg/t/",
    "__iceberg/t/metadata/v",
    1,
    lambda store, _: sorted(row[2] for row in newest_version(store.object_store, "t").rows("key")),
    lambda objects: str(newest_version(objects, "t").metadata["table-uuid"]),
    lambda objects: len(metadata_of(objects, "t")),
    _check_iceberg,
)
POINTS = [
    (DELTA, "delta.version.planned"),
    *((ICEBERG, f"iceberg.{point}") for point in ("version.planned", "manifests.put", "version.put", "hint.put")),
]


@pytest.fixture(params=[DELTA, ICEBERG], ids=lambda each: each.name)
def table(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def store(world: World, table: Format) -> Store:
    """A store with the topic ``t``, which is published."""
    store = world.process()
    create(store, publish=table.name)
    return store


@pytest.mark.parametrize(("table", "point"), POINTS)
def test_of_two_publishers_at_once_each_version_has_one(
    world: World, store: Store, tmp_path: Path, table: Format, point: str
) -> None:
    slow = world.process()
    write(store, 1)

    def meanwhile() -> None:
        store.admin.publish("t")
        write(store, 2)
        store.admin.publish("t")

    slept = asleep_at(slow, point, meanwhile)
    slow.admin.publish("t")

    assert slept
    assert table.keys(store, tmp_path) == [1, 2]
    table.check(store.object_store)


@pytest.mark.parametrize("lands", [True, False])
def test_a_version_whose_put_got_no_answer_is_published_once(
    store: Store, tmp_path: Path, table: Format, lands: bool
) -> None:
    write(store, 1)
    faulty(store).lose_one_answer(table.versions, lands=lands)

    (found,) = store.admin.publish("t")

    assert (found.version, found.files_added) == (table.first_version, 1)
    assert table.count(store.object_store) == 1
    assert table.keys(store, tmp_path) == [1]


@pytest.mark.parametrize("lands", [True, False])
def test_a_version_whose_outcome_is_unknown_is_published_once(
    store: Store, tmp_path: Path, table: Format, lands: bool
) -> None:
    write(store, 1)
    faulty(store).lose_answers(table.versions, lands=lands)

    with pytest.raises(StoreUnavailable):
        store.admin.publish("t")
    faulty(store).heal()
    store.admin.publish("t")

    assert table.count(store.object_store) == 1
    assert table.keys(store, tmp_path) == [1]


def test_a_topic_that_is_created_again_is_another_table(store: Store, tmp_path: Path, table: Format) -> None:
    write(store, 1)
    store.admin.publish("t")
    first = table.identity(store.object_store)
    store.admin.delete_topic("t")
    create(store, publish=table.name)
    write(store, 2, name="q")

    store.admin.publish("t")

    assert table.identity(store.object_store) != first
    assert table.keys(store, tmp_path) == [2]
    if table is ICEBERG:
        assert len(newest_version(store.object_store, "t").metadata["snapshots"]) == 1


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("end", ["delete", "unpublish", "other format"])
def test_a_table_whose_files_go_becomes_empty_first(store: Store, tmp_path: Path, table: Format, end: str) -> None:
    write(store, 1, 2)
    store.admin.publish("t")
    if end == "delete":
        store.admin.delete_topic("t")
    else:
        other = "iceberg" if table is DELTA else "delta"
        store.admin.alter_topic("t", publish="none" if end == "unpublish" else other)
        store.admin.delete_records({TopicPartition("t", 0): 2})

    vacuum(store, deleted_file_retention_ms=0)

    assert table.keys(store, tmp_path) == []
    table.check(store.object_store)
    if end != "delete":
        store.admin.alter_topic("t", publish=table.name)
        write(store, 3)
        store.admin.publish("t")
        assert table.keys(store, tmp_path) == [3]


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_keeps_the_files_of_a_table_that_cannot_be_changed(store: Store, tmp_path: Path, table: Format) -> None:
    write(store, 1, 2)
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 2})
    faulty(store).deny(table.directory)

    vacuum(store, deleted_file_retention_ms=0)
    faulty(store).heal()
    kept = table.keys(store, tmp_path)
    vacuum(store, deleted_file_retention_ms=0)

    assert kept == [1, 2]
    assert table.keys(store, tmp_path) == []
    assert not [info for info in store.object_store.list("t/") if info.path.endswith("0.parquet")]
