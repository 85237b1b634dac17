"""The stream reader, called as Spark calls it: what it asks of the store and what it answers needs no JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import eoslog
from eoslog.errors import InvalidOption, OffsetOutOfRange, StoreUnavailable
from eoslog.state.jobs import replace_rows
from pyspark_eoslog import worker
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import EosLogReader
from tests.requests import Applying
from tests.unit.pyspark_eoslog.stream.world import (
    NUMBERS,
    SCHEMA,
    ManualEnvironment,
    drain,
    held,
    produce,
    reader,
    rows,
)
from tests.unit.support.transactions import open_transaction


def delete_rows(store: eoslog.Store) -> None:
    """Move the log start of the topic ``in`` to its end."""
    topic_id = store.admin.describe_topic("in").topic_id
    store.append(Applying(lambda draft: replace_rows(draft, topic_id)))


@pytest.mark.usefixtures("paid_requests")
def test_an_idle_stream_waits_longer_each_time_and_sends_one_request(
    store: eoslog.Store, time: ManualEnvironment
) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    requests = held(stream).requests
    before = requests.total()

    for _ in range(6):
        assert stream.latestOffset(start, ReadAllAvailable()) == start

    assert time.slept == [100, 200, 400, 800, 1000, 1000]
    assert requests.total() - before == 6


def test_a_stream_that_is_asked_seldom_does_not_wait(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store)
    start = stream.initialOffset()

    for _ in range(3):
        stream.latestOffset(start, ReadAllAvailable())
        time.now_ms += 2_000

    assert not any(time.slept)


def test_a_stream_outlives_a_short_outage(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(store, 1)
    stream = reader(store)
    start = stream.initialOffset()
    produce(store, 2)
    objects = held(stream).object_store
    real, failures = objects.get, iter([True, True, True])

    def flaky(path: str) -> Any:
        if next(failures, False):
            raise StoreUnavailable("no answer")
        return real(path)

    monkeypatch.setattr(objects, "get", flaky)

    end = stream.latestOffset(start, ReadAllAvailable())

    assert rows(stream, start, end) == [1, 2]


def test_an_outage_without_end_ends_the_stream(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(path: str) -> Any:
        raise StoreUnavailable("no answer")

    stream = reader(store)
    start = stream.initialOffset()
    monkeypatch.setattr(held(stream).object_store, "get", unavailable)

    with pytest.raises(StoreUnavailable):
        stream.latestOffset(start, ReadAllAvailable())


def test_the_first_offsets_stay_the_same_however_often_they_are_asked_for(store: eoslog.Store) -> None:
    stream = reader(store, startingOffsets="latest")
    first = stream.initialOffset()
    produce(store, 1)

    assert stream.initialOffset() == first


def test_a_beginning_beyond_the_end_is_refused_before_the_checkpoint_holds_it(store: eoslog.Store) -> None:
    produce(store, 1)

    assert reader(store, startingOffsets='{"in": {"0": 2}}').initialOffset()["topics"]["in"]["0"] == 2
    with pytest.raises(OffsetOutOfRange, match="'startingOffsets' begins partition in-0 at offset 3, but it ends at 2"):
        reader(store, startingOffsets='{"in": {"0": 3}}').initialOffset()


def test_a_stream_below_the_log_start_learns_the_first_offset(store: eoslog.Store) -> None:
    produce(store, 1, 2, 3)
    stream = reader(store)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    store.admin.delete_records({eoslog.TopicPartition("in", 0): 2})

    with pytest.raises(OffsetOutOfRange, match="partition in-0 begins at offset 2: 2 offsets from 0 on were deleted"):
        rows(reader(store), start, end)
    assert rows(reader(store, failOnDataLoss="false"), start, end) == [3]


def test_a_micro_batch_is_parted_as_the_options_ask(store: eoslog.Store) -> None:
    produce(store, *range(10))
    for options, parts in (({"maxRecordsPerPartition": 3}, 4), ({"minPartitions": 2}, 2)):
        stream = reader(store, **options)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())

        assert len(stream.partitions(start, end)) >= parts
        assert rows(stream, start, end) == list(range(10))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "snapshot"])
def test_a_partition_that_is_new_is_read_from_its_beginning(store: eoslog.Store, isolation: str) -> None:
    produce(store, 1)
    stream = reader(store, isolationLevel=isolation)
    begin = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    store.admin.create_partitions("in", 2)
    with store.producer() as producer:
        producer.send_table("in", pa.table({"n": [2], "_partition": [1]}))
    end = stream.latestOffset(begin, ReadAllAvailable())

    assert rows(stream, begin, end) == [2]
    assert rows(reader(store, isolationLevel=isolation), begin, end) == [2]


def test_a_joining_topic_with_lost_rows_starts_at_its_log_start(
    store: eoslog.Store,
) -> None:
    produce(store, 1)
    alone = reader(store)
    at = alone.latestOffset(alone.initialOffset(), ReadAllAvailable())
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, *range(100), topic="more")
    store.admin.delete_records({eoslog.TopicPartition("more", 0): 50})

    both, read = reader(store, subscribe="in,more", failOnDataLoss="false"), []
    for _ in range(5):
        end = both.latestOffset(at, ReadMaxRows(20))
        read += rows(both, at, end)
        at = end

    assert read == list(range(50, 100))


def test_a_topic_that_leaves_is_an_error_unless_it_may_be_lost(store: eoslog.Store) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, 1)
    both = reader(store, subscribe="in,more")
    start = both.initialOffset()

    with pytest.raises(InvalidOption, match="topic more is in the checkpoint but no longer read"):
        reader(store).latestOffset(start, ReadAllAvailable())
    alone = reader(store, failOnDataLoss="false")
    assert rows(alone, start, alone.latestOffset(start, ReadAllAvailable())) == [1]


def test_a_stream_ends_a_transaction_that_timed_out(store: eoslog.Store) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    dead = open_transaction(store, "dead", transaction_timeout_ms=1)
    dead.send_table("in", pa.table({"n": [0]}, schema=NUMBERS))
    dead.flush()
    produce(store, 1)

    end = stream.latestOffset(start, ReadAllAvailable())

    assert rows(stream, start, end) == [1]
    assert store.admin.describe_transaction("dead").transaction_state == "COMPLETE_ABORT"


def test_a_snapshot_stream_tells_what_was_deleted_unread_and_only_that(store: eoslog.Store) -> None:
    stream = reader(store, isolationLevel="snapshot")
    produce(store, 1)
    behind = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    produce(store, 2)
    caught_up = stream.latestOffset(behind, ReadAllAvailable())
    delete_rows(store)
    produce(store, 3)
    end = stream.latestOffset(caught_up, ReadAllAvailable())

    assert rows(stream, caught_up, end) == [3]
    with pytest.raises(OffsetOutOfRange, match="deleted before they were read"):
        rows(stream, behind, end)
    assert rows(reader(store, isolationLevel="snapshot", failOnDataLoss="false"), behind, end) == [3]


def test_a_snapshot_stream_from_the_earliest_on_begins_with_what_is_left(store: eoslog.Store) -> None:
    produce(store, 1)
    delete_rows(store)
    produce(store, 2)

    stream = reader(store, isolationLevel="snapshot")
    batches, _ = drain(stream, stream.initialOffset())

    assert batches == [[2]]


def test_a_batch_at_a_slot_tells_of_rows_deleted_since(store: eoslog.Store) -> None:
    produce(store, 1)
    slot = store.read(lambda state, newest: newest)
    delete_rows(store)
    options = Options.of({"path": store.url, "topic": "in", "isolationLevel": "snapshot", "slot": str(slot)})

    with pytest.raises(OffsetOutOfRange, match=f"the earlier slot {slot} would lack them"):
        EosLogReader(options, SCHEMA).partitions()


def produce_into_both(store: eoslog.Store, *numbers: int) -> None:
    with open_transaction(store, "both") as producer:
        for topic in ("in", "more"):
            producer.send_table(topic, pa.table({"n": list(numbers)}, schema=NUMBERS))
        producer.commit_transaction()


def test_a_consistent_stream_waits_for_a_partly_hidden_transaction(store: eoslog.Store) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    dead = open_transaction(store, "slow")
    dead.send_table("more", pa.table({"n": [0]}, schema=NUMBERS))
    dead.flush()
    produce_into_both(store, 1)
    stream = reader(store, subscribe="in,more", transactionConsistent="true")
    latest = reader(store, subscribe="in,more", transactionConsistent="true", startingOffsets="latest")
    start, from_now_on = stream.initialOffset(), latest.initialOffset()

    assert stream.latestOffset(start, ReadAllAvailable()) == start
    dead.commit_transaction()
    assert rows(stream, start, stream.latestOffset(start, ReadAllAvailable())) == [0, 1, 1]
    assert rows(latest, from_now_on, latest.latestOffset(from_now_on, ReadAllAvailable())) == [0, 1, 1]
    stream.prepareForTriggerAvailableNow()
    first = stream.latestOffset(start, ReadMaxRows(1))
    assert rows(stream, start, first) == [0]
    assert rows(stream, first, stream.latestOffset(first, ReadMaxRows(1))) == [1, 1]


def test_a_transaction_consistent_end_is_for_read_committed(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match="'transactionConsistent' is for isolation level 'read_committed'"):
        reader(store, transactionConsistent="true", isolationLevel="snapshot").initialOffset()


KEYED = pa.schema([pa.field("key", pa.int64()), pa.field("n", pa.int64())])


def compacted(store: eoslog.Store) -> None:
    """Eight batches of two rows and a control row; of key 0 only the newest row is left, at offset 21."""
    config = eoslog.TopicConfig(cleanup_policy="compact", segment_batches=4)
    store.admin.create_topic("keyed", schema=KEYED, key="key", config=config)
    producer = store.producer("keyed")
    producer.init_transactions()
    for number in range(8):
        producer.begin_transaction()
        producer.send_table("keyed", pa.table({"key": [0, 1 + number % 2], "n": [number, 10 + number]}, KEYED))
        producer.commit_transaction()
    store.log.before_checkpoint()
    store.admin.compact_files("keyed")
    store.admin.compact_keys("keyed")


def test_a_limited_stream_counts_offsets_also_where_compaction_left_gaps(
    time: ManualEnvironment, store: eoslog.Store
) -> None:
    compacted(store)
    stream = reader(store, subscribe="keyed", maxOffsetsPerTrigger=5)
    position = stream.initialOffset()
    found, ends = [], []
    for _ in range(10):
        end = stream.latestOffset(position, ReadMaxRows(5))
        found.append(rows(stream, position, end))
        ends.append(end["topics"]["keyed"]["0"])
        position = end

    assert ends[:5] == [5, 10, 15, 20, 24]
    assert found[:5] == [[], [], [], [16], [7, 17]]
    assert ends[-1] == 24


def test_a_batch_fetches_a_shared_file_in_one_task_and_once(store: eoslog.Store) -> None:
    store.admin.create_topic("small", schema=NUMBERS, config=eoslog.TopicConfig(segment_batches=40))
    for number in range(20):
        produce(store, number, topic="small")
    store.log.before_checkpoint()
    store.admin.compact_files("small")
    batch = EosLogReader(Options.of({"path": store.url, "topic": "small"}), SCHEMA)
    (part,) = batch.partitions()
    store_of_tasks = worker.object_store(Options.of({"path": store.url, "topic": "small"}).location)
    before = store_of_tasks.requests["GET"]

    read = [row["n"] for each in batch.read(part) for row in each.to_pylist()]

    assert read == list(range(20))
    assert store_of_tasks.requests["GET"] - before == 1
