"""Vacuum and the Delta tables whose files it deletes: of topics that were unpublished, deleted or compacted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from eoslog import InvalidTopic, Store, TopicConfig
from eoslog.delta import delta_log
from eoslog.delta.actions import DeltaTable
from eoslog.delta.delta_log import DeltaLog
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.publication import Publication, Publisher
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import referenced_files, vacuum
from eoslog.storage.object_store import PutOutcome
from tests.delta_logs import check_versions, tables, versions
from tests.unit.support.delta_tables import row_places
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.world import World

COLUMNS = pa.schema([("key", pa.int64())])
WITHDRAWAL = [(point, nth) for nth in (1, 2) for point in ("delta.version.planned", "delta.version.put")]
"""The points of a withdrawal, in order. One version announces it, the next one removes the files."""

UNUSED: dict[str, Callable[[Store], object]] = {
    "compacted": lambda store: None,
    "unpublished": lambda store: store.admin.alter_topic("t", publish="none"),
    "deleted": lambda store: store.admin.delete_topic("t"),
}
"""Changes of a compacted topic after which vacuum deletes files that its table names."""

POINTS = [
    ("segment.vacuum.horizon_moved", 1),
    *WITHDRAWAL,
    ("delta.checkpoint.written", 1),
    ("delta.checkpoint.written", 2),
    ("segment.vacuum.files_deleted", 1),
]
DEATHS = [(change, point) for change in UNUSED for point in POINTS if change != "compacted" or point[1] == 1]
"""A topic that is published has one version without the files, and no withdrawal."""


@pytest.fixture
def store(world: World) -> Store:
    """A store with the published topic ``t`` of three rows, in files of their own."""
    store = world.process()
    config = TopicConfig(publish="delta", segment_batches=2)
    store.admin.create_topic("t", schema=COLUMNS, key="key", config=config)
    with store.producer("writer") as producer:
        producer.init_transactions()
        for key in range(3):
            producer.begin_transaction()
            producer.send_table("t", pa.table({"key": [key]}, schema=COLUMNS))
            producer.commit_transaction()
    Coordinator(store).publish()
    return store


def vacuum_all(store: Store) -> None:
    vacuum(store, staged_max_age_ms=0, deleted_file_retention_ms=0)


@pytest.mark.parametrize(
    ("asleep", "dead"), [(point, later) for number, point in enumerate(WITHDRAWAL) for later in WITHDRAWAL[number:]]
)
def test_a_topic_that_is_published_again_keeps_its_rows_if_the_withdrawal_of_its_table_dies(
    world: World, store: Store, asleep: tuple[str, int], dead: tuple[str, int]
) -> None:
    dying, coordinator = world.process(), Coordinator(store)
    store.admin.alter_topic("t", publish="none")

    def publish_again() -> None:
        store.admin.alter_topic("t", publish="delta")
        coordinator.publish()

    slept = asleep_at(dying, asleep[0], publish_again, asleep[1])
    dies_at(dying, *dead)
    with suppress(Died):
        Publisher.of(dying).release_files("t", "delta")

    assert slept
    assert len(row_places(store.object_store, "t")) == 3
    world.process().admin.publish("t")
    assert len(row_places(store.object_store, "t")) == 3
    assert newest_properties(store)[-1].get("eoslog.publish") is None
    check_versions(store.object_store, "t")


def newest_properties(store: Store) -> list[dict[str, str]]:
    """Return the properties of a table after each version that sets them."""
    actions = (action for version in versions(store.object_store, "t") for action in version)
    return [action["metaData"]["configuration"] for action in actions if "metaData" in action]


@pytest.mark.parametrize("publishes_all", [True, False])
def test_a_table_known_from_before_its_withdrawal_does_not_count_as_published_again(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch, publishes_all: bool
) -> None:
    dying, coordinator = world.process(), Coordinator(store)
    store.admin.alter_topic("t", segment_batches=3)  # So that the next publication compares the table.
    late: list[Callable[[], PutOutcome]] = []
    put, refresh = dying.object_store.put_if_absent, DeltaLog.refresh

    def put_removals_late(path: str, body: bytes) -> PutOutcome:
        if "/_delta_log/" in path and b'"remove"' in body:
            late.append(lambda: put(path, body))
            raise Died
        return put(path, body)

    def withdrawn_meanwhile(self: DeltaLog, **options: Any) -> DeltaTable:
        monkeypatch.setattr(DeltaLog, "refresh", refresh)
        table = self.refresh(**options)
        store.admin.alter_topic("t", publish="none")
        with pytest.raises(Died):
            Publisher.of(dying).release_files("t", "delta")
        store.admin.alter_topic("t", publish="delta")
        return table

    monkeypatch.setattr(dying.object_store, "put_if_absent", put_removals_late)
    monkeypatch.setattr(DeltaLog, "refresh", withdrawn_meanwhile)
    if publishes_all:
        coordinator.publish()
    else:
        store.admin.publish("t")
    for each in late:
        each()
    coordinator.publish()

    assert late
    assert len(row_places(store.object_store, "t")) == 3


def test_the_files_of_a_topic_that_is_published_for_a_moment_are_kept_for_its_table(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher.of(world.process())
    store.admin.alter_topic("t", publish="none")
    put_next = publisher._put_next

    def published_for_a_moment(*arguments: Any) -> Publication:
        monkeypatch.undo()
        store.admin.alter_topic("t", publish="delta")
        found = put_next(*arguments)
        store.admin.alter_topic("t", publish="none")
        return found

    monkeypatch.setattr(publisher, "_put_next", published_for_a_moment)

    with pytest.raises(InvalidTopic, match="topic t is not published"):
        publisher.release_files("t", "delta")
    assert len(row_places(store.object_store, "t")) == 3


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(("change", "point"), DEATHS)
def test_a_vacuum_that_dies_leaves_a_table_whose_files_exist_and_the_next_one_ends_the_work(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch, change: str, point: tuple[str, int]
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_VERSIONS", 1)
    seal_segments(store)
    assert compact_files(store).compacted
    UNUSED[change](store)
    dying = world.process()
    dies_at(dying, *point)

    with pytest.raises(Died):
        vacuum_all(dying)
    left = list(tables(store.object_store, "t"))[-1]
    assert left.has_all_files
    assert len(left.files) in ((3, 1) if change == "compacted" else (3, 0))
    vacuum_all(world.process())

    assert len(row_places(store.object_store, "t")) == (3 if change == "compacted" else 0)
    files = {info.path for info in store.object_store.list("t/") if "/_delta_log/" not in info.path}
    assert files == store.read(lambda state, slot: set(referenced_files(store.object_store, state)))
    if change == "unpublished":
        store.admin.alter_topic("t", publish="delta")
        Coordinator(store).publish()
        assert len(row_places(store.object_store, "t")) == 3
    check_versions(store.object_store, "t")
