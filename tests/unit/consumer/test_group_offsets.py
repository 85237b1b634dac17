"""Offsets of consumer groups in transactions: when they count, who may commit them, and when they are forgotten.

Kafka writes them when they are sent, and they are pending until the marker. Here they stand in the slot that ends the
transaction, so they are pending only while it is prepared.
"""

from __future__ import annotations

import logging

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.errors import (
    InvalidRequest,
)
from eoslog.producer.producer import Producer
from eoslog.session.positions import GroupMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

FOO_0, FOO_1, BAR_0, BAR_1 = (TopicPartition(topic, partition) for topic in ("foo", "bar") for partition in (0, 1))
PLACES = [FOO_0, FOO_1, BAR_0, BAR_1]
PENDING = {FOO_1: 111, BAR_0: 201, BAR_1: 211}


@pytest.fixture
def store(world: World) -> Store:
    """The topics ``foo`` and ``bar`` with 300 rows in each partition; the group ``g`` has offsets of three of them."""
    store = world.process()
    with store.producer() as producer:
        for topic in ("foo", "bar"):
            store.admin.create_topic(topic, partitions=2)
            for number in range(600):
                producer.send(topic, b"value", partition=number % 2)
    store.admin.alter_consumer_group_offsets("g", {FOO_0: 100, FOO_1: 110, BAR_0: 200})
    return store


def sending(store: Store, offsets: dict[TopicPartition, int], name: str = "tx", group: str = "g") -> Producer:
    """A producer with a transaction that is open, and offsets in it."""
    producer = open_transaction(store, name)
    producer.send_offsets_to_transaction(offsets, group)
    return producer


def committed(store: Store, group: str = "g") -> list[int | None]:
    """What the group has committed of the four partitions, whatever a prepared transaction may still set."""
    found = store.consumer(group, isolation_level="read_uncommitted").committed(PLACES)
    return [None if (known := found[place]) is None else known.offset for place in PLACES]


def reader(store: Store) -> Consumer:
    """A consumer of the group that is no member of it, as one that checks where to go on."""
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.assign(PLACES)
    return consumer


def delete_group(store: Store, group: str, places: list[TopicPartition]) -> None:
    store.admin.delete_consumer_group(group)


def delete_offsets(store: Store, group: str, places: list[TopicPartition]) -> None:
    store.admin.delete_consumer_group_offsets(group, places)


@pytest.mark.further("Offsets and tools")
def test_offsets_in_transactions_of_several_groups_and_producers_do_not_touch_each_other(store: Store) -> None:
    producers = {
        (name, group): sending(store, {place: 7}, f"{name}-{group}", group)
        for name, place in (("a", FOO_0), ("b", BAR_1))
        for group in ("g", "h")
    }

    producers["a", "g"].commit_transaction()
    producers["a", "h"].abort_transaction()
    producers["b", "g"].abort_transaction()
    producers["b", "h"].commit_transaction()

    assert committed(store, "g") == [7, 110, 200, None]
    assert committed(store, "h") == [None, None, None, 7]


# Who may commit


@pytest.mark.parametrize("group", ["m", GroupMetadata("m")])
def test_offsets_of_a_group_with_members_are_warned_of_once_if_they_name_no_member(
    store: Store, world: World, group: str | GroupMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    def send_offsets(given: str | GroupMetadata) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "eoslog"), store.producer("tx") as producer:
            producer.init_transactions()
            for _ in range(2):
                producer.begin_transaction()
                producer.send_offsets_to_transaction({FOO_0: 1}, given)
                producer.commit_transaction()
        return len([each for each in caplog.records if "consumer.group_metadata()" in each.getMessage()])

    counts = [send_offsets(group)]
    member = world.process().consumer("m")
    member.subscribe("foo")
    member.poll(0)
    counts.append(send_offsets(member.group_metadata()))
    counts += [send_offsets(group), send_offsets(group)]

    assert counts == [0, 0, 1, 0]


# What is forgotten


@pytest.mark.further("Offsets and tools")
def test_an_offset_that_is_committed_after_a_deletion_counts(store: Store) -> None:
    producer = sending(store, PENDING)
    delete_group(store, "g", PLACES)

    producer.commit_transaction()

    assert committed(store) == [None, 111, 201, 211]


@pytest.mark.further("Offsets and tools")
def test_a_pending_offset_blocks_no_other_group_and_no_other_partition(store: Store) -> None:
    producer = sending(store, {FOO_1: 111})
    producer.prepare_transaction()
    other = store.consumer("h", auto_offset_reset="earliest")
    other.assign([FOO_1])

    assert other.position(FOO_1) == 0
    assert reader(store).position(BAR_0) == 200
    by_hand = reader(store)
    by_hand.seek(FOO_1, 50)
    assert by_hand.position(FOO_1) == 50


def test_a_list_of_partitions_is_no_mapping_of_offsets(store: Store) -> None:
    given = [TopicPartition("foo", 0)]
    with store.producer("tx") as producer, store.consumer("g") as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        consumer.assign(given)

        for call in (lambda: producer.send_offsets_to_transaction(given, "g"), lambda: consumer.commit(given)):  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="offsets are given by partition, such as"):
                call()
        producer.abort_transaction()
