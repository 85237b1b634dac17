"""Appends that fail, are not answered, are overtaken, or in which their process dies: done once or not at all."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    ProducerFenced,
    StoreAccessDenied,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.store import Store
from tests.unit.support.partitions import epoch_of, partition_of, state_of, write
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty

DAY_MS = 24 * 3600 * 1000
SLOTS = "__transaction_state/slot/"


def with_a_transaction(store: Store) -> Producer:
    """A producer with a row in both partitions of an open transaction."""
    producer = open_transaction(store, "tx")
    for partition in (0, 1):
        producer.send("t", b"v", partition=partition)
    producer.flush()
    return producer


@pytest.mark.scenario(90, 110)
@pytest.mark.parametrize("failures", [1, 2])
def test_appends_that_the_store_refuses_leave_the_state_and_the_epoch_as_they_were(
    store: Store, world: World, failures: int
) -> None:
    write(store, "t", "open")
    before = store.read(lambda state, slot: (state.frozen_copy(), slot))
    other = world.process()
    faulty(other).deny(SLOTS)
    for _ in range(failures):
        with pytest.raises(StoreAccessDenied):
            other.producer("tx").init_transactions()
    assert store.read(lambda state, slot: (state, slot)) == before

    faulty(other).heal()
    other.producer("tx").init_transactions()

    assert epoch_of(store) == 2


@pytest.mark.scenario(92)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_that_another_producer_overtakes_is_fenced_and_overwrites_nothing(
    store: Store, world: World, outcome: str
) -> None:
    zombie = world.process()
    producer = with_a_transaction(zombie)
    slept = asleep_at(zombie, "log.slot.before_put", lambda: write(store, "t", "open", transactional_id="tx"))

    with pytest.raises(ProducerFenced):
        getattr(producer, f"{outcome}_transaction")()

    assert slept
    assert state_of(store) == "ONGOING"
    assert partition_of(store, "t").last_stable_offset == 2


@pytest.mark.scenario(92)
def test_an_init_that_another_init_overtakes_is_given_an_epoch_of_its_own(store: Store, world: World) -> None:
    late, early = world.process(), store.producer("tx")
    late.read(lambda state, slot: None)
    asleep_at(late, "log.slot.before_put", early.init_transactions)
    producer = late.producer("tx")

    producer.init_transactions()

    assert (early.producer_epoch, producer.producer_epoch) == (0, 1)
    early.begin_transaction()
    early.send("t", b"v")
    with pytest.raises(ProducerFenced):
        early.flush()


@pytest.mark.scenario(95)
@pytest.mark.parametrize(("point", "state"), [("log.slot.before_put", "ONGOING"), ("log.slot.claimed", None)])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_process_that_dies_in_an_end_leaves_it_decided_or_open(
    store: Store, world: World, point: str, state: str | None, outcome: str
) -> None:
    """Kafka loads a prepared state and sends the markers again; here there is nothing left to be sent."""
    dying = world.process()
    producer = with_a_transaction(dying)
    dies_at(dying, point)
    with pytest.raises(Died):
        getattr(producer, f"{outcome}_transaction")()

    survivor = world.process()

    assert state_of(survivor) == (state or f"COMPLETE_{outcome.upper()}")
    stable = [each.last_stable_offset for each in survivor.admin.offsets("t")]
    assert stable == ([0, 0] if state else [2, 2])
    world.pass_time(61_000)
    Coordinator(survivor).abort_timed_out_transactions()
    assert [each.last_stable_offset for each in survivor.admin.offsets("t")] == [2, 2]
