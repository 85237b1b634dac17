"""Skipping damaged files: all readers get exactly the other rows, at their offsets, and the loss is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import CorruptRecord, OffsetOutOfRange, Store, TopicPartition
from eoslog.log.replica import LogConfig
from eoslog.log.slots import slot_path
from eoslog.maintenance.file_skipping import DamagedDataFile
from eoslog.maintenance.sealing import seal_now
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.entries import FilesSkipped, SkippedFile
from eoslog.state.partition_state import Batch
from eoslog.verification.findings import Kind, Severity
from tests.depth import examples
from tests.unit.maintenance.publication import published_topics
from tests.unit.maintenance.publication.published_topics import changes, newest
from tests.unit.support.delta_tables import copy_to, rows_by_delta, rows_of_snapshot
from tests.unit.support.partitions import partition_of, read
from tests.unit.support.readers import consumed
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import ManualEnvironment, World

PLACES = {
    "object": LogConfig(inline_limit_bytes=0, shared_limit_bytes=0),
    "shared object": LogConfig(inline_limit_bytes=0),
    "record": LogConfig(),
}
"""Where small files are, and the settings that put them there."""


def send(store: Store, *values: bytes, beside: bool = False) -> None:
    """Append rows to partition 0, with one flush, and if wanted one to partition 1. Then files may share an object."""
    with store.producer() as producer:
        for value in values:
            producer.send("t", value, partition=0)
        if beside:
            producer.send("t", b"beside", partition=1)


def batches(store: Store, topic: str = "t") -> list[Batch]:
    """The batches of partition 0 that have a file, sealed and active."""
    partition = partition_of(store, topic)
    sealed = [each for segment in partition.sealed for each in store.indexes.batches(segment)]
    return [each for each in (*sealed, *partition.active) if each.file is not None]


def damage(store: Store, batch: Batch) -> None:
    """Lose the content of a batch's file, wherever it is."""
    file, objects = batch.file, store.object_store
    assert file is not None
    if file.in_record:
        body = objects.get(slot_path(batch.slot)).body
        objects.put(slot_path(batch.slot), body[: body.index(b'{"files"')])
    elif file.shared is not None:
        objects.delete([file.shared.path])
    else:
        objects.put(file.path, objects.get(file.path).body[:-1] + b"X")


def errors(store: Store) -> list[str]:
    return [each.kind for each in store.admin.verify(data=True) if each.severity is Severity.ERROR]


@pytest.mark.parametrize("is_sealed", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("place", PLACES)
def test_readers_of_every_kind_get_the_other_rows_at_their_offsets(world: World, place: str, is_sealed: bool) -> None:
    store = world.process(PLACES[place])
    store.admin.create_topic("t", partitions=2)
    for value in (b"0", b"1", b"2"):
        send(store, value, beside=place == "shared object")
    if is_sealed:
        seal_now(store, ["t"])
    damage(store, batches(store)[1])
    store = world.process(PLACES[place])
    with pytest.raises(CorruptRecord):
        read(store, "t")

    skipped = [each for each in store.admin.skip_damaged_files("t") if each.partition == 0]

    # Sealed rows of records and shared objects share a file.
    expected = [b"0", b"2"] if not is_sealed or place == "object" else []
    assert [each.skipped for each in skipped] == [True]
    assert sum(each.rows for each in skipped) == 3 - len(expected)
    for reader in (store, world.process(PLACES[place])):
        for level in ("read_committed", "read_uncommitted"):
            assert consumed(reader, level) == expected
        assert read(reader, "t", "snapshot") == [(int(value), value) for value in expected]
        beside = 0 if place != "shared object" else 3 if is_sealed else 2
        assert reader.scan("t", partitions=[1]).to_table().num_rows == beside
        assert errors(reader) == []
    send(store, b"3")
    assert read(store, "t")[-1] == (3, b"3")
    assert store.admin.skip_damaged_files("t") == []


def test_the_log_its_history_and_verify_say_what_was_skipped(store: Store) -> None:
    send(store, b"0", b"1")
    send(store, b"2")
    batch = batches(store)[0]
    damage(store, batch)
    assert batch.file is not None

    planned = store.admin.skip_damaged_files("t", dry_run=True)
    assert errors(store) == ["data-missing"]
    skipped = store.admin.skip_damaged_files("t")

    told: dict[str, Any] = {"topic": "t", "partition": 0, "base_offset": 0, "end_offset": 2, "rows": 2}
    problem = "the file is missing"
    assert planned == [DamagedDataFile(**told, path=batch.file.path, problem=problem, skipped=False)]
    assert skipped == [DamagedDataFile(**told, path=batch.file.path, problem=problem, skipped=True)]
    operation = next(iter(store.history("t")))
    assert (operation.operation, operation.rows, operation.files) == ("skip_files", 2, 1)
    assert operation.parameters == {
        "partition": 0,
        "skipped": [{"path": batch.file.path, "base_offset": 0, "end_offset": 2, "rows": 2}],
    }
    (finding,) = store.admin.verify(data=True)
    assert (finding.kind, finding.topic, finding.partition, finding.offsets) == (Kind.ROWS_SKIPPED, "t", 0, (0, 2))
    assert finding.problem == (
        f"2 rows are skipped since slot {operation.slot}, because their file was missing or damaged"
    )

    store.admin.delete_records({TopicPartition("t", 0): 2})

    assert list(store.admin.verify(data=True)) == []


def test_reads_of_commits_and_of_the_past_report_the_loss(store: Store) -> None:
    send(store, b"0")
    before = store.read(lambda state, slot: slot)
    send(store, b"1")
    after = store.read(lambda state, slot: slot)
    damage(store, batches(store)[1])

    store.admin.skip_damaged_files("t")

    with pytest.raises(OffsetOutOfRange, match="have been deleted since"):
        list(store.commits("t", after_slot=before))
    assert list(store.commits("t", after_slot=after)) == []
    with pytest.raises(OffsetOutOfRange):
        store.scan("t", slot=after).to_table()


def test_rows_of_an_open_transaction_are_skipped_after_its_end(store: Store) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"0", partition=0)
    producer.flush()
    damage(store, batches(store)[0])

    assert store.admin.skip_damaged_files("t") == []
    producer.commit_transaction()
    assert [each.rows for each in store.admin.skip_damaged_files("t")] == [1]

    assert consumed(store) == []
    assert errors(store) == []


def test_a_producer_continues_after_its_last_batch_was_skipped(store: Store) -> None:
    producer = store.producer()
    producer.send("t", b"0", partition=0)
    producer.flush()
    damage(store, batches(store)[0])
    store.admin.skip_damaged_files("t")

    producer.send("t", b"1", partition=0)
    producer.flush()

    assert read(store, "t") == [(1, b"1")]
    assert errors(store) == []


POINTS = ("segment.skip.index_written", "segment.skip.replaced", "segment.skip.appended")


class At(ManualEnvironment):
    """Does something when the process comes to a point for the first time."""

    def __init__(self, world: World, point: str, action: Any) -> None:
        super().__init__(world)
        self._point, self._action = point, action

    def reached(self, crash_point: str) -> None:
        if crash_point == self._point:
            self._point = ""
            self._action()


class Died(BaseException):
    pass


def die() -> None:
    raise Died


def with_damage(world: World) -> Store:
    """A topic with two damaged files: in a sealed segment, and in the active one."""
    store = world.process(PLACES["object"])
    store.admin.create_topic("t")
    send(store, b"0")
    send(store, b"1")
    seal_now(store, ["t"])
    send(store, b"2")
    send(store, b"3")
    found = batches(store)
    damage(store, found[0])
    damage(store, found[3])
    return store


def at(world: World, store: Store, point: str, action: Any) -> Store:
    return Store(store.object_store, At(world, point, action), PLACES["object"])


@pytest.mark.parametrize("point", POINTS)
def test_a_skip_that_dies_is_completed_by_the_next_one(world: World, point: str) -> None:
    store = with_damage(world)

    with pytest.raises(Died):
        at(world, store, point, die).admin.skip_damaged_files("t")
    store.admin.skip_damaged_files("t")

    assert read(store, "t") == [(1, b"1"), (2, b"2")]
    world.pass_time(8 * 24 * 3600 * 1000)
    vacuum(store)
    assert read(store, "t") == [(1, b"1"), (2, b"2")]
    assert errors(store) == []


@pytest.mark.parametrize("how", ["seal", "delete", "skip"])
@pytest.mark.parametrize("point", POINTS[:2])
def test_a_skip_beside_other_maintenance_leaves_no_damaged_file(world: World, point: str, how: str) -> None:
    store = with_damage(world)
    other = world.process(PLACES["object"])
    actions = {
        "seal": lambda: seal_now(other, ["t"]),
        "delete": lambda: other.admin.delete_records({TopicPartition("t", 0): 1}),
        "skip": lambda: other.admin.skip_damaged_files("t"),
    }

    at(world, store, point, actions[how]).admin.skip_damaged_files("t")

    assert read(store, "t") == [(1, b"1"), (2, b"2")]
    assert errors(store) == []


@pytest.mark.parametrize("is_published_first", [True, False])
def test_the_delta_table_of_a_topic_loses_the_skipped_rows_as_a_removal(
    world: World, tmp_path: Path, is_published_first: bool
) -> None:
    store = world.process(PLACES["object"])
    published_topics.create(store, segment_batches=100)
    for key in range(6):
        published_topics.write(store, key)
    if is_published_first:
        store.admin.publish("t")
    lost = batches(store)[0]
    damage(store, lost)

    store.admin.skip_damaged_files("t")
    store.admin.publish("t")

    slot = store.read(lambda state, slot: slot)
    assert len(rows_of_snapshot(store, "t", slot)) == sum(1 for _ in read_keys(store))
    assert rows_by_delta(copy_to(tmp_path, store.object_store, "t")) == rows_of_snapshot(store, "t", slot)
    if is_published_first:
        assert changes(newest(store)) == {"remove": {True}}
    assert errors(store) == []


def read_keys(store: Store) -> list[int]:
    """The keys of partition 0 and the others."""
    return store.scan("t", columns=["key"]).to_table().column("key").to_pylist()


STEPS = st.lists(st.sampled_from(["plain", "commit", "abort", "seal", "checkpoint", "files"]), max_size=6)


@examples(quick=15)
@given(STEPS, st.sets(st.integers(0, 7)), st.sampled_from(sorted(PLACES)), STEPS)
def test_after_a_skip_each_row_is_either_read_or_reported(
    before: list[str], damaged: set[int], place: str, after: list[str]
) -> None:
    world = World()
    store = world.process(PLACES[place])
    store.admin.create_topic("t", partitions=2)
    transactional = store.producer("tx")
    transactional.init_transactions()

    def run(steps: list[str]) -> None:
        for step in steps:
            if step == "plain":
                send(store, b"a", b"b", beside=True)
            elif step in ("commit", "abort"):
                transactional.begin_transaction()
                transactional.send("t", step.encode(), partition=0)
                transactional.flush()
                transactional.commit_transaction() if step == "commit" else transactional.abort_transaction()
            elif step == "seal":
                seal_now(store, ["t"])
            elif step == "checkpoint":
                store.log.checkpoint()
            else:
                store.admin.compact_files("t")

    run(before)
    rows = {level: read(store, "t", level) for level in ("read_committed", "read_uncommitted")}
    for number, batch in enumerate(batches(store)):
        if number in damaged and is_there(store, batch):
            damage(store, batch)
    skipped = [each for each in store.admin.skip_damaged_files("t") if each.partition == 0]
    gone = {offset for each in skipped for offset in range(each.base_offset, each.end_offset)}

    for reader in (store, world.process(PLACES[place])):
        for level, known in rows.items():
            found = read(reader, "t", level)
            assert [row for row in known if row[0] not in gone] == [row for row in found if row[0] not in gone]
            assert set(found) <= set(known)
        assert errors(reader) == []
    assert sum(each.rows for each in skipped) == len(rows["read_uncommitted"]) - len(
        read(store, "t", "read_uncommitted")
    )
    known = read(store, "t")
    run(after)
    assert read(store, "t")[: len(known)] == known
    assert errors(store) == []


def is_there(store: Store, batch: Batch) -> bool:
    """Return False if the test has damaged the object of a batch already."""
    file = batch.file
    assert file is not None
    if file.in_record:
        return b'{"files"' in store.object_store.get(slot_path(batch.slot)).body
    return file.shared is None or any(True for _ in store.object_store.list(file.shared.path))


def test_a_forged_skip_changes_nothing(store: Store) -> None:
    send(store, b"0")
    topic = store.admin.describe_topic("t")
    forged = FilesSkipped(
        topic_id=topic.topic_id,
        partition=0,
        skipped=(SkippedFile(path="t/none.parquet", base_offset=0, end_offset=1, rows=1),),
        time_ms=0,
    )

    reason = store.log.machine.fold(store.read(lambda state, slot: state), 99, [forged.model_dump(mode="json")])

    assert "skipped files have other rows" in str(reason)
    assert read(store, "t") == [(0, b"0")]
