"""Who its group has left behind commits nothing, neither offsets nor transactions with offsets."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, T1, member, members, send
from tests.unit.support.world import World


def test_an_evicted_member_joins_anew_and_goes_on_from_the_committed_offsets(store: Store, world: World) -> None:
    send(store, b"1", b"2", b"3")
    slow = member(world, max_poll_records=1)
    slow.commit({T0: 1})
    first_id = slow.group_metadata().member_id
    other = member(world)
    world.pass_time(60_000)
    other.poll(0)
    assert members(store) == {other.group_metadata().member_id}
    other.close()

    assert [record.value for record in slow.poll(0)] == [b"2"]
    assert slow.group_metadata().member_id not in ("", first_id)
    assert slow.assignment() == {T0, T1}


def test_a_zombie_cannot_commit_offsets(store: Store, world: World) -> None:
    zombie = member(world)
    world.pass_time(60_000)
    alive = member(world)
    assert alive.assignment() == {T0, T1}

    with pytest.raises(errors.UnknownMember):
        zombie.commit({T0: 5})
    assert alive.committed([T0]) == {T0: None}


def test_a_member_of_an_older_generation_cannot_commit_before_it_polls(store: Store, world: World) -> None:
    first = member(world)
    second = member(world)
    with pytest.raises(errors.IllegalGeneration):
        first.commit({T0: 5})

    first.poll(0)
    first.commit({next(iter(first.assignment())): 5})

    assert first.group_metadata().generation == second.group_metadata().generation


@pytest.mark.parametrize("evicted", [True, False])
def test_a_transaction_of_an_evicted_consumer_can_only_be_aborted(store: Store, world: World, evicted: bool) -> None:
    zombie = member(world)
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({T0: 5}, zombie.group_metadata())
    if evicted:
        world.pass_time(50_000)
    member(world)

    with pytest.raises((errors.IllegalGeneration, errors.UnknownMember)):
        producer.commit_transaction()
    producer.abort_transaction()

    assert store.scan("t").record_count == 0
    assert store.consumer("g").committed([T0]) == {T0: None}


@pytest.mark.parametrize("newer", [T0, T1])
def test_offsets_of_an_earlier_generation_are_refused_beside_later_ones(
    store: Store, world: World, newer: TopicPartition
) -> None:
    """Between the two another member may have read the same records, committed them, and left."""
    consumer = member(world)
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({T0: 5}, consumer.group_metadata())
    other = member(world)
    consumer.poll(0)
    other.close()
    consumer.poll(0)
    producer.send_offsets_to_transaction({newer: 6}, consumer.group_metadata())

    with pytest.raises(errors.IllegalGeneration):
        producer.commit_transaction()
    producer.abort_transaction()

    assert store.scan("t").record_count == 0
    assert store.consumer("g").committed([T0, T1]) == {T0: None, T1: None}


@pytest.mark.parametrize("staged", [False, True])
def test_offsets_of_a_topic_are_not_taken_for_those_of_its_successor(store: Store, world: World, staged: bool) -> None:
    send(store, b"old")
    consumer = member(world)
    consumer.poll(0)
    store.admin.delete_topic("t")
    store.admin.create_topic("t", partitions=2)
    send(store, b"new", b"newer")
    producer = store.producer("etl", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()

    with pytest.raises(errors.UnknownTopicOrPartition, match="created again since its records were read"):
        producer.send_offsets_to_transaction({T0: 1}, consumer.group_metadata())
    producer.abort_transaction()

    assert consumer.committed([T0]) == {T0: None}
    assert [record.value for record in consumer.poll(0)] == [b"new", b"newer"]
