"""Requests whose answer is lost, and what comes in between before their producer asks again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty

DAY_MS = 24 * 3600 * 1000


def without_an_answer(store: Store, call: Callable[[], object], *, lands: bool) -> errors.CommitStateUnknown:
    """Make a call whose slot is not answered, and then nothing is until the call's time is up."""
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown) as unknown:
        call()
    faulty(store).heal()
    return unknown.value


def learns(store: Store) -> None:
    """The process reads all slots that there are."""
    store.read(lambda state, slot: None)


def delete_slots(world: World) -> None:
    """Time passes, and the slots that there were go."""
    other = world.process()
    for _ in range(4):
        other.log.checkpoint()
        world.pass_time(8 * DAY_MS)
        Coordinator(other).delete_old_slots()


def successor(world: World) -> Producer:
    producer = world.process().producer("tx")
    producer.init_transactions()
    return producer


def begun(store: Store, *, staged: bool = False) -> Producer:
    """A producer with a row and a group's offset in its transaction."""
    producer = open_transaction(store, "tx", staged=staged, transaction_timeout_ms=900_000)
    producer.send("t", b"1", partition=0)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    producer.flush()
    return producer
