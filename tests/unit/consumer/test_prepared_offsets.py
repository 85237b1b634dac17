"""A group whose offset is prepared: its consumers wait until the transaction has ended."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.two_phase import PLACE, begun
from tests.unit.support.world import World


@pytest.mark.scenario(160)
def test_a_consumer_waits_where_its_offset_is_prepared_and_reads_on_from_there(store: Store, world: World) -> None:
    writer = store.producer()
    for partition in (0, 1):
        for number in range(10):
            writer.send("t", b"%d" % number, partition=partition)
    writer.flush()
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
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
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
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
