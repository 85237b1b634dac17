"""Partitions that move from member to member: given up, told, lost, and gone on with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.errors import IllegalState, InvalidOption
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, T1, member, members, send
from tests.unit.support.world import SLOTS, FaultyStore, World


def test_kept_partitions_keep_their_position_and_new_ones_begin_as_committed(store: Store, world: World) -> None:
    send(store, b"a", b"b", b"c", partition=0)
    send(store, b"d", b"e", b"f", partition=1)
    first = member(world, max_poll_records=10)
    assert {place: first.position(place) for place in (T0, T1)} == {T0: 3, T1: 3}
    first.commit({T0: 1, T1: 1})
    second = member(world)

    assert first.poll(0) == []
    assert [record.value for record in second.poll(0)] == [b"e", b"f"]
    assert (first.assignment(), first.position(T0)) == ({T0}, 3)


def test_only_moved_partitions_are_told_and_revoked_ones_may_be_committed(store: Store, world: World) -> None:
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


def test_a_member_gives_up_only_what_it_was_told_to_give_up(store: Store, world: World) -> None:
    """Another member joins while this one gives a partition up. Then it must give up one more, which it still reads."""
    store.admin.create_topic("three", partitions=3)
    joined: list[Consumer] = []

    def join() -> None:
        consumer = world.process().consumer("g")
        consumer.subscribe("three")
        consumer.poll(0)
        joined.append(consumer)

    first = world.process().consumer("g")
    first.subscribe("three", on_revoked=lambda partitions: join() if len(joined) == 1 else None)
    first.poll(0)
    join()
    first.poll(0)
    for consumer in joined:
        consumer.poll(0)

    read = [place for consumer in (first, *joined) for place in consumer.assignment()]
    assert len(read) == len(set(read))
    for consumer in (first, *joined):
        consumer.poll(0)
    assert sorted(len(consumer.assignment()) for consumer in (first, *joined)) == [1, 1, 1]


def test_a_former_member_cannot_commit_a_partition_it_gave_up(store: Store, world: World) -> None:
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


def test_an_unanswered_hand_over_is_repeated_at_the_next_poll(store: Store, world: World) -> None:
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
def test_an_evicted_member_loses_its_partitions_and_restarts_as_committed(
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


def test_a_member_evicted_while_it_joins_anew_loses_its_partitions_too(store: Store, world: World) -> None:
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


CALLS: dict[str, Callable[[Consumer], object]] = {
    "poll()": lambda consumer: consumer.poll(0),
    "next()": next,
    "subscribe()": lambda consumer: consumer.subscribe("t"),
    "unsubscribe()": lambda consumer: consumer.unsubscribe(),
    "assign()": lambda consumer: consumer.assign([T0]),
    "close()": lambda consumer: consumer.close(),
}


@pytest.mark.parametrize("listener", ["on_revoked", "on_assigned", "on_lost"])
@pytest.mark.parametrize("name", CALLS)
def test_a_listener_may_not_rebalance_again(store: Store, world: World, name: str, listener: str) -> None:
    send(store, b"0", partition=0)
    raised: list[str] = []

    def told(partitions: list[TopicPartition]) -> None:
        with pytest.raises(IllegalState) as caught:
            CALLS[name](consumer)
        raised.append(str(caught.value))

    consumer = world.process().consumer("g", auto_offset_reset="earliest", consumer_timeout_ms=0)
    consumer.subscribe("t", **{listener: told})
    records = consumer.poll(0)
    if listener == "on_lost":
        store.admin.remove_members("g")
        consumer.poll(0)
    consumer.close()

    assert [record.value for record in records] == [b"0"]
    assert raised
    assert all(f"{name} is not allowed in a rebalance listener, here {listener}" in each for each in raised)


def test_a_consumer_goes_on_after_a_refused_call_of_its_listener(store: Store, world: World) -> None:
    send(store, b"0", b"1", partition=1)
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t", on_revoked=lambda partitions: consumer.poll(0))
    consumer.poll(0)
    other = member(world)

    with pytest.raises(IllegalState, match=r"poll\(\) is not allowed in a rebalance listener"):
        consumer.poll(0)

    consumer.subscribe("t")
    consumer.poll(0)
    other.poll(0)
    assert (consumer.assignment(), other.assignment()) == ({T0}, {T1})


@pytest.mark.parametrize("name", ["on_revoked", "on_assigned", "on_lost"])
def test_a_listener_is_a_function_of_the_partitions(store: Store, name: str) -> None:
    for wrong in ("x", 1, [print], lambda: None):
        with pytest.raises(InvalidOption, match=f"{name} must be a function of one argument"):
            store.consumer("g").subscribe("t", **{name: wrong})
