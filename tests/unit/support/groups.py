"""Members of the group ``g``, and what is stored of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from eoslog.consumer.consumer import Consumer
from eoslog.session.heartbeats import Heartbeats
from eoslog.state.group_entries import GroupMember
from eoslog.state.group_members import ChangeGroup
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.world import World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def member(world: World, **options: Any) -> Consumer:
    """A member in a process of its own, subscribed and polled once."""
    consumer = world.process().consumer("g", **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe(["t"])
    consumer.poll(0)
    return consumer


def coordinate(
    store: Store, member_id: str = "k1", *, left: Collection[str] = (), session_timeout_ms: int = 30_000
) -> None:
    """Let a gateway coordinate the group for clients of Kafka's protocol, with one heartbeat."""
    Heartbeats(store.object_store, "g").put(member_id, session_timeout_ms)
    joined = GroupMember(
        member_id=member_id, topics=("t",), client_id="eoslog gateway", host="far", address=f"{member_id}.example:9092"
    )
    store.append(ChangeGroup("g", store.now_ms(), joined=joined, left=left))


def send(store: Store, *values: bytes, partition: int = 0) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send("t", value, partition=partition)


def generation(store: Store) -> int:
    return store.read(lambda state, slot: state.groups["g"].generation)


def members(store: Store) -> set[str]:
    return store.read(lambda state, slot: set(state.groups["g"].members))


def heartbeats(store: Store) -> list[str]:
    """The member ids with a heartbeat, in any group."""
    return [info.path.rpartition("/")[2] for info in store.object_store.list("__consumer_groups/")]
