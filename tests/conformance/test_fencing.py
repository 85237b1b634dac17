"""Producers that are replaced, time out or are forgotten: what they are told, and what is shown of them."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
    RequestTimedOut,
    TransactionalIdNotFound,
)
from eoslog.maintenance.coordinator import Coordinator
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
