"""Sealed segments: index files say what the state said, and readers see no difference."""

from __future__ import annotations

import pytest

from eoslog import Store, TopicConfig
from eoslog.format.kafka_files import decode_transaction_index
from eoslog.format.segment_index import iterate_segment_index
from eoslog.maintenance import sealing
from eoslog.maintenance.sealing import seal_now, seal_segment, seal_segments
from eoslog.state.partition_state import AbortedTransaction, Partition, SealedSegment
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from tests.unit.support.paused_processes import Died, Mortal


@pytest.fixture
def store(memory_store: ObjectStore, environment: Environment) -> Store:
    store = Store(memory_store, environment)
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    return store


def _transactions(store: Store, outcomes: str) -> None:
    """One record a transaction: c commits, a aborts, o leaves it open."""
    producer = store.producer("etl")
    producer.init_transactions()
    for number, outcome in enumerate(outcomes):
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        producer.flush()
        if outcome == "c":
            producer.commit_transaction()
        elif outcome == "a":
            producer.abort_transaction()


def _seal(store: Store) -> int:
    return len(seal_segments(store))


def _sealed(store: Store) -> tuple[SealedSegment, ...]:
    def look(state: StoreState, slot: int) -> tuple[SealedSegment, ...]:
        return next(iter(state.partitions.values())).sealed

    return store.read(look)


def _rows(store: Store, isolation: str) -> list[tuple[int, bytes]]:
    rows = store.scan("t", isolation_level=isolation, columns=["offset", "value"]).to_table().to_pylist()
    return [(row["offset"], row["value"]) for row in rows]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "snapshot"])
def test_sealing_changes_no_row_that_a_reader_is_shown(store: Store, isolation: str) -> None:
    _transactions(store, "cacacaco")
    before = _rows(store, isolation)

    assert _seal(store) == 3

    assert _rows(store, isolation) == before


def test_a_segment_at_or_above_the_last_stable_offset_is_not_sealed(store: Store) -> None:
    _transactions(store, "cco")
    assert _seal(store) == 1
    other = store.producer("other")
    other.init_transactions()
    for _ in range(8):
        other.begin_transaction()
        other.send("t", b"x")
        other.commit_transaction()

    assert _seal(store) == 0


def test_a_segments_transaction_index_holds_the_aborts_with_a_marker_there(store: Store) -> None:
    _transactions(store, "caca")

    _seal(store)

    first, second = _sealed(store)
    assert first.txnindex is not None
    assert second.txnindex is not None
    producer_id = store.read(lambda state, slot: state.transactions["etl"].producer_id)
    body = store.object_store.get(first.txnindex.path).body
    assert decode_transaction_index(body, "first") == [AbortedTransaction(producer_id, 2, 3, 4)]
    body = store.object_store.get(second.txnindex.path).body
    assert decode_transaction_index(body, "second") == [AbortedTransaction(producer_id, 6, 7, 8)]


def test_a_segments_index_holds_its_batches_and_control_rows_in_order(store: Store) -> None:
    _transactions(store, "caca")

    _seal(store)

    body = store.object_store.get(_sealed(store)[0].index.path).body
    batches = list(iterate_segment_index(body, "first"))
    assert [batch.base_offset for batch in batches] == [0, 1, 2, 3]
    assert [batch.control.name if batch.control else None for batch in batches] == [None, "COMMIT", None, "ABORT"]


def test_a_sealer_that_dies_before_its_entry_leaves_everything_to_the_next(
    memory_store: ObjectStore, store: Store
) -> None:
    _transactions(store, "cccc")
    dying = Store(memory_store, Mortal("segment.seal.files_written"))
    before = _rows(store, "read_committed")

    with pytest.raises(Died):
        _seal(dying)

    assert _sealed(store) == ()
    assert _seal(store) == 2
    assert _rows(store, "read_committed") == before


def test_of_two_sealers_the_second_to_come_finds_the_work_done(memory_store: ObjectStore, store: Store) -> None:
    _transactions(store, "cccc")
    first = Store(memory_store, Environment())

    class SealedMeanwhile(Environment):
        def reached(self, crash_point: str) -> None:
            if crash_point == "segment.seal.files_written" and not _sealed(first):
                _seal(first)

    assert _seal(Store(memory_store, SealedMeanwhile())) == 0

    assert len(_sealed(store)) == 2
    assert len(_rows(store, "read_committed")) == 4


def _active(store: Store, topic: str = "t") -> int:
    topic_id = store.admin.describe_topic(topic).topic_id
    return store.read(
        lambda state, slot: sum(len(each.active) for key, each in state.partitions.items() if key.topic_id == topic_id)
    )


def test_sealing_now_takes_small_and_young_segments_of_the_named_topics_alone(store: Store) -> None:
    store.admin.create_topic("other")
    store.admin.create_topic("t2", partitions=2)
    _transactions(store, "ca")
    with store.producer() as producer:
        for topic in ("other", "t2"):
            producer.send(topic, b"v", key=b"k")
    before = _rows(store, "read_uncommitted")

    sealed = seal_now(store, ["t", "t2"])

    assert [(each.base_offset, each.end_offset) for each in sealed] == [(0, 4), (0, 1)]
    assert (_active(store), _active(store, "t2"), _active(store, "other")) == (0, 0, 1)
    assert _rows(store, "read_uncommitted") == before
    assert seal_now(store, ["t"]) == []


def test_sealing_now_keeps_the_size_of_segments_and_stops_at_the_last_stable_offset(store: Store) -> None:
    _transactions(store, "ccco")

    sealed = seal_now(store, ["t"])

    assert [(each.base_offset, each.end_offset) for each in sealed] == [(0, 4), (4, 6)]
    assert _active(store) == 1


def test_sealing_now_ends_although_another_process_writes_all_the_time(memory_store: ObjectStore, store: Store) -> None:
    _transactions(store, "c")
    other = Store(memory_store, Environment())

    class Busy(Environment):
        def reached(self, crash_point: str) -> None:
            if crash_point == "segment.seal.sealed":
                _transactions(other, "c")

    busy = Store(memory_store, Busy())

    assert len(seal_now(busy, ["t"])) == 1
    assert _active(store) == 2


def test_sealing_now_passes_over_a_topic_that_is_deleted_meanwhile(memory_store: ObjectStore, store: Store) -> None:
    store.admin.create_topic("gone")
    _transactions(store, "c")
    with store.producer() as producer:
        producer.send("gone", b"v")
    other = Store(memory_store, Environment())

    class Deletes(Environment):
        def reached(self, crash_point: str) -> None:
            if crash_point == "segment.seal.files_written" and "gone" in other.admin.list_topics():
                other.admin.delete_topic("gone")

    process = Store(memory_store, Deletes())

    assert len(seal_now(process, ["t", "gone"])) == 1


def _wide(store: Store, partitions: int, batches: int = 1) -> None:
    store.admin.create_topic("wide", partitions=partitions)
    with store.producer() as producer:
        for _ in range(batches):
            for partition in range(partitions):
                producer.send("wide", b"v", partition=partition)
            producer.flush()


def _records_of_seal(store: Store) -> int:
    before = _newest_slot(store)
    seal_now(store, ["wide"])
    return _newest_slot(store) - before


def test_one_record_seals_the_segments_of_all_partitions(store: Store) -> None:
    _wide(store, partitions=30)

    assert _records_of_seal(store) == 1
    assert _active(store, "wide") == 0


def test_the_segments_of_one_record_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _wide(store, partitions=5, batches=2)
    monkeypatch.setattr(sealing, "_MOST_SEGMENTS_A_RECORD", 2)

    assert _records_of_seal(store) == 3
    assert _active(store, "wide") == 0


def test_the_batches_and_producers_of_one_record_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _wide(store, partitions=5, batches=2)
    monkeypatch.setattr(sealing, "_MOST_ROWS_A_RECORD", 5)

    assert _records_of_seal(store) == 3


def test_a_segment_that_another_process_seals_first_keeps_no_other_from_its_record(
    memory_store: ObjectStore, store: Store
) -> None:
    _wide(store, partitions=3)
    other = Store(memory_store, Environment())

    class SealsOne(Environment):
        def reached(self, crash_point: str) -> None:
            if crash_point == "segment.seal.files_written" and not other.read(_sealed_partitions):
                topic, partition = other.read(_first_partition)
                seal_segment(other, topic, partition, 1)

    process = Store(memory_store, SealsOne())

    assert len(seal_now(process, ["wide"])) == 2
    assert store.read(_sealed_partitions) == [1, 1, 1]


def _first_partition(state: StoreState, slot: int) -> tuple[Topic, Partition]:
    topic = state.topics[state.topic_ids["wide"]]
    return topic, state.partitions[topic.partition_ids()[0]]


def _sealed_partitions(state: StoreState, slot: int) -> list[int]:
    """The numbers of sealed segments, of the partitions that have some."""
    return [len(each.sealed) for each in state.partitions.values() if each.sealed]


def _newest_slot(store: Store) -> int:
    return store.read(lambda state, slot: slot)
