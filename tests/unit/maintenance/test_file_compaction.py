"""Merging: small files become large ones and small segments one, and no reader is shown anything else than before."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import CorruptRecord, Store, TopicConfig, TopicPartition, UnknownTopicOrPartition
from eoslog.admin.admin import Admin
from eoslog.format.kafka_files import decode_transaction_index
from eoslog.format.segment_index import iterate_segment_index
from eoslog.maintenance.file_compaction import FileCompactionReport, compact_files, doubling_runs, join_small_segments
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.segment_rewriting import partitions_of
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import LogCleaned, LogStartMoved
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.verification.findings import Kind
from tests.unit.support.clock import Clock
from tests.unit.support.paused_processes import At, Died, die

SLOTS_OF_PRODUCE = 30
DAY_MS = 24 * 3600 * 1000
ISOLATION = ("read_committed", "read_uncommitted", "snapshot")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects(clock: Clock) -> MemoryStore:
    return MemoryStore(Environment(), wall_clock=clock)


@pytest.fixture
def store(objects: MemoryStore) -> Store:
    """Ten transactions of two files each, every third one aborted, in segments of four batches."""
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    produce(store, 10)
    seal(store)
    return store


def produce(
    store: Store, count: int, transactional_id: str = "etl", values: Any = lambda number: b"%d" % number
) -> None:
    producer = store.producer(transactional_id)
    producer.init_transactions()
    for number in range(count):
        producer.begin_transaction()
        for part in range(2):
            producer.send("t", values(10 * number + part), key=b"%d" % number)
            producer.flush()
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def seal(store: Store) -> None:
    seal_segments(store)


def compact(store: Store, **options: Any) -> FileCompactionReport:
    return compact_files(store, **options)


def partition(store: Store) -> Partition:
    def look(state: StoreState, slot: int) -> Partition:
        return next(iter(state.partitions.values()))

    return store.read(look)


def everything(store: Store) -> dict[str, Any]:
    """All that readers can be shown: rows under each level with who wrote them, every snapshot, every range."""
    columns = ["key", "value", "offset", "timestamp", "_transactional_id", "_producer_epoch", "_sequence", "_slot"]
    high_watermark = partition(store).high_watermark
    shown: dict[str, Any] = {
        level: store.scan("t", isolation_level=level, columns=columns).to_table().to_pylist() for level in ISOLATION
    }
    shown["snapshots"] = [
        store.scan("t", isolation_level="snapshot", slot=each, columns=["offset"]).to_table().to_pylist()
        for each in range(1, SLOTS_OF_PRODUCE, 3)
    ]
    shown["ranges"] = [
        store.scan("t", starting_offsets={0: start}, ending_offsets={0: end}, columns=["value"]).to_table().to_pylist()
        for start in range(0, high_watermark, 3)
        for end in range(start, high_watermark, 5)
    ]
    return shown


def data_files(store: Store) -> set[str]:
    return {
        info.path
        for info in store.object_store.list("t/")
        if info.path.endswith(".parquet") and not info.path.endswith(".index.parquet")
    }


def test_compaction_changes_nothing_that_any_reader_is_shown(store: Store) -> None:
    before = everything(store)

    report = compact(store)

    assert [(each.segments, each.files_after) for each in report.compacted] == [(7, 1)]
    assert everything(store) == before
    assert everything(Store(store.object_store, Environment())) == before


def test_compaction_moves_no_bound_and_no_producer(store: Store) -> None:
    before = partition(store)

    compact(store)

    after = partition(store)
    for name in ("log_start_offset", "last_stable_offset", "high_watermark", "snapshot_floor", "removed_end_slot"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.producers, after.active) == (before.producers, before.active)


def watched(store: Store) -> list[str]:
    """The data files that are asked for from here on."""
    asked: list[str] = []
    get = store.object_store.get

    def watching(path: str) -> Any:
        asked.append(path)
        return get(path)

    store.object_store.get = watching  # type: ignore[method-assign]
    return asked


def test_a_scan_fetches_a_compacted_file_once(store: Store) -> None:
    compact(store)
    compacted = _file_paths(store, 0)
    asked = watched(store)

    store.scan("t").to_table()

    assert [path for path in asked if path in compacted] == list(compacted)


def test_a_consumer_fetches_a_compacted_file_once(store: Store) -> None:
    compact(store)
    compacted = _file_paths(store, 0)
    offsets = store.scan("t", columns=["offset"]).to_table()["offset"].to_pylist()
    asked = watched(store)
    consumer = store.consumer(auto_offset_reset="earliest", max_poll_records=3)
    consumer.subscribe("t")

    records = []
    while batch := consumer.poll(0):
        records += batch

    assert [record.offset for record in records] == offsets
    assert [path for path in asked if path in compacted] == list(compacted)


def test_an_offset_is_found_by_time_in_one_read(store: Store) -> None:
    compact(store)
    compacted = _file_paths(store, 0)
    rows = store.scan("t", columns=["offset", "timestamp"]).to_table().to_pylist()
    time = rows[5]["timestamp"]
    # A producer's clock follows the store's: rows may share a millisecond, and a later row may have an earlier time.
    first = min(row["offset"] for row in rows if row["timestamp"] >= time)
    consumer = store.consumer()
    asked = watched(store)
    place = TopicPartition("t", 0)

    found = consumer.offsets_for_times({place: int(time.timestamp() * 1000)})[place]

    assert found is not None
    assert found.offset == first
    assert [path for path in asked if path in compacted] == list(compacted)


def _index(store: Store, number: int) -> list[Any]:
    segment = partition(store).sealed[number]
    return list(iterate_segment_index(store.object_store.get(segment.index.path).body, segment.index.path))


def _file_paths(store: Store, number: int) -> set[str]:
    return {batch.file.path for batch in _index(store, number) if batch.file is not None}


def test_batches_keep_who_wrote_them_and_when_they_were_decided(store: Store) -> None:
    before = [batch for number in range(len(partition(store).sealed)) for batch in _index(store, number)]

    compact(store)

    after = _index(store, 0)
    assert [batch._replace(file=None, first_row=0) for batch in after] == [
        batch._replace(file=None, first_row=0) for batch in before
    ]
    assert [batch.first_row for batch in after if batch.file is not None] == list(
        range(sum(batch.file is not None for batch in after))
    )


def test_a_compacted_segment_has_the_aborted_transactions_of_all_its_parts(store: Store) -> None:
    def aborted() -> list[Any]:
        return [
            each
            for segment in partition(store).sealed
            if segment.txnindex is not None
            for each in decode_transaction_index(store.object_store.get(segment.txnindex.path).body, "index")
        ]

    before = aborted()

    compact(store)

    assert aborted() == before
    assert len(before) == 3


def test_compacted_files_are_not_compacted_again(store: Store) -> None:
    compact(store)
    slot = store.read(lambda state, slot: slot)

    report = compact(store)

    assert report.compacted == []
    assert store.read(lambda state, slot: slot) == slot


def test_the_report_has_the_bytes_and_the_removed_rows(store: Store) -> None:
    before = sum(segment.bytes for segment in partition(store).sealed)

    (report,) = compact(store).compacted

    assert report.bytes_before == before
    assert report.bytes_written == partition(store).sealed[0].bytes
    assert report.rows_removed == 0


def test_files_that_are_large_enough_stay_in_the_new_index(store: Store) -> None:
    before = data_files(store)

    report = compact(store, target_file_bytes=1)

    assert _file_paths(store, 0) <= before
    assert [each.bytes_written for each in report.compacted] == [0]


def test_a_segment_is_not_read_again_and_again_for_small_files_of_unlike_sizes(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=6))
    rng = random.Random(1)
    produce(store, 2, values=lambda number: rng.randbytes(100_000 if number == 0 else 10))
    seal(store)

    compact(store)

    assert [each.file_count for each in partition(store).sealed] == [1]


def test_compacted_files_are_at_most_as_large_as_wanted(store: Store) -> None:
    one = next(batch.file.length for batch in _index(store, 0) if batch.file is not None)

    report = compact(store, target_file_bytes=4 * one)

    assert report.compacted[0].files_after > 1
    assert len(_file_paths(store, 0)) == report.compacted[0].files_after


def test_a_segment_grows_no_larger_than_the_topic_allows(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    produce(store, 30)
    seal(store)

    compact(store)

    assert max(segment.batch_count for segment in partition(store).sealed) <= 2 * 16


def test_compacted_and_dirty_segments_stay_apart(store: Store) -> None:
    middle = partition(store).sealed[3].base_offset
    topic_id = store.admin.describe_topic("t").topic_id
    entry = LogCleaned(topic_id=topic_id, partition=0, dirty_offset=0, cleaned_offset=middle, time_ms=1)
    store.append(AppendEntry(entry))

    compact(store)

    assert [segment.base_offset for segment in partition(store).sealed] == [0, middle]


def test_columns_of_the_users_own_are_compacted(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    schema = pa.schema([("name", pa.string()), ("tags", pa.list_(pa.string()))])
    store.admin.create_topic("t", schema=schema, config=TopicConfig(segment_batches=3))
    producer = store.producer()
    for number in range(9):
        producer.send_table("t", pa.table({"name": [f"n{number}", None], "tags": [["a"] * number, None]}, schema))
        producer.flush()
    seal(store)
    names = ["name", "tags", "_offset", "_timestamp"]
    before = store.scan("t", columns=names).to_table()

    assert compact(store).compacted

    assert store.scan("t", columns=names).to_table().to_pylist() == before.to_pylist()


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(
    "point",
    ["segment.compact_files.files_written", "segment.compact_files.index_written", "segment.compact_files.replaced"],
)
def test_a_compaction_that_dies_leaves_everything_as_it_was_or_done(
    store: Store, objects: MemoryStore, clock: Clock, point: str
) -> None:
    before = everything(store)
    dying = Store(objects, At(point, die))

    with pytest.raises(Died):
        compact(dying)

    survivor = Store(objects, Environment())
    assert everything(survivor) == before
    compact(survivor)
    assert everything(survivor) == before
    clock.now_ms += 8 * DAY_MS
    vacuum(survivor)
    assert len(data_files(survivor)) == 1 + sum(batch.file is not None for batch in partition(survivor).active)
    assert everything(Store(objects, Environment())) == before


def test_of_two_compactions_at_once_one_counts(store: Store, objects: MemoryStore) -> None:
    before = everything(store)
    other = Store(objects, Environment())

    overtaken = At("segment.compact_files.index_written", lambda: compact(other))

    report = compact(Store(objects, overtaken))

    assert (len(report.compacted), report.lost_races) == (0, 1)
    assert "segment.replacement.overtaken" in overtaken.points
    assert len(partition(store).sealed) == 1
    assert everything(store) == before


def test_a_compaction_that_the_log_start_overtakes_is_given_up(store: Store, objects: MemoryStore) -> None:
    end = partition(store).sealed[1].end_offset
    topic_id = store.admin.describe_topic("t").topic_id
    entry = LogStartMoved(topic_id=topic_id, partition=0, offset=end, reason="delete_records")

    meanwhile = At("segment.compact_files.index_written", lambda: store.append(AppendEntry(entry)))

    report = compact(Store(objects, meanwhile))

    assert report.lost_races == 1
    assert partition(store).sealed[0].base_offset == end


def test_a_compaction_of_a_topic_that_is_deleted_meanwhile_is_given_up(store: Store, objects: MemoryStore) -> None:
    meanwhile = At("segment.compact_files.index_written", lambda: store.admin.delete_topic("t"))

    report = compact(Store(objects, meanwhile))

    assert (report.compacted, report.lost_races) == ([], 1)


def test_a_compaction_that_slept_through_another_and_vacuum_is_given_up(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    before = everything(store)
    paused = Store(objects, Environment())
    paused.read(lambda state, slot: None)
    runs = paused.log.read

    def late(function: Any, *, refresh: bool = True) -> Any:
        answer = runs(function, refresh=refresh)
        if not refresh:
            paused.log.read = runs  # type: ignore[method-assign]
            compact(store)
            clock.now_ms += 8 * DAY_MS
            vacuum(store)
        return answer

    paused.log.read = late  # type: ignore[method-assign]

    report = compact(paused)

    assert (report.compacted, report.lost_races) == ([], 1)
    assert everything(store) == before


def test_a_missing_file_is_reported_and_not_taken_for_a_race(store: Store) -> None:
    victim = next(batch.file.path for batch in _index(store, 0) if batch.file is not None)
    store.object_store.delete([victim])

    with pytest.raises(CorruptRecord, match=victim):
        compact(store)


@pytest.mark.usefixtures("files_are_objects")
def test_readers_that_planned_before_find_their_files_for_a_day(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    scan = store.scan("t")
    before = scan.to_table()
    compact(store)
    clock.now_ms += DAY_MS // 2
    vacuum(store)

    assert scan.to_table().equals(before)

    clock.now_ms += DAY_MS
    vacuum(store)
    assert len(data_files(store)) == 1 + sum(batch.file is not None for batch in partition(store).active)


def test_a_file_in_the_new_index_outlives_its_first_index(store: Store, objects: MemoryStore, clock: Clock) -> None:
    before = everything(store)
    compact(store, target_file_bytes=1)
    clock.now_ms += 10 * DAY_MS

    vacuum(store)

    assert store.read(lambda state, slot: state.pending_deletions) == ()
    assert everything(Store(objects, Environment())) == before


@given(st.lists(st.integers(1, 1000), max_size=60))
def test_each_run_is_at_least_twice_its_largest_part_and_is_not_merged_again(weights: list[int]) -> None:
    found = doubling_runs(weights, lambda weight: weight)

    assert [weight for run in found for weight in run] == weights
    assert all(sum(run) >= 2 * max(run) for run in found if len(run) > 1)
    compacted = [sum(run) for run in found]
    assert len(compacted) == 1 or doubling_runs(compacted, lambda weight: weight) == [[weight] for weight in compacted]


@pytest.mark.usefixtures("files_are_objects")
def test_a_new_topic_is_compacted_now(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t")
    produce(store, 10)
    before = everything(store)
    assert store.admin.compact_files("t").compacted == []

    (compacted,) = store.admin.compact_files("t", now=True).compacted

    assert (compacted.files_before, compacted.files_after) == (20, 1)
    assert everything(store) == before
    assert store.admin.compact_files(now=True).compacted == []


def seal_before_a_checkpoint(store: Store) -> None:
    """Make the state smaller, as each process does before it writes a checkpoint."""
    store.log.before_checkpoint()


def test_a_process_joins_the_small_segments_of_the_partition_that_it_seals(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    produce(store, 10)
    before = everything(store)

    seal_before_a_checkpoint(store)

    assert [(each.base_offset, each.batch_count, each.file_count) for each in partition(store).sealed] == [(0, 28, 1)]
    assert everything(store) == before
    assert not list(store.admin.verify())


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(
    "point",
    ["segment.compact_files.files_written", "segment.compact_files.index_written", "segment.compact_files.replaced"],
)
def test_a_process_that_dies_while_it_joins_segments_loses_no_row(objects: MemoryStore, point: str) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    produce(store, 10)
    before = everything(store)

    with pytest.raises(Died):
        seal_before_a_checkpoint(Store(objects, At(point, die)))

    survivor = Store(objects, Environment())
    assert everything(survivor) == before
    seal_before_a_checkpoint(survivor)
    assert everything(survivor) == before
    assert {each.kind for each in survivor.admin.verify()} <= {Kind.FILES_UNREFERENCED}


@pytest.mark.parametrize(("transactions", "segments", "left"), [(4, 3, 3), (6, 4, 1)])
def test_a_sealer_joins_segments_only_where_there_are_four(
    objects: MemoryStore, transactions: int, segments: int, left: int
) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    produce(store, transactions)
    seal(store)
    assert len(partition(store).sealed) == segments

    join_small_segments(store, partitions_of(store, "t"))

    assert len(partition(store).sealed) == left


def test_a_sealer_leaves_large_segments_to_the_compaction_of_files(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    rng = random.Random(1)
    produce(store, 10, values=lambda number: rng.randbytes(2 << 20))
    seal(store)
    before = partition(store).sealed

    join_small_segments(store, partitions_of(store, "t"))

    assert partition(store).sealed == before


@pytest.mark.usefixtures("files_are_objects")
def test_a_process_that_dies_between_sealing_and_compacting_leaves_the_rest_to_the_next(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t")
    produce(store, 10)
    before = everything(store)
    dying = Store(objects, At("segment.seal.sealed", die))

    with pytest.raises(Died):
        dying.admin.compact_files("t", now=True)

    assert len(partition(store).sealed) == 1
    assert everything(store) == before
    assert len(store.admin.compact_files("t").compacted) == 1
    assert everything(store) == before


def test_keys_are_compacted_now_in_compacted_topics_alone(objects: MemoryStore) -> None:
    store = Store(objects, Environment())
    store.admin.create_topic("t")
    store.admin.create_topic("balances", config=TopicConfig(cleanup_policy="compact"))
    with store.producer() as producer:
        for number in range(3):
            for topic in ("t", "balances"):
                producer.send(topic, b"%d" % number, key=b"k")
            producer.flush()

    (compacted,) = store.admin.compact_keys("balances", now=True).partitions

    assert (compacted.topic, compacted.rows_removed) == ("balances", 2)
    assert [row["value"] for row in store.scan("balances").to_table().to_pylist()] == [b"2"]
    store.admin.compact_keys(now=True)
    assert partition(store).sealed == ()


def test_a_topic_that_is_deleted_while_all_topics_are_compacted_stops_no_other(
    store: Store, objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.admin.create_topic("gone")
    admin, other = store.admin, Store(objects, Environment()).admin
    names = admin.list_topics()
    other.delete_topic("gone")
    monkeypatch.setattr(Admin, "list_topics", lambda self: names)

    (compacted,) = admin.compact_files(now=True).compacted

    assert compacted.topic == "t"


def test_a_topic_that_does_not_exist_cannot_be_compacted_now(store: Store) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        store.admin.compact_files("none", now=True)
    with pytest.raises(UnknownTopicOrPartition):
        store.admin.compact_keys("none", now=True)
