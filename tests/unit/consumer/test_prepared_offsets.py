"""A group whose offset is prepared, or added to a transaction: its consumers wait until the transaction has ended."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.session.positions import group_offsets
from eoslog.state.end_requests import EndTransaction, end_request
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import AddedToTransaction
from eoslog.state.transaction_requests import AddToTransaction, InitProducerId
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.two_phase import PLACE, begun
from tests.unit.support.world import World


@pytest.mark.scenario(160)
def test_a_consumer_waits_where_its_offset_is_prepared_and_reads_on_from_there(store: Store, world: World) -> None:
    writer = store.producer()
    for partition in (0, 1):
        for number in range(10):
            writer.send("t", b"%d" % number, partition=partition)
    writer.flush()
    producer = open_transaction(store, "tx", staged=True)
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    prepared = producer.prepare_transaction()
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.assign([PLACE, TopicPartition("t", 1)])

    assert {record.partition for record in consumer.poll(timeout=0)} == {1}
    with pytest.raises(errors.UnstableOffsetCommit):
        consumer.position(PLACE)
    assert set(consumer.lag()) == {TopicPartition("t", 1)}
    producer.complete_transaction(prepared)

    assert [record.offset for record in consumer.poll(timeout=0)] == [7, 8, 9]


def test_a_committed_offset_that_a_prepared_transaction_may_change_is_refused(store: Store) -> None:
    """Else it would read and commit again what the prepared transaction has read."""
    producer = open_transaction(store, "tx", staged=True)
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    prepared = producer.prepare_transaction()
    other = TopicPartition("t", 1)

    with pytest.raises(errors.UnstableOffsetCommit, match="t-0"):
        store.consumer("g").committed([other, PLACE])

    assert store.consumer("g").committed([other]) == {other: None}
    assert store.consumer("g", isolation_level="read_uncommitted").committed([PLACE]) == {PLACE: None}
    producer.complete_transaction(prepared)
    assert store.consumer("g").committed([PLACE])[PLACE].offset == 7  # type: ignore[union-attr]


def test_a_consumer_that_seeks_does_not_wait(store: Store, world: World) -> None:
    producer = begun(store, staged=True)
    producer.prepare_transaction()
    consumer = world.process().consumer("g")
    consumer.assign([PLACE])

    consumer.seek_to_beginning()

    assert consumer.position(PLACE) == 0


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_consumer_that_waits_for_a_prepared_offset_aborts_the_transaction_past_its_time_out(
    store: Store, world: World, isolation_level: str
) -> None:
    producer = begun(store, staged=True, prepared_timeout_ms=5_000)
    producer.prepare_transaction()
    consumer = world.process().consumer("g", auto_offset_reset="earliest", isolation_level=isolation_level)
    consumer.assign([PLACE])
    consumer.poll(timeout=0)
    world.pass_time(5_001)

    consumer.poll(timeout=1)

    assert consumer.position(PLACE) == 0
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"


def added(store: Store, offset: int) -> ProducerIdentity:
    """A transaction to which a client of Kafka's protocol has added the offset of a partition."""
    identity: ProducerIdentity = store.append(InitProducerId("tx", 5_000, store.now_ms())).identity

    def entry(state: StoreState) -> AddedToTransaction:
        offsets = group_offsets(state, {PLACE: offset}, "g")
        return AddedToTransaction(
            transactional_id="tx", **identity._asdict(), offsets=(offsets,), time_ms=store.now_ms()
        )

    store.append(AddToTransaction(store.read(lambda state, slot: entry(state))))
    return identity


@pytest.mark.parametrize("asks", ["position", "committed"])
def test_an_offset_of_an_open_transaction_is_not_known_until_its_end_or_its_timeout(
    store: Store, world: World, asks: str
) -> None:
    added(store, 7)
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.assign([PLACE])

    with pytest.raises(errors.UnstableOffsetCommit, match="open transaction"):
        getattr(consumer, asks)(PLACE)
    world.pass_time(10_000)

    assert getattr(consumer, asks)(PLACE) == (0 if asks == "position" else None)


def test_a_consumer_reads_on_from_the_offset_of_a_committed_transaction(store: Store, world: World) -> None:
    writer = store.producer()
    for number in range(10):
        writer.send("t", b"%d" % number, partition=0)
    writer.flush()
    identity = added(store, 7)
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.assign([PLACE])
    assert consumer.poll(timeout=0) == []

    store.append(EndTransaction(end_request("tx", identity, "commit", keeps_epoch=True, time_ms=store.now_ms())))

    assert [record.offset for record in consumer.poll(timeout=0)] == [7, 8, 9]
