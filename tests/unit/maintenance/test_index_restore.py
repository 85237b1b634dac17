"""Files beside an index are put back as they were; nothing but other tools ever needed them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.errors import CorruptRecord, UnknownTopicOrPartition
from eoslog.format.kafka_files import decode_producer_snapshot
from eoslog.log.replica import LogConfig
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.index_restore import DamagedFile
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.draft import AppendEntry
from eoslog.state.partition_state import SealedSegment
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from tests.unit.state.histories import planned_expiry
from tests.unit.support.paused_processes import Died, Mortal

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda body: body[:-1],
    "cut in half": lambda body: body[: len(body) // 2],
    "flipped": lambda body: bytes([body[0] ^ 1]) + body[1:],
    "emptied": lambda body: b"",
    "longer": lambda body: body + b"\0",
    "another": lambda body: b"x" * len(body),
}


@pytest.fixture
def store(memory_store: ObjectStore, environment: Environment) -> Store:
    """Aborted and committed transactions over several segments, one of them over two, and an idempotent producer."""
    store = Store(memory_store, environment)
    store.admin.create_topic("t", config=TopicConfig(segment_batches=3))
    write(store, "aacac")
    return store


def write(store: Store, outcomes: str) -> None:
    alone = store.producer()
    producer, spanning = store.producer("etl"), store.producer("spanning")
    producer.init_transactions()
    spanning.init_transactions()
    spanning.begin_transaction()
    spanning.send("t", b"spanning")
    spanning.flush()
    for number, outcome in enumerate(outcomes):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, key=b"k")
        producer.flush()
        if outcome == "c":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        alone.send("t", b"alone", key=b"a")
        alone.flush()
    spanning.abort_transaction()
    seal_segments(store)


def sealed(store: Store) -> tuple[SealedSegment, ...]:
    def look(state: StoreState, slot: int) -> tuple[SealedSegment, ...]:
        return next(iter(state.partitions.values())).sealed

    return store.read(look)


def derived_paths(store: Store) -> list[str]:
    return [file.path for each in sealed(store) for file in (each.txnindex, each.snapshot) if file is not None]


def bodies(store: Store) -> dict[str, bytes]:
    return {path: store.object_store.get(path).body for path in derived_paths(store)}


def restore(store: Store, *, dry_run: bool = False) -> list[DamagedFile]:
    return store.admin.restore_indexes("t", dry_run=dry_run)


def test_a_healthy_topic_needs_nothing(store: Store) -> None:
    assert len(derived_paths(store)) > len(sealed(store)) > 3
    assert restore(store) == []


def test_missing_files_are_restored_as_they_were(store: Store) -> None:
    before = bodies(store)
    store.object_store.delete(list(before))

    found = restore(store)

    assert {each.path for each in found} == set(before)
    assert {each.problem for each in found} == {"missing"}
    assert all(each.restored for each in found)
    assert bodies(store) == before
    assert restore(store) == []


@pytest.mark.scenario(34, 45, 63)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_restored_as_they_were(store: Store, damage: str) -> None:
    before = bodies(store)
    for path, body in before.items():
        store.object_store.put(path, DAMAGES[damage](body))

    found = restore(store)

    assert [(each.problem, each.restored) for each in found] == [("damaged", True)] * len(before)
    assert bodies(store) == before


def test_a_dry_run_lists_what_is_wrong_and_changes_nothing(store: Store) -> None:
    first, second = derived_paths(store)[:2]
    store.object_store.delete([first])
    store.object_store.put(second, b"")

    found = restore(store, dry_run=True)

    assert [(each.path, each.problem, each.restored) for each in found] == [
        (first, "missing", False),
        (second, "damaged", False),
    ]
    with pytest.raises(ObjectNotFound):
        store.object_store.get(first)
    assert store.object_store.get(second).body == b""


def test_no_index_repeats_the_snapshot(store: Store) -> None:
    for segment in sealed(store):
        metadata = pq.read_metadata(pa.BufferReader(store.object_store.get(segment.index.path).body)).metadata

        assert set(metadata) == {b"eoslog.txnindex"}


def test_a_snapshot_follows_from_the_segment_before_if_that_is_whole(store: Store) -> None:
    store.admin.delete_records({TopicPartition("t", 0): sealed(store)[2].base_offset})
    before = bodies(store)
    kept = sealed(store)[0].snapshot.path
    store.object_store.delete([path for path in before if path != kept])

    restore(store)

    assert bodies(store) == before


def test_a_snapshot_without_its_segment_before_is_lost_alone(store: Store) -> None:
    store.admin.delete_records({TopicPartition("t", 0): sealed(store)[2].base_offset})
    first, second, *_ = sealed(store)
    assert second.txnindex is not None
    store.object_store.delete([first.snapshot.path, second.txnindex.path])

    with pytest.raises(CorruptRecord, match=r"1 file .* cannot be restored, .* The first is .*\.snapshot"):
        restore(store)

    assert [each.path for each in restore(store, dry_run=True)] == [first.snapshot.path]


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_snapshot_without_producers_that_expired_before_it_is_put_back(store: Store, position: int) -> None:
    """The batches before it name them still."""
    write(store, "cc")
    expired = store.read(lambda state, slot: planned_expiry(state, 2**52))
    assert expired is not None
    store.append(AppendEntry(expired))
    write(store, "cccc")
    before = bodies(store)
    lost = sealed(store)[-position].snapshot
    store.object_store.delete([lost.path])

    assert [(each.path, each.restored) for each in restore(store)] == [(lost.path, True)]
    assert bodies(store) == before


def test_producers_that_expired_since_are_still_in_the_snapshot_that_lists_them(store: Store) -> None:
    before = bodies(store)
    listed = decode_producer_snapshot(before[sealed(store)[-1].snapshot.path], "last")
    store.object_store.delete(list(before))

    expired = store.read(lambda state, slot: planned_expiry(state, 2**52))
    assert expired is not None
    store.append(AppendEntry(expired))

    restore(store)

    assert len(listed) == 3
    assert bodies(store) == before


def test_files_of_compacted_segments_are_restored_too(store: Store) -> None:
    segments = len(sealed(store))
    compact_files(store)
    before = bodies(store)
    assert len(sealed(store)) < segments
    store.object_store.delete(list(before))

    assert all(each.restored for each in restore(store))
    assert bodies(store) == before


@pytest.mark.parametrize("damage", ["missing", "emptied", "flipped"])
def test_a_lost_index_is_not_put_back_but_the_others_are(store: Store, damage: str) -> None:
    before = bodies(store)
    lost = sealed(store)[1]
    body = store.object_store.get(lost.index.path).body
    store.object_store.delete([lost.index.path, *before])
    if damage != "missing":
        store.object_store.put(lost.index.path, DAMAGES[damage](body))

    listed = restore(store, dry_run=True)
    with pytest.raises(CorruptRecord, match=r"cannot be restored, .* The first is .*index\.parquet"):
        restore(store)

    assert {each.kind for each in listed if each.base_offset == lost.base_offset} >= {"index", "snapshot"}
    left = {each.path for each in restore(store, dry_run=True)}
    behind = {each.snapshot.path for each in sealed(store) if each.base_offset > lost.base_offset}
    assert left == {file.path for file in (lost.index, lost.txnindex) if file is not None} | behind


def test_a_topic_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        store.admin.restore_indexes("absent")


def test_neither_state_nor_reader_nor_work_on_segments_depends_on_derived_files(
    memory_store: ObjectStore, store: Store
) -> None:
    def rows(reader: Store, isolation: str) -> list[tuple[int, bytes]]:
        table = reader.scan("t", isolation_level=isolation, columns=["offset", "value"]).to_table()
        return [(row["offset"], row["value"]) for row in table.to_pylist()]

    before = {isolation: rows(store, isolation) for isolation in ("read_committed", "read_uncommitted", "snapshot")}
    state = store.read(lambda state, slot: state.frozen_copy())
    store.log.checkpoint()
    store.object_store.delete(derived_paths(store))

    cold = Store(memory_store, Environment(), LogConfig())
    assert cold.read(lambda state, slot: state) == state
    assert {isolation: rows(cold, isolation) for isolation in before} == before
    compact_files(cold)
    assert {isolation: rows(cold, isolation) for isolation in before} == before
    write(cold, "ca")
    assert rows(cold, "read_committed")[: len(before["read_committed"])] == before["read_committed"]


def test_a_restore_that_dies_is_finished_by_the_next(memory_store: ObjectStore, store: Store) -> None:
    before = bodies(store)
    store.object_store.delete(list(before))
    with pytest.raises(Died):
        restore(Store(memory_store, Mortal("segment.restore.file_written")))

    assert len(restore(store)) == len(before) - 1
    assert bodies(store) == before


def test_a_segment_that_is_dropped_meanwhile_misses_nothing(memory_store: ObjectStore, store: Store) -> None:
    victim = sealed(store)[0]
    store.object_store.delete([victim.index.path, victim.snapshot.path])
    stale = Store(memory_store, Environment())
    stale.read(lambda state, slot: None)
    looked = stale.object_store.get_many

    def dropped_at_the_first_look(paths: list[str]) -> object:
        if sealed(store)[0] == victim:
            store.admin.delete_records({TopicPartition("t", 0): victim.end_offset})
        return looked(paths)

    stale.object_store.get_many = dropped_at_the_first_look  # type: ignore[method-assign,assignment]
    try:
        assert restore(stale) == []
    finally:
        stale.object_store.get_many = looked  # type: ignore[method-assign]
