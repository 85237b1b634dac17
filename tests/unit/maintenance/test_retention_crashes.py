"""A process that drops rows, changes topics or rebuilds files may die at any step: the next one finishes the work."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from eoslog import Coordinator, Store, TopicConfig, TopicPartition
from eoslog.format.segment_index import iterate_segment_index
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.depth import sweep
from tests.unit.support.clock import Clock
from tests.unit.support.paused_processes import Died, Mortal

DAY_MS = 24 * 3600 * 1000
POINTS = (
    "log.slot.before_put",
    "log.slot.claimed",
    "segment.seal.files_written",
    "segment.retention.topic_done",
    "segment.restore.file_written",
    "segment.vacuum.horizon_moved",
    "segment.vacuum.files_deleted",
)
ROWS = [b"%d" % number for number in range(10)]


def _life(store: Store, clock: Clock) -> None:
    """Begun again at any time, it ends the same."""
    store.ensure_created()
    for name in {"by_time", "by_size", "by_hand"} - set(store.admin.list_topics()):
        store.admin.create_topic(name, config=TopicConfig(segment_batches=4))
    with store.producer("etl") as producer:
        producer.init_transactions()
        for topic in ("by_time", "by_size", "by_hand"):
            if store.admin.offsets(topic)[0].earliest == 0 and not store.scan(topic).record_count:
                producer.begin_transaction()
                for row in ROWS:
                    producer.send(topic, row, key=b"k", partition=0)
                    producer.flush()
                producer.commit_transaction()
    coordinator = Coordinator(store)
    coordinator.seal()
    for path in store.read(_derivable_files):
        store.object_store.put(path, b"damaged")
    for topic in store.admin.list_topics():
        store.admin.restore_indexes(topic)
    if store.admin.offsets("by_hand")[0].earliest == 0:
        ninth = store.scan("by_hand", columns=["offset"]).to_table()["offset"].to_pylist()[8]
        store.admin.delete_records({TopicPartition("by_hand", 0): ninth})
    store.admin.alter_topic("by_size", retention_bytes=1)
    store.admin.alter_topic("by_time", retention_ms=1)
    if store.admin.describe_topic("by_hand").partitions == 1:
        store.admin.create_partitions("by_hand", 3)
    clock.now_ms += 8 * DAY_MS
    coordinator.apply_retention()
    vacuum(store)
    clock.now_ms += 8 * DAY_MS
    vacuum(store)


def _derivable_files(state: StoreState, slot: int) -> list[str]:
    """Files beside the indexes; the first snapshot of a partition follows from nothing once rows were dropped."""
    sealed = [partition.sealed for partition in state.partitions.values()]
    txnindexes = [each.txnindex.path for segments in sealed for each in segments if each.txnindex is not None]
    return txnindexes + [each.snapshot.path for segments in sealed for each in segments[1:]]


def _named_files(store: Store) -> set[str]:
    def look(state: StoreState, slot: int) -> tuple[list[str], set[str]]:
        partitions = state.partitions.values()
        sealed = [segment for partition in partitions for segment in partition.sealed]
        active = {batch.file.path for partition in partitions for batch in partition.active if batch.file is not None}
        beside = {file.path for each in sealed for file in (each.txnindex, each.snapshot) if file is not None}
        return [segment.index.path for segment in sealed], active | beside

    indexes, named = store.read(look)
    for index in indexes:
        batches = list(iterate_segment_index(store.object_store.get(index).body, index))
        named |= {index, *(batch.file.path for batch in batches if batch.file is not None)}
    return named


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("stride", sweep([9, 25, 60], quick=[60]))
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_leaves_nothing_half_done(point: str, stride: int) -> None:
    deaths = 0
    for times in itertools.count(1, stride if point.startswith("log.") else 1):
        clock = Clock()
        objects = MemoryStore(Environment(), wall_clock=clock)
        died = True
        with contextlib.suppress(Died):
            _life(Store(objects, Mortal(point, times)), clock)
            died = False
        survivor = Store(objects, Mortal())
        _life(survivor, clock)

        by_time, by_size, by_hand = (
            survivor.scan(topic).to_table()["value"].to_pylist() for topic in ("by_time", "by_size", "by_hand")
        )
        assert by_time == []
        assert by_size == ROWS[len(ROWS) - len(by_size) :]
        assert 0 < len(by_size) < len(ROWS)
        assert by_hand == ROWS[8:]
        assert [survivor.admin.restore_indexes(topic) for topic in survivor.admin.list_topics()] == [[], [], []]
        cold = Store(objects, Environment())
        assert cold.read(lambda state, slot: state) == survivor.log.replica.state
        assert {info.path for info in objects.list("by_")} == _named_files(cold)
        if not died:
            break
        deaths += 1
    assert deaths > 0
