"""A transaction past its time-out is aborted by whoever meets it, or it is not: an abort may lose to the commit."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidProducerEpoch, ProducerFenced, StoreAccessDenied, TransactionAborted
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.state.answers import batch_refused, previous
from tests.unit.state.histories import History
from tests.unit.support.partitions import read, write
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import FaultyStore, World

SLOTS = "__transaction_state/slot/"


def described(store: Store) -> tuple[str, int]:
    found = store.admin.describe_transaction("tx")
    return found.transaction_state, found.producer_epoch


@pytest.mark.scenario(114)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_time_out_loses_to_an_end_that_takes_its_slot(store: Store, world: World, outcome: str) -> None:
    """Whichever of the two takes the slot, the other learns of it there."""
    process = world.process()
    producer = write(process, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    coordinator = world.process()
    slept = asleep_at(coordinator, "log.slot.before_put", getattr(producer, f"{outcome}_transaction"))

    assert Coordinator(coordinator).abort_timed_out_transactions() == []

    assert slept
    assert described(store) == (f"COMPLETE_{outcome.upper()}", 1)
    assert store.admin.offsets("t")[0].high_watermark == 2


@pytest.mark.scenario(114)
def test_a_commit_that_meets_a_time_out_on_its_way_is_refused(store: Store, world: World) -> None:
    process = world.process()
    producer = write(process, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    asleep_at(process, "log.slot.before_put", Coordinator(store).abort_timed_out_transactions)

    with pytest.raises(TransactionAborted, match="timed out"):
        producer.commit_transaction()

    assert described(store) == ("COMPLETE_ABORT", 1)
    assert read(store, "t") == []


@pytest.mark.scenario(114, 68)
def test_after_a_time_out_its_epoch_and_all_before_it_are_refused(history: History) -> None:
    history.init()
    identity = history.init()
    history.send(identity)
    history.now_ms += 60_001
    history.abort_timed_out()

    assert batch_refused(history, identity, 1) is InvalidProducerEpoch
    assert batch_refused(history, previous(identity)) is ProducerFenced


@pytest.mark.scenario(114)
@pytest.mark.parametrize("failures", [1, 2])
def test_a_time_out_that_cannot_be_appended_does_not_raise_the_epoch(store: Store, world: World, failures: int) -> None:
    producer = write(store, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    process = world.process()
    process.read(lambda state, slot: None)
    assert isinstance(process.object_store, FaultyStore)
    process.object_store.deny(SLOTS)
    for _ in range(failures):
        with pytest.raises(StoreAccessDenied):
            Coordinator(process).abort_timed_out_transactions()
    assert described(store) == ("ONGOING", 0)

    producer.commit_transaction()

    assert described(store) == ("COMPLETE_COMMIT", 1)


@pytest.mark.further("Transaction coordinator")
def test_the_time_of_a_transaction_counts_from_its_first_batch(store: Store, world: World) -> None:
    producer = store.producer("tx", transaction_timeout_ms=1_000)
    producer.init_transactions()
    world.pass_time(5_000)
    producer.begin_transaction()
    world.pass_time(5_000)
    producer.send("t", b"v")
    producer.flush()
    world.pass_time(900)
    producer.send("t", b"v")
    producer.flush()
    assert Coordinator(store).abort_timed_out_transactions() == []

    world.pass_time(101)

    assert Coordinator(store).abort_timed_out_transactions() == ["tx"]
