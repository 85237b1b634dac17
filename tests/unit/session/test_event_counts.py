"""Counts of events: of the log once for all processes, and of the calls of one process."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import TopicPartition
from eoslog.errors import OutOfOrderSequence, ProducerFenced
from eoslog.producer.producer_batches import ProducerBatch, append_many
from eoslog.state.transaction_requests import InitProducerId
from eoslog.store import Store
from tests.unit.support.transactions import begun, open_transaction
from tests.unit.support.world import World


def test_ended_transactions_are_counted_by_outcome_and_reason_in_each_process(store: Store, world: World) -> None:
    other = world.process()
    other.metrics()
    begun(store, "committed", 0).commit_transaction()
    begun(store, "aborted", 0).abort_transaction()
    begun(store, "fenced", 0)
    begun(store, "fenced", 0).commit_transaction()
    begun(store, "by an administrator", 0)
    store.admin.abort_transaction("by an administrator")
    begun(store, "late", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    store.overdue_transactions.abort()

    for process in (store, other):
        found = process.metrics()
        assert found.transactions_ended == {
            "commit": {"client": 2},
            "abort": {"client": 1, "timeout": 1, "fence": 1, "admin": 1},
        }
        assert found.inits == 6


def test_what_happened_before_a_process_opened_the_log_does_not_count(store: Store, world: World) -> None:
    begun(store, "before", 0).commit_transaction()
    other = world.process()
    other.metrics()

    begun(store, "after", 0).commit_transaction()

    found = other.metrics()
    assert (found.transactions_ended["commit"], found.inits, found.rows_in) == ({"client": 1}, 1, {"t": 1})


def test_a_record_counts_once_though_the_log_is_opened_again(store: Store, world: World) -> None:
    other = world.process()
    other.metrics()
    begun(store, "one", 0).commit_transaction()
    assert other.metrics().transactions_ended["commit"] == {"client": 1}

    begun(store, "two", 0).commit_transaction()
    other.log.replica.reset()
    other.log.replica.open()

    assert other.metrics().transactions_ended["commit"] == {"client": 2}


@pytest.mark.parametrize("staged", [False, True])
def test_appended_rows_are_counted_by_topic_with_the_bytes_of_their_files(store: Store, staged: bool) -> None:
    store.admin.create_topic("quiet")
    producer = open_transaction(store, "tx", staged=staged)
    for _ in range(3):
        producer.send("t", b"1", partition=0)
    producer.commit_transaction()

    found = store.metrics()

    assert found.rows_in == {"t": 3, "quiet": 0}
    assert found.bytes_in == found.topic_bytes
    assert found.bytes_in["t"] > 0
    sent = producer.metrics()
    assert (sent["record-send-total"], sent["outgoing-byte-total"]) == (3, found.bytes_in["t"])


def test_the_rows_of_a_staged_transaction_count_at_its_prepare(store: Store) -> None:
    producer = open_transaction(store, "tx", staged=True)
    producer.send("t", b"1")
    producer.prepare_transaction()
    assert producer.metrics()["record-send-total"] == 1

    producer.commit_transaction()

    assert producer.metrics()["record-send-total"] == 1
    assert store.metrics().rows_in == {"t": 1}


def test_rows_that_scans_and_consumers_read_are_counted(store: Store, world: World) -> None:
    with store.producer() as producer:
        for _ in range(3):
            producer.send("t", b"1", partition=0)
    reader = world.process()
    assert reader.metrics().rows_out == {}

    table = reader.scan("t").to_table()
    assert reader.metrics().rows_out == {"t": 3}
    assert reader.metrics().bytes_out == {"t": table.nbytes}
    with reader.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert len(consumer.poll()) == 3

    assert reader.metrics().rows_out == {"t": 6}
    assert store.metrics().rows_out == {}


def test_refused_batches_and_duplicates_are_counted(store: Store) -> None:
    identity = store.append(InitProducerId(None, timeout_ms=60_000, time_ms=store.now_ms())).identity

    def append(base_sequence: int) -> object:
        rows = pa.table({"value": pa.array([b"v"], pa.binary())})
        (answer,) = append_many(
            store,
            [
                ProducerBatch(
                    topic="t",
                    partition=0,
                    rows=rows,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=base_sequence,
                )
            ],
        )
        return answer

    first = append(0)
    assert store.metrics().duplicate_batches == 0
    assert append(0) == first
    assert isinstance(append(7), OutOfOrderSequence)

    found = store.metrics()
    assert (found.duplicate_batches, found.append_errors) == (1, {"OutOfOrderSequence": 1})
    assert found.rows_in == {"t": 1}


def test_a_batch_that_a_producer_repeats_is_a_duplicate(store: Store, world: World) -> None:
    with store.producer() as producer:
        producer.send("t", b"1", partition=0)
        producer.flush()
        producer._sender._in_flight._sequences.clear()
        producer.send("t", b"1", partition=0)
        producer.flush()

    assert store.metrics().duplicate_batches == 1


def test_errors_of_requests_are_counted_by_name(store: Store) -> None:
    zombie = begun(store, "tx", 0)
    begun(store, "tx", 0)

    with pytest.raises(ProducerFenced):
        zombie.commit_transaction()

    assert store.metrics().append_errors == {"ProducerFenced": 1}


def test_end_offsets_and_members_are_those_of_the_state(store: Store) -> None:
    begun(store, "tx", 0).commit_transaction()
    with store.consumer("g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll()

        found = store.metrics()

    assert found.end_offsets == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 0}
    assert found.group_members == {"g": 1}
    assert store.metrics().group_members == {"g": 0}
