"""A transaction uses the topics of the last one again, unless they have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from eoslog import Producer, Store
from eoslog.errors import UnknownTopicOrPartition
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

T = TypeVar("T")


class CountingEnvironment(Environment):
    """Counts the steps in threads of the library."""

    steps = 0

    def uninterrupted(self, step: Callable[[], T]) -> T:
        self.steps += 1
        return super().uninterrupted(step)


@pytest.fixture
def counting() -> CountingEnvironment:
    return CountingEnvironment()


@pytest.fixture
def store(memory_store: ObjectStore, counting: CountingEnvironment) -> Store:
    store = Store(memory_store, counting)
    store.admin.create_topic("t")
    return store


@pytest.fixture
def producer(store: Store) -> Producer:
    """A producer that has committed a row to ``t``."""
    producer = store.producer("tx")
    producer.init_transactions()
    commit(producer, b"first")
    return producer


def commit(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", value)
    producer.commit_transaction()


def test_the_next_transaction_finds_the_topic_without_a_step(producer: Producer, counting: CountingEnvironment) -> None:
    producer.begin_transaction()
    before = counting.steps

    producer.send("t", b"second")

    assert counting.steps == before


def test_the_next_transaction_writes_to_a_topic_that_was_created_again(
    producer: Producer, store: Store, memory_store: ObjectStore
) -> None:
    other = Store(memory_store, Environment())
    other.admin.delete_topic("t")
    other.admin.create_topic("t")
    store.read(lambda state, slot: None)

    commit(producer, b"second")

    assert other.scan("t", columns=["value"]).to_table()["value"].to_pylist() == [b"second"]


def test_the_next_transaction_does_not_write_to_a_deleted_topic(
    producer: Producer, store: Store, memory_store: ObjectStore
) -> None:
    Store(memory_store, Environment()).admin.delete_topic("t")
    store.read(lambda state, slot: None)
    producer.begin_transaction()

    with pytest.raises(UnknownTopicOrPartition):
        producer.send("t", b"second")


def test_the_next_transaction_writes_to_partitions_that_were_added(
    producer: Producer, store: Store, memory_store: ObjectStore
) -> None:
    other = Store(memory_store, Environment())
    other.admin.create_partitions("t", 3)
    store.read(lambda state, slot: None)
    producer.begin_transaction()

    producer.send("t", b"second", partition=2)
    producer.commit_transaction()

    assert other.scan("t", partitions=[2], columns=["value"]).to_table()["value"].to_pylist() == [b"second"]
