"""What a producer promises of what it is handed: rows come back as they were sent, and are written at its close."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import HorizonMoved
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values


def test_records_come_back_as_they_were_sent(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", key=b"k", value=b"v", partition=1, headers=[("h", b"x"), ("n", None)], timestamp=1234)
        producer.send("t", key=None, value=None, partition=1)

    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 1)])
        first, second = consumer.poll()

    assert first[:7] == ("t", 1, 0, 1234, b"k", b"v", [("h", b"x"), ("n", None)])
    assert (second.key, second.value, second.headers, second.offset) == (None, None, (), 1)


def test_headers_may_come_from_an_iterator(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"v", headers=iter([("h", b"x")]))  # type: ignore[arg-type]

    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        [record] = consumer.poll()

    assert record.headers == [("h", b"x")]


def test_a_record_without_a_timestamp_has_the_stores_time(store: Store, world: World) -> None:
    with store.producer() as producer:
        producer.send("t", b"v")

    (timestamp,) = store.scan("t", columns=["timestamp"]).to_table()["timestamp"].cast(pa.int64()).to_pylist()
    assert timestamp == world.time_ms * 1000


def test_an_idempotent_record_shows_after_the_flush_and_its_future_knows_its_place(store: Store) -> None:
    producer = store.producer()
    futures = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    assert not futures[0].done()

    producer.flush()

    assert [future.result(0) for future in futures] == [("t", 0, 0), ("t", 0, 1), ("t", 0, 2)]
    assert values(store) == [b"0", b"1", b"2"]


def test_futures_know_their_offsets_between_the_rows_of_tables(store: Store) -> None:
    producer = store.producer()
    table = pa.table({"value": pa.array([b"a", b"b", b"c"], pa.binary()), "partition": pa.array([0, 0, 0])})
    before = producer.send("t", b"before", partition=0)
    producer.send_table("t", table)
    between = producer.send("t", b"between", partition=0)
    producer.send_table("t", table)
    after = producer.send("t", b"after", partition=0)

    producer.flush()

    assert [future.result(0).offset for future in (before, between, after)] == [0, 4, 8]


def test_one_key_goes_to_one_partition_and_explicit_partitions_are_kept(store: Store) -> None:
    with store.producer() as producer:
        by_key = [producer.send("t", b"v", key=b"same") for _ in range(5)]
        explicit = producer.send("t", b"v", key=b"same", partition=1)

    assert len({future.result(0).partition for future in by_key}) == 1
    assert explicit.result(0).partition == 1


def test_records_without_a_key_move_on_to_another_partition_with_each_flush(store: Store) -> None:
    producer = store.producer()
    partitions = []
    for _ in range(4):
        future = producer.send("t", b"v")
        producer.flush()
        partitions.append(future.result(0).partition)

    assert set(partitions) == {0, 1}


def test_a_table_goes_into_a_topic_of_columns(store: Store) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    store.admin.create_topic("rows", partitions=3, schema=schema, key="id")
    table = pa.table({"id": range(100), "name": [f"n{number}" for number in range(100)]}, schema=schema)

    with store.producer() as producer:
        producer.send_table("rows", table)

    read = store.scan("rows").to_table()
    assert read.sort_by("id") == table
    assert len([plan for plan in store.scan("rows").plans if plan.record_count]) == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "nowhere"}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "partition": 2}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "partition": -1}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "value": "text"}, errors.SchemaMismatch),
        ({"topic": "t", "key": 7}, errors.SchemaMismatch),
        ({"topic": "t", "timestamp": -1}, errors.SchemaMismatch),
        ({"topic": "t", "timestamp": 2**53}, errors.SchemaMismatch),
        ({"topic": "t", "headers": [("h", "text")]}, errors.SchemaMismatch),
        ({"topic": "t", "headers": [("\ud800", b"")]}, errors.SchemaMismatch),
    ],
)
def test_a_wrong_record_is_refused_at_once_and_spoils_nothing(
    store: Store, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with open_transaction(store, "tx") as producer:
        producer.send("t", b"good")
        with pytest.raises(error):
            producer.send(**arguments)
        producer.commit_transaction()

    assert values(store) == [b"good"]


def test_a_full_buffer_is_written_before_more_is_taken_in(store: Store) -> None:
    producer = store.producer(buffer_bytes=1000)
    first = producer.send("t", b"x" * 2000)
    assert not first.done()

    producer.send("t", b"y")

    assert first.result(0).offset == 0


@pytest.mark.usefixtures("files_are_objects")
def test_a_send_that_fails_for_a_full_buffer_has_not_taken_the_record_in(store: Store) -> None:
    producer = store.producer(buffer_bytes=1000)
    producer.send("t", b"x" * 2000)
    faulty(store).lose_answers("t/", lands=False)
    with pytest.raises(errors.RetriableError):
        producer.send("t", b"y")
    faulty(store).heal()

    producer.send("t", b"y")
    producer.flush()

    assert values(store) == [b"x" * 2000, b"y"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("staged", [True, False])
def test_rows_whose_upload_failed_are_not_lost_and_not_written_twice(store: Store, lands: bool, staged: bool) -> None:
    producer = open_transaction(store, "tx", staged=staged)
    for number in range(10):
        producer.send("t", b"%d" % number, key=b"%d" % number)
    faulty(store).lose_answers("t/", lands=lands)
    with pytest.raises(errors.RetriableError):
        producer.commit_transaction()
    faulty(store).heal()

    producer.commit_transaction()

    assert values(store) == [b"%d" % number for number in range(10)]


def test_a_producer_that_was_idle_for_longer_than_files_may_wait_still_writes(store: Store, world: World) -> None:
    producer = store.producer()
    producer.send("t", b"1")
    producer.flush()
    producer.flush()
    world.pass_time(30 * 24 * 3600 * 1000)
    world.process().append(AppendEntry(HorizonMoved(horizon_ms=world.time_ms - 7 * 24 * 3600 * 1000)))

    producer.send("t", b"2")
    producer.flush()

    assert values(store) == [b"1", b"2"]


def test_a_process_that_begins_with_a_producer_dates_it_by_the_store(store: Store, world: World) -> None:
    process = world.process()
    process.producer("tx").init_transactions()

    assert process.admin.describe_transaction("tx").last_update_ms == world.time_ms


def test_leaving_the_context_by_an_exception_aborts(store: Store) -> None:
    def interrupted() -> None:
        with open_transaction(store, "tx") as producer:
            producer.send("t", b"v")
            producer.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()

    assert values(store) == []
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"


def test_an_exception_that_left_the_context_is_not_hidden_by_one_of_the_abort(store: Store) -> None:
    def interrupted() -> None:
        with open_transaction(store, "tx") as producer:
            producer.send("t", b"v")
            producer.flush()
            faulty(store).lose_answers(SLOTS, lands=False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        interrupted()

    faulty(store).heal()
    assert "could not be closed" in raised.value.__notes__[0]
    assert values(store) == []


def test_closing_writes_what_an_idempotent_producer_holds_and_aborts_an_open_transaction(store: Store) -> None:
    idempotent = store.producer()
    idempotent.send("t", b"kept")
    idempotent.close()
    idempotent.close()
    transactional = open_transaction(store, "tx")
    transactional.send("t", b"dropped")
    transactional.flush()
    transactional.close()

    assert values(store) == [b"kept"]
    assert not store.admin.list_transactions(states=["Ongoing"])
