"""Positions that a poll commits by itself."""

from __future__ import annotations

import pytest

from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, member, send
from tests.unit.support.world import World


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
