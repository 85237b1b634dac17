"""What a consumer group promises: partitions shared out, moved on, and never committed by two."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.client.consumer import Consumer
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import StoreState
from tests.unit.client.world import World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def member(world: World, **options: Any) -> Consumer:
    """A member in a process of its own, subscribed and polled once."""
    consumer = world.process().consumer("g", **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe(["t"])
    consumer.poll(0)
    return consumer


def send(store: Store, *values: bytes, partition: int = 0) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send("t", value, partition=partition)


def generation(store: Store) -> int:
    return store.read(lambda state, slot: state.groups["g"].generation)


def members(store: Store) -> set[str]:
    return store.read(lambda state, slot: set(state.groups["g"].members))


def heartbeats(store: Store) -> list[str]:
    return [info.path.rpartition("/")[2] for info in store.object_store.list("__consumer_groups/")]


def test_the_first_member_reads_everything(store: Store, world: World) -> None:
    consumer = member(world)

    assert consumer.assignment() == {T0, T1}
    assert consumer.subscription() == {"t"}
    assert consumer.group_metadata()[:2] == ("g", 1)
    assert members(store) == {consumer.group_metadata().member_id}
    assert heartbeats(store) == [consumer.group_metadata().member_id]


def test_members_share_the_partitions_and_a_third_has_none(store: Store, world: World) -> None:
    consumers = [member(world) for _ in range(3)]
    for consumer in consumers:
        consumer.poll(0)

    assignments = [consumer.assignment() for consumer in consumers]

    assert sorted(len(each) for each in assignments) == [0, 1, 1]
    assert set().union(*assignments) == {T0, T1}
    assert {consumer.group_metadata().generation for consumer in consumers} == {3}


def test_each_record_goes_to_one_member(store: Store, world: World) -> None:
    first, second = member(world), member(world)
    send(store, b"a", b"b", partition=0)
    send(store, b"c", partition=1)

    records = first.poll(0) + second.poll(0)

    assert sorted(record.value for record in records) == [b"a", b"b", b"c"]


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


def test_heartbeats_cost_a_put_and_a_list_in_a_third_of_the_session(store: Store, world: World) -> None:
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
def test_a_transaction_of_a_consumer_that_its_group_left_behind_is_refused_and_can_be_aborted(
    store: Store, world: World, evicted: bool
) -> None:
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


def test_after_a_new_generation_positions_are_the_committed_ones(store: Store, world: World) -> None:
    send(store, b"a", b"b", partition=0)
    send(store, b"c", b"d", partition=1)
    first = member(world, max_poll_records=10)
    first.commit({T0: 1, T1: 1})
    second = member(world)
    again = first.poll(0)

    assert sorted(record.offset for record in again) == [1]
    assert first.assignment() | second.assignment() == {T0, T1}


def test_the_application_is_told_when_partitions_move(store: Store, world: World) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []
    consumer = world.process().consumer("g")
    consumer.subscribe(
        "t",
        on_revoked=lambda partitions: told.append(("revoked", partitions)),
        on_assigned=lambda partitions: told.append(("assigned", partitions)),
    )
    consumer.poll(0)
    other = member(world)
    consumer.poll(0)

    (mine,) = consumer.assignment()
    assert told == [("assigned", [T0, T1]), ("revoked", [T0, T1]), ("assigned", [mine])]
    assert other.assignment() == {T0, T1} - {mine}


def test_each_member_reads_only_topics_that_it_subscribed_to(store: Store, world: World) -> None:
    store.admin.create_topic("u")
    first = member(world)
    second = world.process().consumer("g")
    second.subscribe(["t", "u"])
    second.poll(0)
    first.poll(0)

    assert TopicPartition("u", 0) in second.assignment()
    assert len(first.assignment()) == 1


def test_a_changed_subscription_is_a_new_generation_of_the_same_member(store: Store, world: World) -> None:
    store.admin.create_topic("u")
    consumer = member(world)
    before = consumer.group_metadata()
    consumer.subscribe("u")
    consumer.poll(0)

    assert consumer.assignment() == {TopicPartition("u", 0)}
    assert consumer.group_metadata() == before._replace(generation=before.generation + 1)


def test_a_subscription_without_a_group_reads_everything(store: Store, world: World) -> None:
    send(store, b"1", partition=0)
    send(store, b"2", partition=1)
    consumers = [world.process().consumer(auto_offset_reset="earliest") for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe("t")

        assert sorted(record.value for record in consumer.poll()) == [b"1", b"2"]
        assert consumer.assignment() == {T0, T1}


def test_a_topic_created_again_is_read_from_its_beginning(store: Store, world: World) -> None:
    send(store, b"old")
    consumer = member(world)
    consumer.poll(0)
    consumer.commit()
    store.admin.delete_topic("t")
    assert consumer.poll(0) == []
    assert consumer.assignment() == set()
    store.admin.create_topic("t")
    send(store, b"new")

    assert [record.value for record in consumer.poll(0)] == [b"new"]


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


def test_automatic_commits_follow_the_polls(store: Store, world: World) -> None:
    send(store, b"1", b"2")
    consumer = member(world, enable_auto_commit=True, auto_commit_interval_ms=1_000)
    assert consumer.committed([T0]) == {T0: None}
    world.pass_time(1_000)
    consumer.poll(0)
    assert consumer.committed([T0]) == {T0: (2, "", -1)}
    send(store, b"3")
    consumer.poll(0)
    consumer.close()

    assert store.consumer("g").committed([T0]) == {T0: (3, "", -1)}


def test_an_automatic_commit_that_the_group_refuses_stops_nobody(store: Store, world: World) -> None:
    send(store, b"1")
    consumer = member(world, enable_auto_commit=True, auto_commit_interval_ms=0)
    member(world)

    consumer.poll(0)
    consumer.close()


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

    def look(state: StoreState, slot: int) -> tuple[int, dict[str, tuple[str, ...]], list[int]]:
        group = state.groups["g"]
        return group.generation, dict(group.members), [offset.offset for offset in group.offsets.values()]

    assert world.process().read(look) == store.read(look)


def test_new_partitions_are_shared_out_and_what_was_read_before_cannot_be_committed_in_the_old_generation(
    store: Store, world: World
) -> None:
    consumers = [member(world) for _ in range(2)]
    for consumer in consumers:
        consumer.poll(0)
    store.admin.create_partitions("t", 4)
    send(store, b"new", partition=3)
    with pytest.raises(errors.IllegalGeneration):
        consumers[0].commit(dict.fromkeys(consumers[0].assignment(), 0))
    world.pass_time(2_000)

    records = [record for consumer in consumers for record in consumer.poll(0)]

    assert [record.value for record in records] == [b"new"]
    assert [len(consumer.assignment()) for consumer in consumers] == [2, 2]
    assert {consumer.group_metadata().generation for consumer in consumers} == {generation(store)}
