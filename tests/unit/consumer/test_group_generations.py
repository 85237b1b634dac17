"""A member that its group has left behind commits nothing, neither offsets nor transactions with offsets."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, T1, member, members, send
from tests.unit.support.transactions import open_transaction
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


def test_a_member_commits_after_another_joined_or_left_before_it_polls(store: Store, world: World) -> None:
    send(store, b"0", partition=0)
    send(store, b"1", partition=1)
    first = member(world)
    second = member(world)
    first.commit()
    assert first.committed([T0, T1]) == {T0: (1, "", -1), T1: (1, "", -1)}
    first.poll(0)
    second.poll(0)
    send(store, b"2", partition=0)
    first.poll(0)
    second.close()

    first.commit()

    assert first.committed(T0) == 2


@pytest.mark.scenario(162)
@pytest.mark.parametrize("evicted", [True, False])
def test_a_transaction_of_an_evicted_consumer_can_only_be_aborted(store: Store, world: World, evicted: bool) -> None:
    zombie = member(world)
    producer = open_transaction(store, "tx")
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({T1: 5}, zombie.group_metadata())
    if evicted:
        world.pass_time(50_000)
    member(world)
    zombie.poll(0)

    with pytest.raises(errors.UnknownMember if evicted else errors.IllegalGeneration):
        producer.commit_transaction()
    producer.abort_transaction()

    assert store.scan("t").record_count == 0
    assert store.consumer("g").committed([T1]) == {T1: None}


def test_a_transaction_commits_although_another_member_joined(store: Store, world: World) -> None:
    consumer = member(world)
    producer = open_transaction(store, "tx")
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({T0: 5, T1: 6}, consumer.group_metadata())
    member(world)

    producer.commit_transaction()

    assert store.consumer("g").committed([T0, T1]) == {T0: (5, "", -1), T1: (6, "", -1)}


def transaction_over_a_rebalance(
    store: Store, world: World, earlier: TopicPartition, later: TopicPartition
) -> Producer:
    """A transaction with offsets from before and after the time in which another member had partition 1."""
    consumer = member(world)
    producer = open_transaction(store, "tx")
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({earlier: 5}, consumer.group_metadata())
    other = member(world)
    consumer.poll(0)
    other.poll(0)
    other.close()
    consumer.poll(0)
    producer.send_offsets_to_transaction({later: 6}, consumer.group_metadata())
    return producer


@pytest.mark.parametrize("later", [T0, T1])
def test_offsets_of_a_partition_that_came_back_are_refused_beside_later_ones(
    store: Store, world: World, later: TopicPartition
) -> None:
    """Between the two another member may have read the same records, committed them, and left."""
    producer = transaction_over_a_rebalance(store, world, T1, later)

    with pytest.raises(errors.IllegalGeneration):
        producer.commit_transaction()
    producer.abort_transaction()

    assert store.scan("t").record_count == 0
    assert store.consumer("g").committed([T0, T1]) == {T0: None, T1: None}


@pytest.mark.parametrize("later", [T0, T1])
def test_offsets_of_a_partition_that_stayed_are_committed_beside_later_ones(
    store: Store, world: World, later: TopicPartition
) -> None:
    transaction_over_a_rebalance(store, world, T0, later).commit_transaction()

    committed = store.consumer("g").committed([T0, T1])
    assert {place: found.offset for place, found in committed.items() if found} == {T0: 5} | {later: 6}


@pytest.mark.parametrize("staged", [False, True])
def test_offsets_of_a_topic_are_not_taken_for_those_of_its_successor(store: Store, world: World, staged: bool) -> None:
    send(store, b"old")
    consumer = member(world)
    consumer.poll(0)
    store.admin.delete_topic("t")
    store.admin.create_topic("t", partitions=2)
    send(store, b"new", b"newer")
    producer = open_transaction(store, "etl", staged=staged)

    with pytest.raises(errors.UnknownTopicOrPartition, match="created again since its records were read"):
        producer.send_offsets_to_transaction({T0: 1}, consumer.group_metadata())
    producer.abort_transaction()

    assert consumer.committed([T0]) == {T0: None}
    assert [record.value for record in consumer.poll(0)] == [b"new", b"newer"]
