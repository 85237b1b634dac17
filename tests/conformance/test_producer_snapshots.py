"""Snapshots of producer state, one per sealed segment in Kafka's bytes, and the checkpoints that a process opens."""

from __future__ import annotations

import pytest

from eoslog.format.kafka_files import ProducerSnapshotEntry, decode_producer_snapshot, encode_producer_snapshot
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import SealedSegment
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read, topic_of_small_segments, write
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000


def seal(store: Store) -> None:
    seal_segments(store)


def snapshot(store: Store, segment: SealedSegment) -> list[ProducerSnapshotEntry]:
    return decode_producer_snapshot(store.object_store.get(segment.snapshot.path).body, segment.snapshot.path)


def snapshots_of(store: Store, topic: str) -> set[str]:
    """All snapshot files that lie in a topic's directory."""
    return {info.path for info in store.object_store.list(f"{topic}/") if info.path.endswith(".snapshot")}


@pytest.fixture
def small(store: Store) -> Store:
    """A store with the topic ``s``, of one transaction a segment."""
    topic_of_small_segments(store, "s")
    return store


@pytest.mark.scenario(24, 62)
def test_the_snapshot_of_a_segment_is_the_state_before_its_first_row(small: Store) -> None:
    producer = write(small, "s", "commit", "abort", "commit")

    seal(small)

    epochs = [
        [(entry.producer_id, entry.epoch) for entry in snapshot(small, segment)]
        for segment in partition_of(small, "s").sealed
    ]
    assert epochs == [[], [(producer.producer_id, 1)], [(producer.producer_id, 2)]]


@pytest.mark.scenario(62)
def test_a_batch_that_begins_a_segment_is_not_in_its_snapshot(small: Store) -> None:
    producer = small.producer()
    for number in range(4):
        producer.send("s", b"%d" % number)
        producer.flush()

    seal(small)

    first, second = partition_of(small, "s").sealed
    assert snapshot(small, first) == []
    ((sequence, offset),) = [(entry.last_sequence, entry.last_offset) for entry in snapshot(small, second)]
    assert (sequence, offset) == (1, 1)


@pytest.mark.scenario(24)
def test_without_anything_new_no_second_snapshot_is_taken(small: Store) -> None:
    write(small, "s", "commit")
    seal(small)
    before = snapshots_of(small, "s")

    seal(small)

    assert snapshots_of(small, "s") == before
    assert len(before) == 1


@pytest.mark.scenario(25, 59)
def test_snapshots_below_the_log_start_are_deleted_and_the_others_kept(small: Store, world: World) -> None:
    write(small, "s", "commit", "commit", "commit")
    seal(small)
    *_, last = partition_of(small, "s").sealed

    small.admin.delete_records({TopicPartition("s", 0): last.base_offset})
    world.pass_time(30 * DAY_MS)
    vacuum(small)

    assert snapshots_of(small, "s") == {last.snapshot.path}
    assert read(small, "s") == [(4, b"2")]


@pytest.mark.scenario(25, 56)
def test_a_topic_made_anew_knows_no_producer_and_no_open_transaction(small: Store) -> None:
    write(small, "s", "commit", "open")
    assert partition_of(small, "s").open_transactions

    small.admin.delete_topic("s")
    topic_of_small_segments(small, "s")

    partition = partition_of(small, "s")
    assert (partition.producers, partition.open_transactions, partition.sealed) == ({}, {}, ())
    assert partition.last_stable_offset == partition.high_watermark == 0


@pytest.mark.scenario(34, 63)
@pytest.mark.parametrize("damage", [b"", b"torn", None], ids=["empty", "torn", "missing"])
def test_a_damaged_snapshot_is_passed_over_for_the_one_before(small: Store, damage: bytes | None) -> None:
    producer = write(small, "s", "commit", "abort")
    seal(small)
    last = partition_of(small, "s").sealed[-1].snapshot.path
    small.object_store.delete([last])
    if damage is not None:
        small.object_store.put(last, damage)

    write(small, "s", "commit", transactional_id="other")
    seal(small)

    segment = partition_of(small, "s").sealed[-1]
    assert [(entry.producer_id, entry.epoch) for entry in snapshot(small, segment)] == [(producer.producer_id, 2)]
    assert read(small, "s") == [(0, b"0"), (4, b"0")]


@pytest.mark.scenario(36, 59)
def test_stray_snapshots_are_removed_and_those_of_live_segments_kept(small: Store, world: World) -> None:
    write(small, "s", "commit", "commit")
    seal(small)
    live = snapshots_of(small, "s")
    prefix = f"s/{partition_of(small, 's').id.topic_id}/0"
    strays = [f"{prefix}/{offset:020d}/{'0' * 32}.snapshot" for offset in (2, 42)]
    for path in strays:
        small.object_store.put(path, encode_producer_snapshot([]))
    assert vacuum(small).paths == []
    world.pass_time(8 * DAY_MS)

    assert vacuum(small).paths == sorted(strays)

    assert snapshots_of(small, "s") == live


@pytest.mark.scenario(36, 59)
def test_after_segments_are_compacted_one_snapshot_is_left_for_each_that_lives(small: Store, world: World) -> None:
    write(small, "s", "commit", "abort", "commit")
    seal(small)
    assert len(snapshots_of(small, "s")) == 3

    small.admin.compact_files("s")
    world.pass_time(30 * DAY_MS)
    vacuum(small)

    live = partition_of(small, "s").sealed
    assert snapshots_of(small, "s") == {segment.snapshot.path for segment in live}
    assert len(live) == 1
    assert read(small, "s") == [(0, b"0"), (4, b"2")]
