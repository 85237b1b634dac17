"""Producers of two-phase commits, and what they have committed."""

from __future__ import annotations

from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000
PLACE = TopicPartition("t", 0)


def begun(store: Store, *, staged: bool = False, **options: int | None) -> Producer:
    """A producer with an open transaction, with the row ``v`` and an offset of the group ``g`` in it."""
    producer = open_transaction(store, "tx", staged=staged, **options)
    producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    return producer


def restarted(world: World) -> Producer:
    producer = world.process().producer("tx")
    producer.init_transactions(keep_prepared=True)
    return producer


def committed_offset(store: Store) -> int | None:
    found = store.consumer("g").committed([PLACE])[PLACE]
    return found.offset if found else None
