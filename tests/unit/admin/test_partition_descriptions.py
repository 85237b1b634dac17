"""What partitions hold, as told by the administration."""

from __future__ import annotations

import pytest

import eoslog
from eoslog import TopicConfig, TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World


def store_with(batches: int, *, segment_batches: int = 2) -> Store:
    store = World().process()
    store.admin.create_topic("t", partitions=2, config=TopicConfig(segment_batches=segment_batches))
    with store.producer() as producer:
        for number in range(batches):
            producer.send("t", b"%d" % number, partition=0)
            producer.flush()
    return store


def data_bytes(store: Store) -> int:
    paths = {each.path: each.length for each in store.scan("t").planned_files()}
    return sum(paths.values())


@pytest.mark.usefixtures("files_are_objects")
def test_sealed_and_active_segments_count() -> None:
    store = store_with(3)
    unsealed, empty = store.admin.describe_partitions("t")
    eoslog.Coordinator(store).seal()
    with store.producer() as producer:
        producer.send("t", b"more", partition=0)

    sealed, _ = store.admin.describe_partitions("t")

    assert (unsealed.segments, unsealed.files, unsealed.high_watermark) == (1, 3, 3)
    assert (sealed.segments, sealed.files, sealed.high_watermark) == (2, 4, 4)
    assert sealed.bytes == data_bytes(store)
    assert empty == (1, 0, 0, 0, 0, 0, 0, 0, 0, -1)


def test_an_open_transaction_is_counted_and_holds_the_last_stable_offset() -> None:
    store = store_with(1)
    producer = open_transaction(store, "open")
    producer.send("t", b"1", partition=0)
    producer.flush()

    found, _ = store.admin.describe_partitions("t")

    assert (found.open_transactions, found.last_stable_offset, found.high_watermark) == (1, 1, 2)


@pytest.mark.usefixtures("files_are_objects")
def test_deleted_rows_move_the_log_start_and_the_snapshot_floor() -> None:
    store = store_with(3)
    store.admin.delete_records({TopicPartition("t", 0): 2})

    found, _ = store.admin.describe_partitions("t")

    assert found.log_start_offset == 2
    assert found.snapshot_floor == store.read(lambda state, slot: slot)
    assert found.files == 1
