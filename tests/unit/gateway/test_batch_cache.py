"""The cache of record batches: its bound, and the batches that each consumer may see."""

from __future__ import annotations

from eoslog.gateway.batch_cache import BatchCache, EncodedBatch, PartitionVersion
from eoslog.read.isolation import IsolationLevel
from eoslog.state.names import PartitionId

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
PARTITION = PartitionVersion(PartitionId("topic", 0), 5)


def test_a_batch_is_found_by_its_place_and_level() -> None:
    cache = BatchCache(1 << 20)
    committed, common = EncodedBatch(b"committed", 3), EncodedBatch(b"common", 4)
    cache.put(PARTITION, COMMITTED, 1, committed)
    cache.put(PARTITION, None, 3, common)

    assert cache.get(PARTITION, COMMITTED, 1) == committed
    assert cache.get(PARTITION, UNCOMMITTED, 1) is None
    assert cache.get(PARTITION, COMMITTED, 3) == cache.get(PARTITION, UNCOMMITTED, 3) == common
    assert cache.get(PARTITION._replace(partition_id=PartitionId("topic", 1)), COMMITTED, 1) is None
    assert cache.get(PARTITION._replace(snapshot_floor=6), COMMITTED, 1) is None


def test_the_least_recently_used_batches_are_dropped() -> None:
    cache = BatchCache(10_000)
    for offset in range(20):
        cache.put(PARTITION, None, offset, EncodedBatch(bytes(488), offset + 1))
        assert cache.get(PARTITION, COMMITTED, 0) is not None

    kept = [offset for offset in range(20) if cache.get(PARTITION, COMMITTED, offset)]
    assert kept == [0, *range(11, 20)]


def test_a_batch_that_is_put_again_counts_once() -> None:
    cache = BatchCache(3_000)
    for _ in range(5):
        for offset in range(2):
            cache.put(PARTITION, None, offset, EncodedBatch(bytes(488), offset + 1))

    assert all(cache.get(PARTITION, COMMITTED, offset) for offset in range(2))


def test_a_batch_above_the_bound_is_not_kept() -> None:
    cache = BatchCache(1_000)
    cache.put(PARTITION, None, 0, EncodedBatch(bytes(1_000), 1))

    assert cache.get(PARTITION, COMMITTED, 0) is None
