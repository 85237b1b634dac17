"""The producers of a partition: how they are described, and when they are forgotten."""

from __future__ import annotations

import pytest

from eoslog.errors import UnknownTopicOrPartition
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.support.partitions import write
from tests.unit.support.world import World


@pytest.mark.scenario(69)
def test_a_producer_is_described_with_its_epoch_its_sequence_and_its_open_transaction(store: Store) -> None:
    producer = write(store, "t", "commit", "open")
    producer.send("t", b"second", partition=0)
    producer.flush()

    (known,) = store.admin.describe_producers("t", 0)

    assert (known.producer_id, known.producer_epoch) == (producer.producer_id, producer.producer_epoch)
    assert (known.last_sequence, known.current_transaction_start_offset) == (1, 2)
    assert known.last_timestamp == store.now_ms()
    producer.commit_transaction()
    (known,) = store.admin.describe_producers("t", 0)
    assert (known.producer_epoch, known.last_sequence, known.current_transaction_start_offset) == (2, -1, -1)


@pytest.mark.scenario(69)
def test_an_idempotent_producer_is_described_without_a_transaction(store: Store) -> None:
    producer = store.producer()
    for _ in range(2):
        producer.send("t", b"v", partition=1)
        producer.flush()

    (known,) = store.admin.describe_producers("t", 1)

    assert store.admin.describe_producers("t", 0) == []
    assert (known.producer_epoch, known.last_sequence, known.current_transaction_start_offset) == (0, 1, -1)


@pytest.mark.scenario(61)
def test_a_producer_is_forgotten_after_its_time_and_not_before(store: Store, world: World) -> None:
    producer = store.producer()
    producer.send("t", b"v", partition=0)
    producer.flush()
    coordinator = Coordinator(world.process(), producer_id_expiration_ms=200)
    world.pass_time(199)
    coordinator.expire()
    assert len(store.admin.describe_producers("t", 0)) == 1

    world.pass_time(1)
    coordinator.expire()

    assert store.admin.describe_producers("t", 0) == []


@pytest.mark.scenario(61)
def test_expiry_passes_over_topics_that_are_gone(store: Store, world: World) -> None:
    producer = store.producer()
    producer.send("t", b"v", partition=0)
    producer.flush()
    store.admin.delete_topic("t")
    world.pass_time(200)

    expired = Coordinator(world.process(), producer_id_expiration_ms=200).expire()

    assert expired is not None
    assert [each.producer_id for each in expired.producers] == [producer.producer_id]
    with pytest.raises(UnknownTopicOrPartition):
        store.admin.describe_producers("t", 0)
