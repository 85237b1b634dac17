"""Small batches travel in the record of their entry: fewer requests, and every reader and tool still sees the rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest

import eoslog
from eoslog import Store, TopicConfig
from eoslog.errors import CorruptRecord, StoreAccessDenied
from eoslog.format.file_writer import MOST_INLINE_BYTES, WrittenFile, upload_beyond
from eoslog.log.replica import LogConfig
from eoslog.log.slots import SLOTS, slot_path
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.partition_state import Partition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore, RecentObjects, StoredObject
from eoslog.verification.findings import Kind
from tests.unit.session.clock import Clock
from tests.unit.support.transactions import open_transaction

HOUR_MS = 3_600_000


@pytest.fixture
def objects(environment: Environment) -> ObjectStore:
    return MemoryStore(environment, environment.new_id())


@pytest.fixture
def store(objects: ObjectStore, environment: Environment) -> Store:
    return created(objects, environment)


def created(objects: ObjectStore, environment: Environment, limit: int = 32 << 10, **config: int) -> Store:
    store = Store(objects, environment, LogConfig(inline_limit_bytes=limit))
    store.admin.create_topic("t", config=TopicConfig(**config))
    return store


def again(store: Store) -> Store:
    """The same store in a process that knows nothing yet."""
    return Store(MemoryStore(store.environment, store.url.removeprefix("memory://")), store.environment)


def commit(store: Store, values: list[bytes], topic: str = "t", **options: bool) -> None:
    with store.producer("p", **options) as producer:
        producer.init_transactions()
        for value in values:
            producer.begin_transaction()
            producer.send(topic, value)
            producer.commit_transaction()


def values(store: Store, topic: str = "t", **options: object) -> list[bytes]:
    found: list[bytes] = store.scan(topic, **options).to_table().column("value").to_pylist()
    return found


def partition(store: Store) -> Partition:
    return store.read(lambda state, slot: next(iter(state.partitions.values())))


def requests(store: Store, call: Callable[[], object]) -> dict[str, int]:
    """The requests of a call by kind, without kinds that it does not send."""
    before = dict(store.requests)
    call()
    return {kind: count - before[kind] for kind, count in store.requests.items() if count > before[kind]}


def seal(store: Store) -> int:
    return len(seal_segments(store))


def data_files(store: Store) -> list[str]:
    names = [info.path for info in store.object_store.list("t/")]
    return [name for name in names if name.endswith(".parquet") and not name.endswith(".index.parquet")]


# Requests


@pytest.mark.parametrize(("limit", "puts"), [(0, 2), (32 << 10, 1)])
def test_the_smallest_commit_is_one_request(
    limit: int, puts: int, objects: ObjectStore, environment: Environment
) -> None:
    store = created(objects, environment, limit)
    with open_transaction(store, "p", staged=True) as producer:
        producer.send("t", b"a")

        assert requests(store, producer.commit_transaction) == {"PUT": puts}
    assert values(again(store)) == [b"a"]


def test_a_flush_of_small_batches_over_100_partitions_is_one_request(store: Store) -> None:
    store.admin.create_topic("wide", partitions=100)
    with store.producer() as producer:
        producer.send("t", b"so that the producer has its id")
        producer.flush()
        for number in range(100):
            producer.send("wide", b"%d" % number, partition=number)

        assert requests(store, producer.flush) == {"PUT": 1}
    assert sorted(values(again(store), "wide")) == sorted(b"%d" % number for number in range(100))


def test_a_batch_beyond_the_limit_is_a_file_of_its_own(store: Store) -> None:
    large = os.urandom(100_000)

    def both() -> None:
        with open_transaction(store, "p", staged=True) as producer:
            producer.send("t", b"small", partition=0)
            producer.send("u", large)
            producer.commit_transaction()

    store.admin.create_topic("u")
    both()

    assert len(data_files(store)) == 0
    assert len([info for info in store.object_store.list("u/") if info.path.endswith(".parquet")]) == 1
    assert (values(again(store)), values(again(store), "u")) == ([b"small"], [large])


def test_a_record_takes_no_more_rows_than_it_has_room_for(objects: ObjectStore, environment: Environment) -> None:
    store = created(objects, environment, MOST_INLINE_BYTES)
    third = [os.urandom(MOST_INLINE_BYTES // 3) for _ in range(4)]
    with open_transaction(store, "p", staged=True) as producer:
        for value in third:
            producer.send("t", value)
            producer.flush()
        producer.commit_transaction()

    in_record = [batch.file for batch in partition(store).active if batch.file is not None and batch.file.in_record]
    assert 0 < sum(file.length for file in in_record) <= MOST_INLINE_BYTES
    assert 0 < len(data_files(store)) == 4 - len(in_record)
    assert values(again(store)) == third


def test_a_consumer_at_the_end_of_the_log_reads_the_rows_with_their_record(environment: Environment) -> None:
    def gets(limit: int) -> int:
        store = created(MemoryStore(environment, environment.new_id()), environment, limit)
        follower = again(store)
        count = 0
        with follower.consumer(None, auto_offset_reset="earliest") as consumer:
            consumer.assign([eoslog.TopicPartition("t", 0)])
            for number in range(5):
                commit(store, [b"%d" % number], staged=True)
                count += requests(follower, lambda: rows.extend(consumer.poll(0)))["GET"]
        return count

    rows: list[object] = []

    assert gets(0) - gets(32 << 10) == 5
    assert len(rows) == 10


def test_each_record_answers_for_its_own_rows(store: Store) -> None:
    commit(store, [b"%d" % number for number in range(5)])

    fresh = again(store)

    assert values(fresh) == values(store) == [b"%d" % number for number in range(5)]
    assert requests(fresh, lambda: values(fresh))["GET"] == 1  # That there is no newer slot.


@pytest.mark.parametrize("length", [0.3, 0.5, 0.9])
def test_an_answer_that_is_cut_short_is_not_kept_in_memory(length: float, store: Store) -> None:
    store.admin.create_topic("wide", partitions=10)
    with store.producer() as producer:
        for number in range(10):
            producer.send("wide", b"%d" % number, partition=number)
    fresh = again(store)
    fresh.read(lambda state, slot: None)
    fresh.object_store.recent = RecentObjects()
    get = fresh.object_store.get

    def cut(path: str) -> StoredObject:
        found = get(path)
        return StoredObject(found.body[: int(len(found.body) * length)], found.last_modified_ms)

    fresh.object_store.get = cut  # type: ignore[method-assign]
    for partition_number in range(10):
        with contextlib.suppress(CorruptRecord):
            values(fresh, "wide", partitions=[partition_number])
    fresh.object_store.get = get  # type: ignore[method-assign]

    assert sorted(values(fresh, "wide")) == [b"%d" % number for number in range(10)]


# Sealing


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted", "snapshot"])
def test_a_seal_moves_the_rows_of_a_segment_to_one_data_file(
    isolation_level: str, objects: ObjectStore, environment: Environment
) -> None:
    store = created(objects, environment, segment_batches=10)
    with store.producer("p") as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            producer.send("t", b"%d" % number, headers=[("h", b"%d" % number)])
            producer.flush()
            producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    columns = ["offset", "timestamp", "key", "value", "headers"]
    before = store.scan("t", isolation_level=isolation_level, columns=columns).to_table()
    slot = store.scan("t").slot

    assert seal(store) == 2

    for each in (store, again(store)):
        assert each.scan("t", isolation_level=isolation_level, columns=columns).to_table().equals(before)
    assert len(data_files(store)) == 2
    assert [segment.file_count for segment in partition(store).sealed] == [1, 1]
    # Rows of plans and snapshots from before the seal are still in the records.
    assert again(store).scan("t", isolation_level="snapshot", slot=slot).to_table().num_rows == 7
    assert not list(store.admin.verify(data=True))


def test_a_large_batch_between_small_ones_keeps_its_file(objects: ObjectStore, environment: Environment) -> None:
    store = created(objects, environment, segment_batches=5)
    large = os.urandom(100_000)
    sent = [b"0", b"1", large, b"3", b"4"]
    with store.producer() as producer:
        for value in sent:
            producer.send("t", value)
            producer.flush()
    (kept,) = data_files(store)

    assert seal(store) == 1

    assert kept in data_files(store)
    assert len(data_files(store)) == 3
    assert values(again(store)) == sent
    assert not list(store.admin.verify(data=True))
    store.admin.compact_files("t", now=True)
    assert values(again(store)) == sent


def test_a_damaged_record_keeps_only_its_own_partition_from_being_sealed(
    objects: ObjectStore, environment: Environment
) -> None:
    store = created(objects, environment, segment_batches=2)
    store.admin.create_topic("u", config=TopicConfig(segment_batches=2))
    for topic in ("t", "t", "u", "u"):
        commit(store, [b"x"], topic)
    damaged = next(batch.slot for batch in partition(store).active if batch.file is not None)
    spoil(store, damaged)

    fresh = again(store)
    with pytest.raises(CorruptRecord, match="missing"):
        seal(fresh)

    sealed = fresh.read(lambda state, slot: [len(each.sealed) for each in state.partitions.values()])
    assert sealed[0] == 0
    assert sealed[1] > 0


def spoil(store: Store, slot: int) -> None:
    """Take the files out of a record."""
    body = store.object_store.get(slot_path(slot)).body
    store.object_store.put(slot_path(slot), body[: body.index(b'{"files"')])


# Tools


def test_verify_finds_rows_that_a_record_has_lost(store: Store) -> None:
    commit(store, [b"a", b"b"])
    spoil(store, max(batch.slot for batch in partition(store).active if batch.file is not None))

    assert [each.kind for each in again(store).admin.verify(data=True)] == [Kind.DATA_MISSING]


def test_the_files_of_a_scan_are_objects(store: Store) -> None:
    commit(store, [b"a", b"b"])
    assert data_files(store) == []

    files = again(store).scan("t").files()

    assert sorted(file.path for file in files) == data_files(store)
    assert not list(store.admin.verify(data=True))
    # They have the same bytes as the records, so nothing changes if they are put again.
    assert sorted(file.path for file in again(store).scan("t").files()) == data_files(store)
    assert values(again(store)) == [b"a", b"b"]


def test_the_error_of_a_reader_that_may_not_put_files_says_how_to_read_the_rows(store: Store) -> None:
    commit(store, [b"a"])
    reader = again(store)

    def refuse(objects: object) -> None:
        raise StoreAccessDenied("PutObject is denied")

    reader.object_store.put_new = refuse  # type: ignore[method-assign, assignment]

    with pytest.raises(StoreAccessDenied) as caught:
        reader.scan("t").files()

    assert "Some rows are in records" in caught.value.__notes__[0]
    assert values(reader) == [b"a"]


def test_objects_of_rows_in_records_stay_while_the_rows_do(store: Store) -> None:
    commit(store, [b"a", b"b"])
    store.scan("t").files()

    report = store.admin.vacuum(staged_max_age_ms=1, deleted_file_retention_ms=1)

    assert report.paths == []
    assert len(data_files(store)) == 2


def test_wrong_bytes_in_memory_are_read_again(store: Store) -> None:
    commit(store, [b"a"])
    (batch,) = (batch for batch in partition(store).active if batch.file is not None)
    path = slot_path(batch.slot)
    line = store.object_store.recent.find(path)
    assert line is not None
    store.object_store.recent.drop(path)
    store.object_store.recent.keep(path, line.replace(b"UEFSM", b"AAAAA"))

    assert values(store) == [b"a"]


def test_the_files_of_a_job_have_room_in_one_record(objects: ObjectStore, environment: Environment) -> None:
    store = created(objects, environment)
    files = [written(number, 30_000) for number in range(40)]

    kept = upload_beyond(objects, files)

    assert sum(file.length for file in kept if file.content is not None) <= MOST_INLINE_BYTES
    uploaded = [file.path for file in kept if file.content is None]
    assert uploaded == data_files(store)
    assert [file.path for file in kept] == [file.path for file in files]
    assert [file.reference.in_record for file in kept].count(None) == len(uploaded) > 0


def written(number: int, length: int) -> WrittenFile:
    return WrittenFile("a" * 32, 0, f"t/{number:02}.parquet", length, 0, 0, 1, 0, 0, content=bytes(length))


def test_a_coordinator_moves_rows_out_of_old_slots_and_deletes_those(environment: Environment) -> None:
    clock = Clock()
    objects = MemoryStore(clock, clock.new_id(), wall_clock=clock.now_ms)
    store = Store(objects, clock, LogConfig(checkpoint_slots=2))
    store.admin.create_topic("t")
    commit(store, [b"%d" % number for number in range(6)])
    oldest = min(batch.slot for batch in partition(store).active if batch.file is not None)
    clock.now += 25 * HOUR_MS
    store = Store(objects, clock, LogConfig(checkpoint_slots=2))

    for _ in range(4):
        list(Coordinator(store).run_once())

    assert partition(store).sealed
    # The plans of a day may need the rows in the records.
    assert objects.get(slot_path(oldest)).body
    clock.now += 25 * HOUR_MS
    for _ in range(4):
        store.admin.create_topic(f"u{clock.now}", partitions=1)
        list(Coordinator(Store(objects, clock, LogConfig(checkpoint_slots=2))).run_once())
        clock.now += HOUR_MS
    assert not [info for info in objects.list(SLOTS) if info.path == slot_path(oldest)]
    assert values(Store(objects, clock)) == [b"%d" % number for number in range(6)]
