"""A prepared transaction when its holder changes: kept by the next one, which alone completes it."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidTxnState, ProducerFenced
from eoslog.state.partition_state import Control
from eoslog.state.producer_ids import LAST_USABLE_EPOCH
from eoslog.state.sequences import MAX_EPOCH
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_requests import InitProducerId
from tests.unit.state.histories import History
from tests.unit.state.prepared import eager, end_refused, prepare_refused


def test_an_init_aborts_a_prepared_transaction_unless_it_is_told_to_keep_it() -> None:
    history = History()
    eager(history)

    history.init()

    assert history.transaction().state is TransactionState.EMPTY
    assert history.transaction().prepared is None
    assert [txn.last_offset for txn in history.partition().aborted] == [2]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_kept_one_is_completed_by_its_new_holder_and_by_nobody_else(outcome: str) -> None:
    history = History()
    named = eager(history)

    holder = history.init(keep_prepared=True)

    transaction = history.transaction()
    assert holder == named._replace(producer_epoch=named.producer_epoch + 1)
    assert transaction.state is TransactionState.ONGOING
    assert transaction.prepared is not None
    assert transaction.prepared.producer_epoch == named.producer_epoch
    for call in ("commit", "abort"):
        assert isinstance(end_refused(history, named, call), ProducerFenced)
    assert isinstance(prepare_refused(history, named), ProducerFenced)
    late, own = history.batch(named, 2), history.batch(holder)
    assert isinstance(history.refused(lambda draft: draft.append(late).base_offset), ProducerFenced)
    assert isinstance(history.refused(lambda draft: draft.append(own).base_offset), InvalidTxnState)
    assert isinstance(prepare_refused(history, holder), InvalidTxnState)

    after = history.end(holder, outcome)

    marker = history.partition().active[-1]
    assert marker.control is (Control.COMMIT if outcome == "commit" else Control.ABORT)
    assert (marker.producer_id, marker.producer_epoch) == (holder.producer_id, holder.producer_epoch + 1)
    assert after.producer_epoch == holder.producer_epoch + 1
    assert history.end(holder, outcome) == after
    assert history.partition().last_stable_offset == 3
    assert history.send(after) == 3


def test_it_survives_any_number_of_inits_with_its_rows_and_its_name() -> None:
    history = History()
    named = history.init()
    history.prepare(named, batches=(history.staged(2),))
    holders = [history.init(keep_prepared=True) for _ in range(3)]

    history.commit(holders[-1])

    rows, marker = history.partition().active
    assert (rows.producer_id, rows.producer_epoch) == named
    assert marker.producer_epoch == holders[-1].producer_epoch + 1


def test_keeping_with_an_open_transaction_that_is_not_prepared_aborts_it_and_with_none_gives_out_the_next_epoch() -> (
    None
):
    history = History()
    first = history.init(keep_prepared=True)
    history.send(first)

    second = history.init(keep_prepared=True)
    third = history.init(keep_prepared=True)

    assert [first.producer_epoch, second.producer_epoch, third.producer_epoch] == [0, 2, 3]
    assert history.transaction().state is TransactionState.EMPTY
    assert len(history.partition().aborted) == 1


def test_an_init_that_keeps_and_is_repeated_is_answered_the_same_without_a_record() -> None:
    history = History()
    named = eager(history)
    holder = history.init(expected=named, keep_prepared=True)
    slot = history.slot

    assert history.init(expected=named, keep_prepared=True) == holder
    assert history.slot == slot
    error = history.refused(lambda draft: InitProducerId("tx", timeout_ms=1, time_ms=1, expected=named).take(draft))
    assert isinstance(error, ProducerFenced)


def test_an_init_is_no_repetition_once_its_successor_has_prepared_a_transaction_itself() -> None:
    history = History()
    first = history.init()
    second = history.init(expected=first)
    history.prepare(second)

    error = history.refused(
        lambda draft: InitProducerId("tx", timeout_ms=1, time_ms=1, expected=first, keep_prepared=True).take(draft)
    )

    assert isinstance(error, ProducerFenced)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_the_rows_stay_those_of_the_old_producer_id_when_the_epoch_is_exhausted_while_prepared(outcome: str) -> None:
    history = History()
    history.init()
    named = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(named, 0, 2)
    history.prepare(named, batches=(history.staged(3, partition=1),))

    holder = history.init(keep_prepared=True)

    assert holder == (history.slot << 20, 0)
    assert history.transaction().open_producer_id == named.producer_id
    assert isinstance(end_refused(history, named, outcome), ProducerFenced)
    after = history.end(holder, outcome)
    partition = history.partition()
    assert partition.last_stable_offset == partition.high_watermark == 3
    marker = partition.active[-1]
    assert (marker.producer_id, marker.producer_epoch) == (named.producer_id, MAX_EPOCH)
    assert not partition.producers
    staged = history.partition(1).active
    assert [batch.producer_id for batch in staged] == [named.producer_id] * (2 if outcome == "commit" else 0)
    assert history.end(holder, outcome) == after == holder._replace(producer_epoch=1)
    assert history.send(after) == 3


def test_the_end_of_a_prepared_transaction_may_exhaust_the_epoch_too() -> None:
    history = History()
    history.init()
    named = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(named)
    history.prepare(named)

    after = history.commit(named)

    assert after == (history.slot << 20, 0)
    assert history.commit(named) == after
    assert history.partition().active[-1].producer_epoch == MAX_EPOCH
    assert not history.partition().producers
