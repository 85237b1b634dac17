"""Fetch requests: the visible rows, positions that always advance, and the wait for rows."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway import fetch as fetching
from eoslog.gateway.protocol import ApiKey
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer_batches import new_producer
from eoslog.state.append_requests import AppendBatches
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import FilesSkipped, TopicConfig
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.skipped_files import skipped_files
from eoslog.state.transaction_entries import BatchAppended
from eoslog.store import Store
from tests.unit.gateway.raw_client import (
    Client,
    Producer,
    batch,
    batches_of,
    fetch,
    fetch_values,
    part,
    produce,
    produce_values,
    running,
    values_of,
    versions_of,
)
from tests.unit.support.partitions import read, write
from tests.unit.support.world import World

COMMITTED, UNCOMMITTED = 1, 0


def fetched_all(client: Client, topic: str, *, isolation: int, start: int = 0, **more: Any) -> list[tuple[int, Any]]:
    """Fetch from an offset until nothing follows, as a consumer does. The position has to advance each time."""
    found: list[tuple[int, Any]] = []
    position = start
    while True:
        answer = fetch(client, topic, position, isolation=isolation, **more)
        assert answer.error_code is ErrorCode.none
        end = answer.last_stable_offset if isolation == COMMITTED else answer.high_watermark
        if position == end:
            assert answer.records == b""
            return found
        batches = batches_of(answer.records)
        found += [row for row in values_of(answer.records) if row[0] >= position]
        assert batches[-1].next_offset > position
        position = batches[-1].next_offset


@pytest.mark.parametrize("version", versions_of(ApiKey.FETCH))
def test_rows_of_other_writers_are_fetched(store: Store, version: int) -> None:
    with store.producer() as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], partition=0)
        producer.send("t", None, key=b"", partition=0)
    with running(store) as gateway, Client(gateway.port) as client:
        answer = fetch(client, "t", 0, version=version)

    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (ErrorCode.none, 2, 2)
    (found,) = batches_of(answer.records)
    assert found.records == [(0, b"k", b"v", [("h", b"1"), ("h", None)]), (1, b"", None, [])]


@pytest.mark.parametrize("ends", [("commit",), ("abort",), ("commit", "abort"), ("abort", "commit"), ("abort", "open")])
@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("sealed", [False, True])
def test_consumers_see_the_rows_of_their_isolation_level_and_pass_over_all_others(
    store: Store, ends: tuple[str, ...], isolation: int, sealed: bool
) -> None:
    write(store, "t", *ends)
    if sealed:
        Coordinator(store).run_once()
    with running(store) as gateway, Client(gateway.port) as client:
        level = "read_committed" if isolation == COMMITTED else "read_uncommitted"
        expected = sorted(read(store, "t", level))

        assert fetched_all(client, "t", isolation=isolation) == expected
        # The second time the batches come from the cache. A consumer may also begin between batches.
        assert fetched_all(client, "t", isolation=isolation) == expected
        for start in range(len(ends)):
            rest = [row for row in expected if row[0] >= start]
            assert fetched_all(client, "t", isolation=isolation, start=start) == rest


@pytest.mark.parametrize("window", [1, 2, 1_000])
def test_gaps_of_compaction_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(fetching, "_WINDOW", window)
    monkeypatch.setattr(fetching, "_WINDOW_GROWTH", 2)
    store.admin.create_topic("c", config=TopicConfig(cleanup_policy="compact", segment_batches=1))
    for number in range(6):
        with store.producer() as producer:
            producer.send("c", b"%d" % number, key=b"k%d" % (number % 2))
    Coordinator(store).run_once()
    store.admin.compact_keys("c", now=True)
    expected = sorted(read(store, "c"))
    assert len(expected) < 6

    with running(store) as gateway, Client(gateway.port) as client:
        assert fetched_all(client, "c", isolation=COMMITTED) == expected
        assert fetched_all(client, "c", isolation=UNCOMMITTED, partition_max_bytes=1) == expected


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_rows_that_compaction_has_removed_are_no_longer_fetched(store: Store, world: World, isolation: int) -> None:
    store.admin.create_topic("c", config=TopicConfig(cleanup_policy="compact"))
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("c", 0, batch(b"old", key=b"k")))
        produce(client, ("c", 0, batch(b"new", b"newest", key=b"k")))
        # The gateway keeps the batches as they were sent, and the one that it makes of the last row.
        assert [offset for offset, _ in fetched_all(client, "c", isolation=isolation)] == [0, 1, 2]
        assert fetched_all(client, "c", isolation=isolation, start=2) == [(2, b"newest")]
        world.process().admin.compact_keys("c", now=True)
        produce(client, ("t", 0, batch(b"the gateway learns of the compaction")))

        assert fetched_all(client, "c", isolation=isolation) == [(2, b"newest")]


def test_rows_farther_apart_than_the_offsets_of_a_batch_are_fetched(store: Store) -> None:
    def append_gap(count: int) -> None:
        """Append so many rows, and skip their file."""
        topic_id, prefix = store.read(
            lambda state, slot: (state.topic_ids["t"], state.topics[state.topic_ids["t"]].prefix)
        )
        producer_id, now_ms = new_producer(store).producer_id, store.now_ms()
        path = f"{prefix}0/{producer_id:032x}.parquet"
        lost = BatchAppended(
            topic_id=topic_id,
            partition=0,
            base_offset=0,
            record_count=count,
            file=FileReference(path=path, length=1, crc32c=0),
            upload_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            min_timestamp=0,
            max_timestamp=0,
            time_ms=now_ms,
        )
        store.append(AppendBatches([lost]))
        skipped = store.read(
            lambda state, slot: skipped_files(state.partitions[PartitionId(topic_id, 0)].active, {path})
        )
        store.append(AppendEntry(FilesSkipped(topic_id=topic_id, partition=0, skipped=skipped, time_ms=now_ms)))

    first, second = 300_000_000, 300_000_000 + 2**31
    with running(store) as gateway, Client(gateway.port) as client:
        append_gap(first)
        produce(client, ("t", 0, batch(b"a")))
        append_gap(2**31 - 1)
        produce(client, ("t", 0, batch(b"b")))

        assert fetched_all(client, "t", isolation=COMMITTED) == [(first, b"a"), (second, b"b")]
    # A gateway that has none of the batches in its cache.
    with running(store) as gateway, Client(gateway.port) as client:
        assert fetched_all(client, "t", isolation=COMMITTED) == [(first, b"a"), (second, b"b")]


def test_the_rows_of_many_small_batches_are_fetched_as_one(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        for number in range(20):
            produce(client, ("t", 0, batch(b"%d" % number)))

    with running(store) as gateway, Client(gateway.port) as client:
        (found,) = batches_of(fetch(client, "t", 3).records)
        assert (found.base_offset, found.next_offset) == (3, 20)


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_the_batches_of_producers_are_fetched_without_a_read_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, compression: int, isolation: int
) -> None:
    def not_read(*args: Any, **options: Any) -> Any:
        raise AssertionError("the rows are read")

    sent = [batch(*[b"%d" % number] * (number + 1), compression=compression) for number in range(3)]
    with running(store) as gateway, Client(gateway.port) as client:
        for each in sent:
            produce(client, ("t", 0, each))
        with monkeypatch.context() as patch:
            patch.setattr(fetching, "read_rows", not_read)
            found = fetch(client, "t", 0, isolation=isolation).records

    assert [each.base_offset for each in batches_of(found)] == [0, 1, 3]
    with running(store) as gateway, Client(gateway.port) as client:
        assert values_of(fetch(client, "t", 0, isolation=isolation).records) == values_of(found)


def test_a_batch_with_the_sequence_of_another_one_does_not_hide_its_rows(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        answer = client.call(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout=timedelta(seconds=60)
        )
        producer = Producer(answer.producer_id, answer.producer_epoch, 0)
        offsets = [produce(client, ("t", 0, batch(value, producer=producer)))[0].base_offset for value in (b"1", b"2")]

        assert offsets == [0, 0]
        assert values_of(fetch(client, "t", 0).records) == [(0, b"1")]


def test_answers_are_as_small_as_the_client_asks_but_have_one_batch(store: Store) -> None:
    store_rows(store, 3_000, size=1_000)
    with running(store) as gateway, Client(gateway.port) as client:
        small = fetch(client, "t", 0, partition_max_bytes=100_000)
        large = fetch(client, "t", 0)
        assert 0 < len(small.records) < 150_000
        assert len(large.records) > 3_000_000
        assert max(each.next_offset - each.base_offset for each in batches_of(large.records)) < 1_300

        least = fetch(client, "t", 17, max_bytes=1)
        assert values_of(least.records)[0][0] == 17
        expected = sorted(read(store, "t"))
        for most in (50_000, 1 << 20):
            assert fetched_all(client, "t", isolation=COMMITTED, partition_max_bytes=most) == expected


def store_rows(store: Store, count: int, size: int) -> None:
    with store.producer() as producer:
        values = pa.array([b"%d" % number + bytes(size) for number in range(count)], pa.binary())
        producer.send_table("t", pa.table({"value": values, "partition": pa.array([0] * count, pa.int32())}))


def test_memory_for_answers_bounds_them(store: Store) -> None:
    store_rows(store, 3_000, size=1_000)
    with running(store, response_bytes=1 << 20) as gateway, Client(gateway.port) as client:
        assert 0 < len(fetch(client, "t", 0).records) < 1 << 20
        assert fetched_all(client, "t", isolation=COMMITTED) == sorted(read(store, "t"))


def test_a_record_that_is_larger_than_the_memory_for_answers_is_fetched(store: Store) -> None:
    store_rows(store, 2, size=3_000_000)
    with running(store, response_bytes=1 << 20) as gateway, Client(gateway.port) as client:
        assert [offset for offset, _ in fetched_all(client, "t", isolation=COMMITTED)] == [0, 1]


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("missing", 0, 0, ErrorCode.unknown_topic_or_partition),
        ("t", 9, 0, ErrorCode.unknown_topic_or_partition),
        ("t", -1, 0, ErrorCode.unknown_topic_or_partition),
        ("t", 0, 2, ErrorCode.offset_out_of_range),
        ("t", 0, -1, ErrorCode.offset_out_of_range),
        ("columns", 0, 0, ErrorCode.invalid_topic_exception),
    ],
)
def test_partitions_that_cannot_be_fetched_are_answered_at_once(
    store: Store, topic: str, partition: int, offset: int, code: ErrorCode
) -> None:
    store.admin.create_topic("columns", schema={"n": "long"})
    write(store, "t")
    with running(store) as gateway, Client(gateway.port) as client:
        answer = fetch(client, topic, offset, partition=partition, max_wait_ms=30_000)

    assert answer.error_code is code
    assert not answer.records


def test_offsets_below_the_log_start_are_out_of_range(store: Store) -> None:
    write(store, "t", "commit", "commit")
    store.admin.delete_records({("t", 0): 2})
    with running(store) as gateway, Client(gateway.port) as client:
        answer = fetch(client, "t", 0)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.offset_out_of_range, 2)
        assert [offset for offset, _ in fetched_all(client, "t", isolation=COMMITTED, start=2)] == [2]


def test_only_the_first_rows_of_an_answer_may_be_larger_than_the_client_asks(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, *(("t", index, batch(b"x" * 1_000)) for index in (0, 1)))
        sizes = {}
        for most in (500, 1_500, 2_500):
            values = fetch_values("t", 0, max_bytes=most)
            wanted = tuple(
                part(ApiKey.FETCH, 11, "FetchPartition", partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                for index in (0, 1)
            )
            values["topics"] = (part(ApiKey.FETCH, 11, "FetchTopic", topic="t", partitions=wanted),)
            (topic,) = client.call(ApiKey.FETCH, 11, **values).responses
            sizes[most] = [len(values_of(each.records)) for each in topic.partitions]

    assert sizes == {500: [1, 0], 1_500: [1, 0], 2_500: [1, 1]}


def test_one_request_fetches_many_partitions(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"0")), ("t", 1, batch(b"1")))
        values = fetch_values("t", 0)
        wanted = tuple(
            part(ApiKey.FETCH, 11, "FetchPartition", partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            for index in (1, 0, 7)
        )
        values["topics"] = (part(ApiKey.FETCH, 11, "FetchTopic", topic="t", partitions=wanted),)
        (topic,) = client.call(ApiKey.FETCH, 11, **values).responses

    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (1, ErrorCode.none),
        (0, ErrorCode.none),
        (7, ErrorCode.unknown_topic_or_partition),
    ]
    assert [values_of(each.records) for each in topic.partitions] == [[(0, b"1")], [(0, b"0")], []]


# The wait for rows


def test_a_fetch_waits_for_rows_of_the_same_gateway(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as consumer, Client(gateway.port) as producer:
        consumer.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        time.sleep(0.1)
        produce(producer, ("t", 1, batch(b"of another partition")))
        produce(producer, ("t", 0, batch(b"v")))

        answer = consumer.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert values_of(answer.records) == [(0, b"v")]


def test_a_fetch_waits_for_rows_of_other_processes(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as consumer:
        consumer.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000))
        time.sleep(0.1)
        with world.process().producer() as producer:
            producer.send("t", b"v", partition=0)

        answer = consumer.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert values_of(answer.records) == [(0, b"v")]


@pytest.mark.parametrize("settings", [{"max_wait_ms": 0}, {"max_wait_ms": 30_000, "min_bytes": 0}])
def test_a_consumer_that_never_waits_sees_what_other_processes_do(
    store: Store, world: World, settings: dict[str, int]
) -> None:
    with running(store) as gateway, Client(gateway.port) as consumer:
        with world.process().producer() as producer:
            producer.send("t", b"v", partition=0)
        write(world.process(), "t", "open", transaction_timeout_ms=1_000)
        world.pass_time(5_000)
        found = []
        position = 0
        deadline = time.monotonic() + 20
        # The transaction is overdue. Its row and its marker follow the committed row.
        while position < 3 and time.monotonic() < deadline:
            records = fetch(consumer, "t", position, isolation=COMMITTED, **settings).records
            found += values_of(records)
            position = max([position, *(each.next_offset for each in batches_of(records))])

    assert (position, found) == (3, [(0, b"v")])


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as consumer, Client(gateway.port) as producer:
        consumer.send(ApiKey.FETCH, 11, **fetch_values("t", 0, max_wait_ms=30_000, min_bytes=250))
        for _ in range(3):
            produce(producer, ("t", 0, batch(bytes(100))))

        answer = consumer.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert len(answer.records) >= 250


def test_a_fetch_ends_after_its_time_with_fewer_bytes(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        empty = fetch(client, "t", 0, max_wait_ms=50)
        produce(client, ("t", 0, batch(b"v")))
        few = fetch(client, "t", 0, max_wait_ms=50, min_bytes=1 << 20)

    assert empty.records == b""
    assert values_of(few.records) == [(0, b"v")]


def test_a_consumer_is_told_of_the_rows_of_a_transaction_when_it_ends(store: Store, world: World) -> None:
    other = write(world.process(), "t", "open")
    with running(store) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.FETCH, 11, **fetch_values("t", 0, isolation=COMMITTED, max_wait_ms=30_000))
        time.sleep(0.1)
        other.commit_transaction()

        answer = client.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert values_of(answer.records) == [(0, b"0")]


def test_an_overdue_transaction_that_hides_rows_from_a_consumer_is_aborted(store: Store, world: World) -> None:
    write(world.process(), "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(5_000)
    with running(store) as gateway, Client(gateway.port) as client:
        answer = fetch(client, "t", 0, isolation=COMMITTED, max_wait_ms=30_000)

    assert [each.is_control for each in batches_of(answer.records)] == [True]
    assert answer.last_stable_offset == 2


def test_consumers_follow_producers(store: Store, world: World) -> None:
    count = 200
    with running(store) as gateway:
        seen: dict[int, list[tuple[int, Any]]] = {}

        def consume(number: int) -> None:
            found: list[tuple[int, Any]] = []
            with Client(gateway.port) as client:
                while len(found) < count:
                    answer = fetch(client, "t", len(found), max_wait_ms=5_000, isolation=number % 2)
                    found += values_of(answer.records)
            seen[number] = found

        threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        with Client(gateway.port) as client:
            for number in range(count):
                client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"%d" % number))))
            for _ in range(count):
                client.answer(ApiKey.PRODUCE, 9)
        for thread in threads:
            thread.join(60)

    expected = [(number, b"%d" % number) for number in range(count)]
    assert [seen[number] for number in range(4)] == [expected] * 4
