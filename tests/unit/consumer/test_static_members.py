"""Static members (KIP-345): who comes back in time has its partitions, and who was replaced is fenced."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def member(world: World, instance: str | None, **options: Any) -> Consumer:
    """A member in a process of its own, subscribed and polled once."""
    options = {"auto_offset_reset": "earliest", "session_timeout_ms": 30_000} | options
    consumer = world.process().consumer("g", group_instance_id=instance, **options)
    consumer.subscribe(["t"])
    consumer.poll(0)
    return consumer


def two_members(world: World) -> tuple[Consumer, Consumer]:
    """``i1`` reads partition 0 and ``i2`` partition 1."""
    first, second = member(world, "i1"), member(world, "i2")
    first.poll(0)
    second.poll(0)
    assert (first.assignment(), second.assignment()) == ({T0}, {T1})
    return first, second


def generation(store: Store) -> int:
    return store.admin.describe_consumer_group("g").generation


def test_a_quick_restart_keeps_the_partitions_and_no_other_member_notices(store: Store, world: World) -> None:
    first, second = two_members(world)
    before, metadata = generation(store), second.group_metadata()
    first.close()
    world.pass_time(20_000)
    second.poll(0)

    again = member(world, "i1")
    second.poll(0)
    second.commit()

    assert (again.assignment(), second.assignment()) == ({T0}, {T1})
    assert again.group_metadata().generation == generation(store) == before
    assert second.group_metadata() == metadata


def test_a_member_that_does_not_come_back_in_time_loses_its_partitions(store: Store, world: World) -> None:
    first, second = two_members(world)
    first.close()
    for _ in range(5):
        world.pass_time(10_000)
        second.poll(0)

    assert second.assignment() == {T0, T1}


def test_a_member_whose_place_another_has_taken_is_fenced_for_good(store: Store, world: World) -> None:
    told: list[list[TopicPartition]] = []
    old = world.process().consumer("g", group_instance_id="i1")
    old.subscribe("t", on_lost=told.append)
    old.poll(0)
    new = member(world, "i1")

    with pytest.raises(errors.FencedInstanceId):
        old.commit({T0: 1})
    for _ in range(2):
        with pytest.raises(errors.FencedInstanceId):
            old.poll(0)
    assert told == [[T0, T1]]
    assert old.assignment() == set()
    old.close()
    new.poll(0)
    new.commit({T0: 2})


def test_a_transaction_of_a_fenced_member_is_refused_and_can_be_aborted(store: Store, world: World) -> None:
    old = member(world, "i1")
    producer = open_transaction(store, "tx")
    producer.send("t", b"out")
    producer.send_offsets_to_transaction({T0: 5}, old.group_metadata())
    new = member(world, "i1")

    with pytest.raises(errors.FencedInstanceId):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    assert new.committed([T0]) == {T0: None}


def test_a_member_that_was_evicted_and_not_replaced_joins_anew(store: Store, world: World) -> None:
    first, second = two_members(world)
    before = first.group_metadata().member_id
    for _ in range(5):
        world.pass_time(10_000)
        second.poll(0)
    first.poll(0)
    second.poll(0)
    first.poll(0)

    assert first.group_metadata().member_id not in ("", before)
    assert first.assignment() | second.assignment() == {T0, T1}
    assert len(first.assignment()) == 1


def test_an_instance_id_needs_a_group_and_is_an_id(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match="group_id"):
        store.consumer(group_instance_id="i1")
    with pytest.raises(errors.InvalidRequest):
        store.consumer("g", group_instance_id="")


def test_a_group_shows_the_client_id_of_each_member_and_the_host_of_its_newest_process(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "first")
    member(world, "i1", client_id="billing-1")
    monkeypatch.setattr("socket.gethostname", lambda: "s\udcffcond" * 100)
    new = member(world, "i1", config={"client.id": "billing-2"})
    named = {each.member_id: (each.client_id, each.host) for each in store.admin.describe_consumer_group("g").members}

    assert named == {new.group_metadata().member_id: ("billing-2", ("s?cond" * 100)[:255])}


@pytest.mark.parametrize("client_id", ["x" * 1025, "a\nb", "\ud800", 7])
def test_a_client_id_that_the_log_cannot_hold_is_refused(store: Store, client_id: Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="client id"):
        store.consumer("g", client_id=client_id)
