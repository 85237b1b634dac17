"""Iceberg tables of format version 3: each row has an id (row lineage)."""

from __future__ import annotations

from pathlib import Path

import pytest

from eoslog import InvalidTopic, Store
from eoslog.iceberg import next_manifests
from tests.depth import sweep
from tests.iceberg_tables import check_iceberg_versions, iceberg_versions, manifests, newest_version
from tests.published_history import History
from tests.unit.maintenance.publication.published_topics import create, write
from tests.unit.support.world import World


@pytest.fixture
def store(world: World) -> Store:
    """A store with the topic ``t``, which is published as an Iceberg table of version 2."""
    store = world.process()
    create(store, publish="iceberg")
    return store


def row_ids(store: Store) -> dict[int, int]:
    """Return the id of the first row of each file, by the file's base offset."""
    files = newest_version(store.object_store, "t").files.values()
    return {file["partition"]["_base_offset"]: file["first_row_id"] for file in files}


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("seed", sweep(range(3), quick=[0]))
def test_each_row_has_an_id_of_its_own_in_every_version(tmp_path: Path, seed: int, cleanup_policy: str) -> None:
    history = History(str(tmp_path), seed, cleanup_policy, table_format="iceberg", iceberg_format_version=3)
    history.run(60)

    assert {table.metadata["format-version"] for table in iceberg_versions(history.store.object_store, "t")} == {3}
    check_iceberg_versions(history.store.object_store, "t")


def test_an_upgrade_gives_ids_to_the_rows_that_were_there(store: Store) -> None:
    write(store, 1, 2)
    write(store, 3)
    store.admin.publish("t")

    store.admin.alter_topic("t", iceberg_format_version=3)
    (upgraded,) = store.admin.publish("t")
    write(store, 4)
    store.admin.publish("t")

    versions = [table.metadata["format-version"] for table in iceberg_versions(store.object_store, "t")]
    assert (upgraded.version, upgraded.files_added, versions) == (2, 0, [2, 3, 3])
    assert sorted(row_ids(store).values()) == [0, 2, 3]
    check_iceberg_versions(store.object_store, "t")


@pytest.mark.usefixtures("files_are_objects")
def test_ids_stay_when_another_publisher_writes_the_manifests_of_the_earlier_version_again(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_manifests, "MOST_MANIFESTS", 4)
    other = world.process()
    for key in range(3):
        write(store, key)
        other.admin.publish("t")
    store.admin.alter_topic("t", iceberg_format_version=3)
    write(store, 7)
    store.admin.publish("t")
    before = row_ids(store)
    write(store, 8)

    other.admin.publish("t")

    # The version of the other publisher has one manifest for all earlier files.
    assert len(manifests(store.object_store, newest_version(store.object_store, "t").snapshot)) == 2
    assert {base: row_id for base, row_id in row_ids(store).items() if base in before} == before
    check_iceberg_versions(store.object_store, "t")


def test_the_format_version_never_decreases(store: Store) -> None:
    store.admin.alter_topic("t", iceberg_format_version=3)

    with pytest.raises(InvalidTopic, match="cannot decrease from 3 to 2, because Iceberg has no way back"):
        store.admin.alter_topic("t", iceberg_format_version=2)

    assert store.admin.describe_topic("t").config.iceberg_format_version == 3


def test_another_format_version_is_refused(store: Store) -> None:
    with pytest.raises(
        InvalidTopic, match=r"iceberg_format_version cannot be 4\. It must be a whole number from 2 to 3"
    ):
        store.admin.alter_topic("t", iceberg_format_version=4)
