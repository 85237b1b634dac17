"""Defects that were found in Kafka's transactions in the field, by their numbers there, and what happens here."""

from __future__ import annotations

import pytest

from eoslog.errors import TransactionAborted
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import LAST_USABLE_EPOCH
from eoslog.state.store_state import TransactionState
from eoslog.store import Store
from tests.unit.state.histories import History
from tests.unit.support.partitions import read, write
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

pytestmark = pytest.mark.further("Transaction coordinator")


def test_the_next_transaction_begins_at_once_when_the_one_before_has_ended(store: Store) -> None:
    """KAFKA-18575, KAFKA-18654: a race with markers under way, then a back-off to avoid it."""
    producer = write(store, "t", "commit")
    before = store.requests["PUT"]

    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()

    assert store.requests["PUT"] - before == 2
    assert read(store, "t") == [(0, b"0"), (2, b"next")]


def test_a_commit_of_offsets_alone_succeeds_and_one_of_nothing_too(store: Store) -> None:
    """KAFKA-18401."""
    producer = open_transaction(store, "tx")
    producer.commit_transaction()
    assert store.admin.describe_transaction("tx").transaction_state == "EMPTY"

    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "g")
    producer.commit_transaction()

    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_COMMIT"


@pytest.mark.parametrize("first", ["commit", "abort"])
def test_an_abort_of_nothing_right_after_an_end_does_not_fence_its_own_producer(history: History, first: str) -> None:
    """KAFKA-18464."""
    identity = history.init()
    history.send(identity)
    identity = history.abort(history.end(identity, first))

    history.send(identity)
    history.commit(identity)

    assert history.transaction().state is TransactionState.COMPLETE_COMMIT


def test_an_init_during_a_transaction_of_the_last_epochs_neither_overflows_nor_fails(history: History) -> None:
    """KAFKA-19367."""
    history.init()
    for producer_epoch in (LAST_USABLE_EPOCH - 2, LAST_USABLE_EPOCH - 1, LAST_USABLE_EPOCH):
        history.send(history.at_epoch(producer_epoch))

        after = history.init()

        assert 0 <= after.producer_epoch <= LAST_USABLE_EPOCH
        history.send(after)
        history.commit(after)


def test_a_late_abort_at_the_exhausted_epoch_is_answered(
    history: History,
) -> None:
    """KAFKA-20090: the transaction stayed ONGOING for ever."""
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(exhausted)
    history.now_ms += 60_001
    history.abort_timed_out()

    after = history.abort(exhausted)

    assert after == (history.transaction().producer_id, 0)
    assert history.partition().last_stable_offset == history.partition().high_watermark
    history.send(after)
    history.commit(after)


def test_a_commit_that_a_time_out_came_before_costs_only_its_transaction(store: Store, world: World) -> None:
    """KAFKA-20785: INVALID_TXN_STATE, which its client takes for fatal."""
    producer = write(store, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    Coordinator(world.process()).abort_timed_out_transactions()
    with pytest.raises(TransactionAborted):
        producer.commit_transaction()

    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"again", partition=0)
    producer.commit_transaction()

    assert read(store, "t") == [(2, b"again")]
