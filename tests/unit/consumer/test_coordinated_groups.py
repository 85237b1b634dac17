"""Consumers of eoslog beside clients of Kafka's protocol: a group has one of the two kinds."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, T1, coordinate, generation, heartbeats, member, members, send
from tests.unit.support.world import World


def newest_slot(store: Store) -> int:
    return store.read(lambda state, slot: slot)


def test_a_consumer_is_told_at_each_poll_that_the_group_has_other_clients(store: Store, world: World) -> None:
    coordinate(store)
    consumer = world.process().consumer("g")
    consumer.subscribe("t")
    slot = newest_slot(store)

    for _ in range(3):
        with pytest.raises(errors.InconsistentGroupProtocol, match=r"which the gateway at k1\.example:9092 coord"):
            consumer.poll(timeout=5)
        world.pass_time(500)

    assert newest_slot(store) == slot
    assert heartbeats(store) == ["k1"]
    assert consumer.assignment() == set()
    consumer.close()
    assert members(store) == {"k1"}


def test_a_consumer_joins_when_the_clients_have_left(store: Store, world: World) -> None:
    coordinate(store)
    consumer = world.process().consumer("g")
    consumer.subscribe("t")
    with pytest.raises(errors.InconsistentGroupProtocol):
        consumer.poll(0)
    store.admin.remove_members("g")

    consumer.poll(0)

    assert consumer.assignment() == {T0, T1}
    assert (generation(store), members(store)) == (3, {consumer.group_metadata().member_id})


def test_a_consumer_takes_the_place_of_a_coordinator_that_died(store: Store, world: World) -> None:
    coordinate(store, session_timeout_ms=6_000)
    world.pass_time(6_001)

    consumer = member(world)

    assert consumer.assignment() == {T0, T1}
    assert members(store) == set(heartbeats(store)) == {consumer.group_metadata().member_id}


def test_a_consumer_that_polls_again_and_again_finds_that_the_coordinator_died(store: Store, world: World) -> None:
    coordinate(store, session_timeout_ms=30_000)
    consumer = world.process().consumer("g", session_timeout_ms=6_000)
    consumer.subscribe("t")
    refused = 0
    while not consumer.assignment():
        try:
            consumer.poll(0)
        except errors.InconsistentGroupProtocol:
            refused += 1
        world.pass_time(1_000)

    assert 30 <= refused <= 32


def test_a_consumer_that_joins_while_a_gateway_does_is_refused_at_its_slot(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = world.process()
    consumer = late.consumer("g")
    consumer.subscribe("t")
    put = late.object_store.put

    def overtaken(path: str, body: bytes) -> None:
        put(path, body)
        coordinate(store)

    monkeypatch.setattr(late.object_store, "put", overtaken)
    with pytest.raises(errors.InconsistentGroupProtocol):
        consumer.poll(0)

    assert (generation(store), members(store), heartbeats(store)) == (1, {"k1"}, ["k1"])


def test_an_evicted_consumer_loses_its_partitions_to_the_other_clients(store: Store, world: World) -> None:
    lost: list[list[TopicPartition]] = []
    consumer = world.process().consumer("g")
    consumer.subscribe("t", on_lost=lost.append)
    send(store, b"1")
    consumer.poll(0)
    coordinate(store, left=[consumer.group_metadata().member_id])

    with pytest.raises(errors.UnknownMember):
        consumer.commit({T0: 1})
    with pytest.raises(errors.InconsistentGroupProtocol):
        consumer.poll(0)

    assert (lost, consumer.assignment()) == ([[T0, T1]], set())
    with pytest.raises(errors.UnknownMember):
        consumer.commit({T0: 1})


def test_a_consumer_without_membership_commits_only_when_the_clients_have_left(store: Store, world: World) -> None:
    coordinate(store)
    consumer = world.process().consumer("g")
    consumer.assign([T0])
    with pytest.raises(errors.UnknownMember, match="has members, and only they may commit"):
        consumer.commit({T0: 1})
    store.admin.remove_members("g", ["k1"])

    consumer.commit({T0: 1})

    assert consumer.committed(T0) == 1


def test_a_coordinator_without_heartbeat_is_evicted_and_another_takes_over(store: Store, world: World) -> None:
    coordinate(store, session_timeout_ms=30_000)
    service = Coordinator(world.process())
    world.pass_time(29_000)
    assert service.evict_silent_members() == []
    world.pass_time(2_000)

    assert service.evict_silent_members() == ["k1"]

    assert (members(store), heartbeats(store)) == (set(), [])
    coordinate(store, "k2")
    assert (generation(store), members(store)) == (3, {"k2"})
