"""A prepared transaction waits for its outcome as long as its own time-out says, and then is aborted."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.support.two_phase import DAY_MS, PLACE, begun, restarted
from tests.unit.support.world import SLOTS, World, faulty, values


@pytest.mark.parametrize("prepared_timeout_ms", [10 * DAY_MS, None])
def test_it_waits_for_its_own_time_out_and_not_that_of_a_transaction(
    store: Store, world: World, prepared_timeout_ms: int | None
) -> None:
    producer = begun(store, staged=True, transaction_timeout_ms=1_000, prepared_timeout_ms=prepared_timeout_ms)
    prepared = producer.prepare_transaction()
    world.pass_time(9 * DAY_MS)
    assert Coordinator(store).abort_timed_out_transactions() == []

    restarted(world).complete_transaction(prepared)

    assert values(store) == [b"v"]


def test_past_its_time_out_it_is_aborted_and_its_commit_says_so(store: Store, world: World) -> None:
    producer = begun(store, prepared_timeout_ms=5_000)
    prepared = producer.prepare_transaction()
    world.pass_time(5_001)
    assert Coordinator(world.process()).abort_timed_out_transactions() == ["tx"]

    with pytest.raises(errors.TransactionAborted, match="timed out"):
        producer.complete_transaction(prepared)
    producer.abort_transaction()

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_prepare_that_is_repeated_past_its_time_out_says_so(store: Store, world: World) -> None:
    """It was prepared at the first attempt; the repetition that finds it ends it, and must not pass for a success."""
    producer = begun(store, prepared_timeout_ms=5_000)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.CommitStateUnknown):
        producer.prepare_transaction()
    faulty(store).heal()
    world.pass_time(5_001)

    with pytest.raises(errors.InvalidProducerEpoch, match="timed out"):
        producer.prepare_transaction()
    producer.abort_transaction()

    assert values(store) == []
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.complete_transaction(producer.prepare_transaction())
    assert values(store) == [b"w"]


def test_a_producer_that_restarts_past_the_time_out_finds_nothing_prepared(store: Store, world: World) -> None:
    begun(store, prepared_timeout_ms=5_000).prepare_transaction()
    world.pass_time(5_001)

    producer = restarted(world)

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_transaction_past_its_time_out_that_nobody_ended_may_still_be_prepared(store: Store, world: World) -> None:
    producer = begun(store, transaction_timeout_ms=300)
    producer.flush()
    world.pass_time(600)

    producer.complete_transaction(producer.prepare_transaction())

    assert values(store) == [b"v"]


def test_the_commit_does_not_ask_for_the_generation_again(store: Store) -> None:
    consumer = Consumer(store, "members")
    consumer.subscribe(["t"])
    consumer.poll(timeout=0)
    producer = begun(store)
    producer.send_offsets_to_transaction({PLACE: 9}, consumer.group_metadata())
    prepared = producer.prepare_transaction()
    consumer.close()

    producer.complete_transaction(prepared)

    assert store.consumer("members").committed([PLACE])[PLACE].offset == 9  # type: ignore[union-attr]
