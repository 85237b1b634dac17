"""What an error does to a producer: it ends a transaction, the producer, or nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.world import SLOTS, World, faulty, values


def test_a_transaction_with_rows_for_a_topic_deleted_meanwhile_can_only_be_aborted(store: Store, world: World) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"old")
    other = world.process()
    other.admin.delete_topic("t")
    other.admin.create_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.flush()
    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"new")
    producer.commit_transaction()

    assert values(store) == [b"new"]
    assert isinstance(future.exception(0), errors.UnknownTopicOrPartition)


def test_a_refused_write_ends_the_transaction_and_not_the_producer(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    faulty(store).deny("t/")
    with pytest.raises(errors.StoreAccessDenied):
        producer.commit_transaction()
    faulty(store).heal()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()

    assert values(store) == [b"2"]


def test_an_abort_ends_the_futures_of_records_that_were_not_written(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"v")

    producer.abort_transaction()

    assert isinstance(future.exception(0), errors.TransactionAborted)


@pytest.mark.parametrize("denied", ["t/", SLOTS])
def test_without_a_transaction_a_refused_write_fails_the_rows_and_not_the_producer(store: Store, denied: str) -> None:
    """The flush tells it of rows that nobody waits for, and no later one writes them."""
    producer = store.producer()
    producer.send("t", b"0", partition=0)
    producer.flush()
    producer.send_table("t", pa.table({"value": [b"1"]}))
    future = producer.send("t", b"2", partition=0)
    faulty(store).deny(denied)
    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()
    faulty(store).heal()

    after = [producer.send("t", b"%d" % number, partition=0) for number in (3, 4)]
    producer.flush()

    assert isinstance(future.exception(0), errors.StoreAccessDenied)
    assert [each.result(0).offset for each in after] == [1, 2]
    assert values(store) == [b"0", b"3", b"4"]


def test_without_a_transaction_rows_for_a_topic_deleted_meanwhile_fail_and_the_producer_goes_on(
    store: Store, world: World
) -> None:
    producer = store.producer()
    future = producer.send("t", b"old")
    other = world.process()
    other.admin.delete_topic("t")
    other.admin.create_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.flush()

    producer.send("t", b"new")
    producer.close()

    assert isinstance(future.exception(0), errors.UnknownTopicOrPartition)
    assert values(store) == [b"new"]
