"""What a consumer group promises: partitions shared out, moved on, and never committed by two."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.client.consumer import Consumer
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import Group, StoreState
from tests.unit.client.world import SLOTS, FaultyStore, World

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


@pytest.mark.parametrize("newer", [T0, T1])
def test_offsets_of_an_earlier_generation_are_refused_though_later_ones_of_the_same_transaction_are_not(
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


def test_partitions_that_stay_go_on_where_they_were_and_those_that_come_begin_at_the_committed_offset(
    store: Store, world: World
) -> None:
    send(store, b"a", b"b", b"c", partition=0)
    send(store, b"d", b"e", b"f", partition=1)
    first = member(world, max_poll_records=10)
    assert {place: first.position(place) for place in (T0, T1)} == {T0: 3, T1: 3}
    first.commit({T0: 1, T1: 1})
    second = member(world)

    assert first.poll(0) == []
    assert [record.value for record in second.poll(0)] == [b"e", b"f"]
    assert (first.assignment(), first.position(T0)) == ({T0}, 3)


def test_only_partitions_that_move_are_told_and_what_is_about_to_go_may_be_committed(
    store: Store, world: World
) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", partitions))
        consumer.commit()

    send(store, b"0", partition=0)
    send(store, b"1", b"2", partition=1)
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t", on_revoked=revoked, on_assigned=lambda partitions: told.append(("assigned", partitions)))
    consumer.poll(0)
    other = member(world)
    consumer.poll(0)
    other.poll(0)
    assert (consumer.assignment(), other.assignment()) == ({T0}, {T1})
    assert other.committed([T0, T1]) == {T0: (1, "", -1), T1: (2, "", -1)}
    other.close()
    consumer.poll(0)
    consumer.close()

    assert told == [
        ("assigned", [T0, T1]),
        ("revoked", [T1]),
        ("assigned", [T1]),
        ("revoked", [T0, T1]),
    ]


def test_a_member_does_not_read_what_another_has_not_given_up(store: Store, world: World) -> None:
    send(store, b"1", partition=1)
    first, second = member(world), member(world)
    assert second.poll(0) == []
    assert second.assignment() == set()
    first.commit({T1: 0}) if first.poll(0) else None

    assert [record.value for record in second.poll(0)] == [b"1"]


def test_a_partition_that_was_given_up_cannot_be_committed_by_its_former_member(store: Store, world: World) -> None:
    first, second = member(world), member(world)
    first.poll(0)
    second.poll(0)
    assert first.group_metadata().generation == second.group_metadata().generation

    with pytest.raises(errors.IllegalGeneration):
        first.commit({T1: 5})
    second.commit({T1: 6})


def test_an_application_that_fails_while_it_is_told_is_told_again(store: Store, world: World) -> None:
    told: list[list[TopicPartition]] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(partitions)
        if len(told) == 1:
            raise ZeroDivisionError

    consumer = world.process().consumer("g")
    consumer.subscribe("t", on_revoked=revoked)
    consumer.poll(0)
    other = member(world)
    with pytest.raises(ZeroDivisionError):
        consumer.poll(0)
    other.poll(0)
    assert other.assignment() == set()

    consumer.poll(0)
    other.poll(0)

    assert told == [[T1], [T1]]
    assert (consumer.assignment(), other.assignment()) == ({T0}, {T1})


def test_a_member_whose_hand_over_was_not_answered_hands_over_at_its_next_poll(store: Store, world: World) -> None:
    process = world.process()
    first = process.consumer("g", session_timeout_ms=600_000)
    first.subscribe("t")
    first.poll(0)
    second = member(world, session_timeout_ms=600_000)
    assert isinstance(process.object_store, FaultyStore)
    process.object_store.lose_answers(SLOTS, lands=False)
    with pytest.raises(errors.RetriableError):
        first.poll(0)
    process.object_store.heal()
    assert first.assignment() == {T0}

    first.poll(0)
    second.poll(0)

    assert (first.assignment(), second.assignment()) == ({T0}, {T1})


@pytest.mark.parametrize("with_listener", [True, False])
def test_an_evicted_member_is_told_that_its_partitions_are_lost_and_begins_at_the_committed_offsets(
    store: Store, world: World, with_listener: bool
) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []
    send(store, b"1", b"2", partition=0)
    slow = world.process().consumer("g", auto_offset_reset="earliest")
    slow.subscribe(
        "t",
        on_revoked=lambda partitions: told.append(("revoked", partitions)),
        on_lost=(lambda partitions: told.append(("lost", partitions))) if with_listener else None,
    )
    slow.poll(0)
    slow.commit({T0: 1})
    world.pass_time(60_000)
    other = member(world)
    other.close()

    assert [record.value for record in slow.poll(0)] == [b"2"]
    assert told == [("lost" if with_listener else "revoked", [T0, T1])]


def test_a_member_that_others_evict_while_it_joins_anew_has_lost_its_partitions_too(store: Store, world: World) -> None:
    """It proposes a change on what it knew, and meets its eviction only in the log."""
    store.admin.create_topic("u")
    send(store, b"1", b"2", partition=0)
    consumer = member(world)
    consumer.commit({T0: 1})
    known = consumer.group_metadata().member_id
    evictor = member(world)
    store.admin.remove_members("g")
    consumer.subscribe(["t", "u"])

    assert [record.value for record in consumer.poll(0)] == [b"2"]
    assert consumer.group_metadata().member_id != known
    assert evictor.group_metadata().member_id not in members(store)


def test_each_member_reads_only_topics_that_it_subscribed_to(store: Store, world: World) -> None:
    store.admin.create_topic("u")
    first = member(world)
    second = world.process().consumer("g")
    second.subscribe(["t", "u"])
    second.poll(0)
    first.poll(0)

    assert (first.assignment(), second.assignment()) == ({T0, T1}, {TopicPartition("u", 0)})


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


@pytest.mark.parametrize("due", [True, False])
def test_an_automatic_commit_leaves_out_a_deleted_topic_and_stops_nobody(store: Store, world: World, due: bool) -> None:
    store.admin.create_topic("u")
    send(store, b"1")
    consumer = world.process().consumer("g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.subscribe(["t", "u"])
    consumer.poll(0)
    store.admin.delete_topic("u")
    store.admin.create_topic("u")
    world.pass_time(5_000 if due else 1_000)
    send(store, b"2")

    assert [record.value for record in consumer.poll(0)] == [b"2"]

    assert consumer.committed([T0, TopicPartition("u", 0)]) == {T0: (1, "", -1), TopicPartition("u", 0): None}
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
