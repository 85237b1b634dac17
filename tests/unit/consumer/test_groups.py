"""What a consumer group promises: its members share the partitions out, and leave them to others when they go."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.state.store_state import Group, StoreState
from eoslog.store import Store
from tests.unit.support.groups import T0, T1, generation, heartbeats, member, members, send
from tests.unit.support.world import World


def test_members_share_the_partitions_and_a_third_has_none(store: Store, world: World) -> None:
    consumers = [member(world) for _ in range(3)]
    for consumer in consumers:
        consumer.poll(0)

    assignments = [consumer.assignment() for consumer in consumers]

    assert sorted(len(each) for each in assignments) == [0, 1, 1]
    assert set().union(*assignments) == {T0, T1}
    assert {consumer.group_metadata().generation for consumer in consumers} == {3}


def test_a_member_that_closes_leaves_its_partitions_to_the_others_at_once(store: Store, world: World) -> None:
    first, second = member(world), member(world)
    first.close()

    second.poll(0)

    assert second.assignment() == {T0, T1}
    assert heartbeats(store) == [second.group_metadata().member_id]


def test_unsubscribing_leaves_the_group(store: Store, world: World) -> None:
    consumer = member(world)
    consumer.unsubscribe()

    assert members(store) == set()
    assert heartbeats(store) == []
    assert consumer.assignment() == set()
    consumer.assign([T0])
    assert consumer.poll(0) == []


def test_a_dead_members_partitions_move_on_within_its_session_timeout(store: Store, world: World) -> None:
    dead, alive = member(world, session_timeout_ms=30_000), member(world)
    died_ms = world.time_ms
    send(store, b"1", partition=0)
    send(store, b"2", partition=1)
    seen: set[bytes] = set()

    while len(seen) < 2:
        seen |= {record.value for record in alive.poll(timeout=1)}

    assert 30_000 < world.time_ms - died_ms <= 45_000
    assert alive.assignment() == {T0, T1}
    assert dead.group_metadata().member_id not in members(store)
    assert heartbeats(store) == [alive.group_metadata().member_id]


def test_members_that_poll_are_never_evicted(store: Store, world: World) -> None:
    first, second = member(world, session_timeout_ms=6_000), member(world, session_timeout_ms=6_000)
    for _ in range(50):
        world.pass_time(1_500)
        first.poll(0)
        second.poll(0)

    assert generation(store) == 2


def test_a_poll_that_waits_long_keeps_its_member_alive(store: Store, world: World) -> None:
    waiting, other = member(world, session_timeout_ms=6_000), member(world, session_timeout_ms=300_000)
    waiting.poll(timeout=60)
    other.poll(0)

    assert generation(store) == 2


def test_heartbeats_cost_two_requests_in_a_third_of_the_session(store: Store, world: World) -> None:
    process = world.process()
    consumer = process.consumer("g", session_timeout_ms=45_000)
    consumer.subscribe("t")
    consumer.poll(0)
    other = member(world)
    consumer.poll(0)
    before = process.requests.copy()

    for _ in range(10):
        world.pass_time(6_000)
        consumer.poll(0)
        other.poll(0)

    spent = process.requests - before
    assert (spent["PUT"], spent["LIST"]) == (3, 3)
    assert generation(store) == 2


def test_a_changed_subscription_is_a_new_generation_of_the_same_member(store: Store, world: World) -> None:
    store.admin.create_topic("u")
    consumer = member(world)
    before = consumer.group_metadata()
    consumer.subscribe("u")
    consumer.poll(0)

    assert consumer.assignment() == {TopicPartition("u", 0)}
    assert consumer.group_metadata()[:3] == ("g", before.generation + 1, before.member_id)


def test_a_subscription_without_a_group_reads_everything(store: Store, world: World) -> None:
    send(store, b"1", partition=0)
    send(store, b"2", partition=1)
    consumers = [world.process().consumer(auto_offset_reset="earliest") for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe("t")

        assert sorted(record.value for record in consumer.poll()) == [b"1", b"2"]
        assert consumer.assignment() == {T0, T1}


def test_subscribing_and_assigning_exclude_each_other(store: Store) -> None:
    subscribed, assigned = store.consumer("g"), store.consumer("g")
    subscribed.subscribe("t")
    assigned.assign([T0])

    with pytest.raises(errors.IllegalState):
        subscribed.assign([T0])
    with pytest.raises(errors.IllegalState):
        assigned.subscribe("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.consumer("g").subscribe(["t", "nowhere"])


def test_a_heartbeat_that_says_nonsense_is_believed_for_the_longest_session(store: Store, world: World) -> None:
    dead, alive = member(world), member(world)
    (path,) = (
        info.path
        for info in store.object_store.list("__consumer_groups/")
        if info.path.endswith(dead.group_metadata().member_id)
    )
    store.object_store.put(path, b"\xff{")
    world.pass_time(1_700_000)
    alive.poll(0)
    assert dead.group_metadata().member_id in members(store)
    world.pass_time(200_000)
    alive.poll(0)

    assert dead.group_metadata().member_id not in members(store)


def test_an_abandoned_join_leaves_a_heartbeat_that_others_clear_away(store: Store, world: World) -> None:
    consumer, other = member(world), member(world)
    directory = next(store.object_store.list("__consumer_groups/")).path.rpartition("/")[0]
    store.object_store.put(f"{directory}/{'f' * 32}", b'{"session_timeout_ms":6000}')
    for _ in range(2):
        world.pass_time(20_000)
        consumer.poll(0)
        other.poll(0)

    assert set(heartbeats(store)) == members(store)


def test_groups_do_not_see_each_other(store: Store, world: World) -> None:
    send(store, b"1")
    member(world)
    other = world.process().consumer("another", auto_offset_reset="earliest")
    other.subscribe("t")

    assert [record.value for record in other.poll(0)] == [b"1"]
    assert other.assignment() == {T0, T1}


def test_the_fold_is_all_that_a_group_consists_of(store: Store, world: World) -> None:
    consumer = member(world)
    consumer.commit({T0: 3})
    store.log.checkpoint()

    def look(state: StoreState, slot: int) -> Group:
        return state.groups["g"]

    assert world.process().read(look) == store.read(look)


def test_new_partitions_are_shared_out_without_hindering_those_who_read_the_others(store: Store, world: World) -> None:
    consumers = [member(world) for _ in range(2)]
    for consumer in consumers:
        consumer.poll(0)
    before = generation(store)
    store.admin.create_partitions("t", 4)
    send(store, b"new", partition=3)

    records = [record for _ in range(2) for consumer in consumers for record in consumer.poll(0)]
    consumers[0].commit()

    assert [record.value for record in records] == [b"new"]
    assert [len(consumer.assignment()) for consumer in consumers] == [2, 2]
    assert generation(store) == before
