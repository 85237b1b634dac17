"""The object store does not answer for a while (Kafka: brokers are down): calls end in time, and nothing is torn."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    DeliveryTimedOut,
    RequestTimedOut,
    RetriableError,
)
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.conformance.end_to_end import Stage, send, transaction
from tests.unit.support.world import CALLS, SLOTS, faulty

MAX_BLOCK_MS = 3_000
PLACE = TopicPartition("topic1", 0)


def in_transaction(stage: Stage, store: Store) -> Producer:
    """A producer with a row in the log and another one that is not flushed."""
    producer = stage.producer(store=store, max_block_ms=MAX_BLOCK_MS, transaction_timeout_ms=900_000)
    producer.begin_transaction()
    send(producer, "1", partition=0)
    producer.flush()
    send(producer, "2", partition=0)
    return producer


@pytest.mark.scenario(127, 139)
def test_offsets_are_accepted_in_an_outage_and_their_commit_times_out(
    stage: Stage,
) -> None:
    """In Kafka it is the offsets' own call that times out; here they make no request before the commit."""
    store = stage.process()
    producer = in_transaction(stage, store)
    faulty(store).go_down()
    producer.send_offsets_to_transaction({PLACE: 110}, "g")

    with pytest.raises(RequestTimedOut):
        producer.commit_transaction()

    assert stage.cold().consumer("g").committed([PLACE]) == {PLACE: None}
    faulty(store).heal()
    producer.commit_transaction()
    committed = stage.cold().consumer("g").committed([PLACE])[PLACE]
    assert committed is not None
    assert committed.offset == 110


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.scenario(132, 139)
@pytest.mark.parametrize(("lost", "lands"), [(SLOTS, True), (SLOTS, False), ("topic1/", False)])
def test_after_a_failed_send_the_abort_raises_the_epoch_only(stage: Stage, lost: str, lands: bool) -> None:
    store = stage.process()
    producer = stage.producer(store=store, max_block_ms=MAX_BLOCK_MS, delivery_timeout_ms=MAX_BLOCK_MS)
    transaction(producer, "commit", "4", partition=0)
    producer_id, epoch = producer.producer_id, producer.producer_epoch
    producer.begin_transaction()
    send(producer, "2", topic="topic2", partition=0)
    producer.flush()
    failed = producer.send("topic1", b"3", partition=0)
    faulty(store).lose_answers(lost, lands=lands)
    with pytest.raises(DeliveryTimedOut):
        producer.flush()
    faulty(store).heal()
    assert isinstance(failed.exception(0), DeliveryTimedOut)

    producer.abort_transaction()

    assert (producer.producer_id, producer.producer_epoch) == (producer_id, epoch + 1)
    transaction(producer, "commit", "5", "6", partition=0)
    transaction(producer, "commit", "7", "8", topic="topic2", partition=0)
    assert stage.shown() == [b"4", b"5", b"6", b"7", b"8"]
    (known,) = stage.cold().admin.describe_producers("topic2", 0)
    assert (known.producer_id, known.producer_epoch) == (producer_id, producer.producer_epoch)


@pytest.mark.further("End to end")
def test_outages_between_any_two_steps_of_transactions_lose_and_double_nothing(stage: Stage) -> None:
    """The store falls silent before or after it took a write, and comes back while the call waits."""
    store = stage.process()
    stage.world.while_asleep = faulty(store).heal
    producer = stage.producer(store=store)
    expected = []
    for number in range(24):
        prefix, lands = ((SLOTS, True), (SLOTS, False), ("topic", True), ("topic", False))[number % 4]
        outcome = ("commit", "commit", "abort")[number % 3]
        producer.begin_transaction()
        if number % 2:
            faulty(store).lose_answers(prefix, lands=lands)
        send(producer, f"{number:02}", partition=0)
        producer.flush()
        send(producer, f"{number:02}'", topic="topic2", partition=0)
        if not number % 2:
            faulty(store).lose_answers(prefix, lands=lands)
        CALLS[outcome](producer)
        faulty(store).heal()
        if outcome == "commit":
            expected += [b"%02d" % number, b"%02d'" % number]

    assert stage.shown() == sorted(expected)
    assert stage.world.slept_ms > 0


@pytest.mark.further("End to end")
def test_a_consumer_reads_on_where_it_stood_when_the_store_answers_again(stage: Stage) -> None:
    producer = stage.producer()
    transaction(producer, "commit", "1", partition=0)
    store = stage.cold()
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([PLACE])
        assert [record.value for record in consumer.poll(0)] == [b"1"]
        transaction(producer, "abort", "2", partition=0)
        transaction(producer, "commit", "3", partition=0)
        faulty(store).go_down()
        with pytest.raises(RetriableError):
            consumer.poll(0)
        faulty(store).heal()

        assert [record.value for record in consumer.poll(0)] == [b"3"]
