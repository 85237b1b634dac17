"""Producers that are replaced, time out or are forgotten: what they are told, and what is shown of them."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    TransactionalIdNotFound,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.conformance.end_to_end import PLACES, Stage, send, transaction
from tests.unit.support.world import CALLS, SLOTS, faulty

PLACE = TopicPartition("topic1", 0)
GROUP = "g"


def producer_ids(store: Store) -> set[int]:
    """Those that any partition knows."""
    return {
        each.producer_id for topic, partition in PLACES for each in store.admin.describe_producers(topic, partition)
    }


def replaced(stage: Stage, *, flushed: bool = True) -> Producer:
    """A producer with an open transaction, whose id another one takes over and writes under."""
    first = stage.producer()
    transaction(first, "commit", "before", partition=1)
    first.begin_transaction()
    if flushed:
        send(first, "1", topic="topic1", partition=0)
        send(first, "3", topic="topic2", partition=0)
        first.flush()
    second = stage.producer()
    second.begin_transaction()
    send(second, "2", topic="topic1", partition=0)
    send(second, "4", topic="topic2", partition=0)
    second.commit_transaction()
    return first


@pytest.mark.scenario(125, 139)
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_the_second_producer_of_an_id_fences_the_first_at_its_end(stage: Stage, call: str) -> None:
    first = replaced(stage)

    with pytest.raises(ProducerFenced):
        CALLS[call](first)

    assert stage.shown() == [b"2", b"4", b"before"]


@pytest.mark.scenario(125, 139)
def test_the_second_producer_of_an_id_fences_the_offsets_of_the_first(stage: Stage) -> None:
    """Kafka's client is told when it sends the offsets, eoslog's when it commits: until then they go nowhere."""
    first = replaced(stage)
    first.send_offsets_to_transaction({PLACE: 110}, GROUP)

    with pytest.raises(ProducerFenced):
        first.commit_transaction()

    assert stage.cold().consumer(GROUP).committed([PLACE]) == {PLACE: None}
    assert stage.shown() == [b"2", b"4", b"before"]


@pytest.mark.scenario(125, 139)
@pytest.mark.parametrize("flushed", [True, False], ids=["in a transaction", "at its first batch"])
@pytest.mark.parametrize("partition", [0, 3], ids=["where both wrote", "where nobody wrote"])
def test_the_second_producer_of_an_id_fences_the_first_when_it_writes(
    stage: Stage, flushed: bool, partition: int
) -> None:
    first = replaced(stage, flushed=flushed)
    future = first.send("topic1", b"zombie", partition=partition)

    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        first.flush()

    assert isinstance(future.exception(0), (ProducerFenced, InvalidProducerEpoch))
    assert stage.shown() == [b"2", b"4", b"before"]
    assert b"zombie" not in stage.shown("read_uncommitted")


@pytest.mark.scenario(128, 139)
@pytest.mark.parametrize("call", ["send", "commit"])
def test_a_producer_that_continues_after_a_time_out_is_refused(stage: Stage, call: str) -> None:
    producer = stage.producer(transaction_timeout_ms=300)
    producer.begin_transaction()
    send(producer, "1", partition=0)
    producer.flush()
    stage.world.pass_time(600)
    Coordinator(stage.process()).abort_timed_out_transactions()

    if call == "send":
        future = producer.send("topic1", b"2", partition=0)
        with pytest.raises(InvalidProducerEpoch):
            producer.flush()
        assert isinstance(future.exception(0), InvalidProducerEpoch)
    with pytest.raises((TransactionAborted, TransactionAbortable)):
        producer.commit_transaction()

    assert stage.shown("read_uncommitted") == [b"1"]
    assert stage.shown() == []
    description = stage.cold().admin.describe_transaction("tx")
    assert (description.transaction_state, description.topic_partitions) == ("COMPLETE_ABORT", ())


@pytest.mark.scenario(128, 139)
def test_a_reader_alone_ends_what_timed_out_and_is_shown_what_it_held_back(stage: Stage) -> None:
    dead = stage.producer("dead", transaction_timeout_ms=300)
    dead.begin_transaction()
    send(dead, "dead", partition=0)
    dead.flush()
    transaction(stage.producer(), "commit", "held back", partition=0)
    stage.world.pass_time(600)

    with stage.cold().consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([PLACE])
        assert [record.value for record in consumer.poll(1.0)] == [b"held back"]

    send(dead, "late", partition=0)
    with pytest.raises(InvalidProducerEpoch):
        dead.flush()


@pytest.mark.scenario(133)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("open_transaction", [True, False])
def test_an_init_that_fails_fences_nobody_for_good(stage: Stage, open_transaction: bool, lands: bool) -> None:
    first = stage.producer()
    transaction(first, "commit", "1")
    epoch = first.producer_epoch
    if open_transaction:
        first.begin_transaction()
        send(first, "lost")
        first.flush()
    broken = stage.process()
    second = broken.producer("tx", max_block_ms=10_000)
    faulty(broken).lose_answers(SLOTS, lands=lands)
    with pytest.raises(RequestTimedOut):
        second.init_transactions()
    second.close()

    third = stage.producer()
    transaction(third, "commit", "2")

    assert third.producer_id == first.producer_id
    assert third.producer_epoch > epoch
    if not open_transaction:
        first.begin_transaction()
    send(first, "zombie")
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        first.flush()
    assert stage.shown() == [b"1", b"2"]


@pytest.mark.scenario(133)
def test_while_an_init_fails_the_producer_that_it_could_not_fence_goes_on(stage: Stage) -> None:
    first = stage.producer()
    broken = stage.process()
    second = broken.producer("tx", max_block_ms=10_000)
    faulty(broken).go_down()
    with pytest.raises(RequestTimedOut):
        second.init_transactions()

    transaction(first, "commit", "1")

    assert stage.shown() == [b"1"]


@pytest.mark.scenario(135, 139)
@pytest.mark.parametrize("call", ["flush", "commit"])
def test_a_producer_whose_id_expired_is_told_for_ever_and_a_new_one_works(stage: Stage, call: str) -> None:
    producer = stage.producer()
    transaction(producer, "commit", "1")
    stage.world.pass_time(10_000)
    Coordinator(stage.process(), transactional_id_expiration_ms=10_000).expire_transactional_ids()
    with pytest.raises(TransactionalIdNotFound):
        stage.cold().admin.describe_transaction("tx")
    producer.begin_transaction()
    future = producer.send("topic1", b"refused")

    with pytest.raises(InvalidProducerIdMapping):
        producer.flush() if call == "flush" else producer.commit_transaction()

    assert isinstance(future.exception(0), InvalidProducerIdMapping)
    for again in ("abort", "begin", "commit", "send"):
        with pytest.raises(InvalidProducerIdMapping):
            CALLS[again](producer)
    producer.close()
    transaction(stage.producer(), "commit", "2")
    assert stage.shown() == [b"1", b"2"]


@pytest.mark.scenario(135, 138, 139)
def test_a_transactional_id_that_lives_keeps_its_producer_id_beyond_the_time_of_producer_ids(stage: Stage) -> None:
    """In Kafka the partitions forget the producer id, and the next transaction begins as if it were new to them."""
    producer = stage.producer()
    transaction(producer, "commit", "1", partition=0)
    before = (producer.producer_id, producer.producer_epoch)
    stage.world.pass_time(10_000)
    assert Coordinator(stage.process(), producer_id_expiration_ms=5_000).expire_producer_ids() == []

    transaction(producer, "commit", "2", partition=0)
    restarted = stage.producer()
    transaction(restarted, "commit", "3", partition=0)

    assert restarted.producer_id == before[0]
    assert restarted.producer_epoch >= before[1] + 2
    assert stage.shown() == [b"1", b"2", b"3"]


@pytest.mark.scenario(138)
def test_an_expired_transactional_id_gets_another_producer_id(stage: Stage) -> None:
    """In Kafka the partitions know the old producer id for longer; here nothing can be written under it any more."""
    producer = stage.producer()
    transaction(producer, "abort", "aborted", partition=0)
    plain = stage.process().producer()
    plain.send("topic1", b"plain", partition=0)
    plain.flush()
    stage.world.pass_time(10_000)
    Coordinator(stage.process(), transactional_id_expiration_ms=10_000).expire()

    assert producer_ids(stage.cold()) == {plain.producer_id}
    again = stage.producer()
    transaction(again, "commit", "1", partition=0)

    assert again.producer_id != producer.producer_id
    assert producer_ids(stage.cold()) == {plain.producer_id, again.producer_id}
    assert stage.shown() == [b"1", b"plain"]


@pytest.mark.scenario(138)
def test_producer_ids_without_transactions_expire_by_a_time_that_can_be_shortened(stage: Stage) -> None:
    producer = stage.process().producer()
    producer.send("topic1", b"1", partition=0)
    producer.flush()
    stage.world.pass_time(10_000)
    Coordinator(stage.process()).expire()
    assert producer_ids(stage.cold()) == {producer.producer_id}

    Coordinator(stage.process(), producer_id_expiration_ms=10_000).expire()

    assert producer_ids(stage.cold()) == set()
    with stage.process().producer() as another:
        another.send("topic1", b"2", partition=0)
        another.flush()
        assert producer_ids(stage.cold()) == {another.producer_id}
    producer.send("topic1", b"3", partition=0)
    producer.flush()
    assert stage.shown() == [b"1", b"2", b"3"]


@pytest.mark.scenario(138)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_no_id_expires_while_its_transaction_is_open(stage: Stage, outcome: str) -> None:
    producer = stage.producer(transaction_timeout_ms=900_000)
    producer.begin_transaction()
    send(producer, "1", partition=0)
    producer.flush()
    stage.world.pass_time(100_000)
    Coordinator(stage.process(), transactional_id_expiration_ms=1, producer_id_expiration_ms=1).expire()
    assert producer_ids(stage.cold()) == {producer.producer_id}

    CALLS[outcome](producer)

    assert stage.shown() == ([b"1"] if outcome == "commit" else [])


@pytest.mark.further("End to end")
def test_a_chain_of_producers_of_one_id_leaves_the_rows_of_the_last_alone(stage: Stage) -> None:
    chain = []
    for number in range(5):
        producer = stage.producer()
        producer.begin_transaction()
        for partition in range(4):
            send(producer, f"{number}", topic="topic2", partition=partition)
        producer.flush()
        chain.append(producer)

    for producer in chain[:-1]:
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
    chain[-1].commit_transaction()

    assert stage.shown() == [b"4"] * 4
    assert len(stage.shown("read_uncommitted")) == 20


@pytest.mark.further("End to end")
def test_a_delayed_write_after_the_abort_hangs_nothing_and_is_not_in_the_next_transaction(stage: Stage) -> None:
    """What KIP-890 is for: the transaction was aborted by others, and its producer's batch arrives afterwards."""
    producer = stage.producer()
    producer.begin_transaction()
    send(producer, "in time", partition=0)
    producer.flush()
    send(producer, "delayed", partition=0)
    send(producer, "delayed", partition=1)
    stage.process().admin.abort_transaction("tx")
    with pytest.raises(InvalidProducerEpoch):
        producer.flush()
    producer.abort_transaction()

    transaction(producer, "commit", "next", partition=0)

    store = stage.cold()
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("topic1"))
    assert stage.shown() == [b"next"]
    assert stage.shown("read_uncommitted") == [b"in time", b"next"]
