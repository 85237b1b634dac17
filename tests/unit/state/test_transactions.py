"""Transactions: begun by a batch, ended in one slot; Kafka's answer to every end in every state."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidEntry,
    InvalidTxnState,
    ProducerFenced,
    StagedFilesExpired,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from eoslog.state.draft import Draft
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entries import HorizonMoved
from eoslog.state.partition_state import Outcome
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.state_machine import decode_entry
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_entries import ApplicationVersion
from eoslog.state.transaction_requests import AbortOverdueTransactions, InitProducerId
from tests.unit.state.histories import OTHER_TOPIC_ID, TOPIC_ID, History, offsets_of


def ongoing(history: History) -> ProducerIdentity:
    identity = history.init()
    history.send(identity, count=2)
    return identity


def prepared(history: History) -> ProducerIdentity:
    return history.prepare(ongoing(history))


def kept(history: History) -> ProducerIdentity:
    """A prepared transaction that an init has left to a new holder."""
    prepared(history)
    return history.init(keep_prepared=True)


def refused(history: History, identity: ProducerIdentity, outcome: str) -> type[Exception]:
    request = end_request("tx", identity, outcome, time_ms=history.now_ms)
    return type(history.refused(lambda draft: EndTransaction(request).apply(draft)))


@pytest.mark.further("Transaction metadata")
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_repeat_of_the_end_that_exhausts_the_epoch_is_recognized(outcome: str) -> None:
    history = History()
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(exhausted)

    after = history.end(exhausted, outcome)

    assert after == (history.slot << 20, 0)
    assert history.end(exhausted, outcome) == after
    other = "abort" if outcome == "commit" else "commit"
    assert refused(history, exhausted, other) is InvalidTxnState
    assert history.send(after) == 2
    assert refused(history, exhausted, outcome) is ProducerFenced


def test_a_batch_begins_a_transaction_and_further_ones_belong_to_it() -> None:
    history = History()
    identity = history.init()
    history.now_ms += 5
    history.send(identity, 0, 2)
    began = history.slot
    history.now_ms += 5
    history.send(identity, 0, 1, partition=1)

    transaction = history.transaction()
    assert transaction.state is TransactionState.ONGOING
    assert (transaction.start_slot, transaction.start_ms) == (began, history.now_ms - 5)
    assert {place.partition for place in transaction.partitions} == {0, 1}


@pytest.mark.scenario(118)
def test_every_partition_with_rows_gets_one_control_row_and_no_other() -> None:
    history = History(partitions=3)
    identity = history.init()
    history.send(identity, 0, 2, partition=0)
    history.send(identity, 0, 3, partition=2)

    history.commit(identity)

    assert [history.partition(p).next_offset for p in range(3)] == [3, 0, 4]
    marker = history.partition(2).active[-1]
    assert marker.control is not None
    assert (marker.record_count, marker.producer_epoch) == (1, identity.producer_epoch + 1)
    assert all(batch.end_slot == history.slot for p in (0, 2) for batch in history.partition(p).active)


@pytest.mark.scenario(114)
def test_a_timed_out_transaction_is_aborted_and_its_commit_refused() -> None:
    history = History()
    identity = ongoing(history)
    history.now_ms += 60_000
    assert history.abort_timed_out() == []
    history.now_ms += 1

    assert history.abort_timed_out() == ["tx"]
    assert history.transaction().last_end_reason == "timeout"
    assert refused(history, identity, "commit") is TransactionAborted
    assert history.abort(identity) == (identity.producer_id, identity.producer_epoch + 1)


def test_several_timed_out_transactions_roll_over_in_one_record() -> None:
    history = History()
    for name in ("x", "y", "z"):
        history.init(name)
        history.send(history.at_epoch(LAST_USABLE_EPOCH, name), transactional_id=name)
    history.now_ms += 60_001

    assert history.abort_timed_out() == ["x", "y", "z"]
    assert len({history.transaction(name).producer_id for name in ("x", "y", "z")}) == 3


def test_a_roll_over_waits_for_a_free_producer_id() -> None:
    history = History()
    history.init("late")
    history.send(history.at_epoch(LAST_USABLE_EPOCH, "late"), transactional_id="late")
    identity = history.init("other")
    history.now_ms += 60_001

    def init_and_sweep(draft: Draft) -> list[str]:
        for name in ("x", "y"):
            InitProducerId(name, timeout_ms=1000, time_ms=history.now_ms, kind="job").take(draft)
        return AbortOverdueTransactions(history.now_ms).apply(draft)

    def send_and_sweep(draft: Draft) -> list[str]:
        draft.append(history.batch(identity, transactional_id="other"))
        return AbortOverdueTransactions(history.now_ms).apply(draft)

    assert history.append(init_and_sweep) == []
    assert history.transaction("late").state is TransactionState.ONGOING
    assert history.append(send_and_sweep) == ["late"]


def test_staged_batches_get_offsets_and_their_control_row_in_the_slot_that_commits() -> None:
    history = History()
    identity = history.init()
    other = history.init("other")
    history.send(other, 0, 4, transactional_id="other")

    batches = (history.staged(3), history.staged(2), history.staged(5, partition=1))
    after = history.commit(identity, batches=batches, upload_ms=history.now_ms)

    partition = history.partition()
    assert [batch.base_offset for batch in partition.active] == [0, 4, 7, 9]
    assert [batch.outcome for batch in partition.active] == [Outcome.OPEN] + [Outcome.COMMITTED] * 3
    assert partition.next_offset == 10
    assert history.partition(1).next_offset == 6
    assert identity.producer_id not in partition.producers
    assert after.producer_epoch == identity.producer_epoch + 1
    assert partition.last_stable_offset == 0


def test_staged_and_eager_batches_of_one_transaction_share_one_control_row() -> None:
    history = History()
    identity = ongoing(history)

    history.commit(identity, batches=(history.staged(3),), upload_ms=history.now_ms)

    assert [(b.base_offset, b.record_count) for b in history.partition().active] == [(0, 2), (2, 3), (5, 1)]


def test_staged_files_older_than_the_horizon_are_refused_before_the_slot_is_claimed() -> None:
    history = History()
    identity = history.init()
    uploaded = history.now_ms
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=uploaded)))
    content = TransactionContent(batches=(history.staged(),), upload_ms=uploaded)
    request = end_request("tx", identity, "commit", content=content, time_ms=history.now_ms)

    assert isinstance(history.refused(lambda draft: EndTransaction(request).apply(draft)), StagedFilesExpired)
    later = request.model_copy(update={"upload_ms": uploaded + 1})
    history.append(lambda draft: EndTransaction(later).apply(draft).identity)


def test_staged_batches_of_a_deleted_topic_or_an_unknown_partition_are_refused() -> None:
    history = History()
    identity = history.init()
    for batch in (history.staged(topic_id=OTHER_TOPIC_ID), history.staged(partition=7)):
        content = TransactionContent(batches=(batch,), upload_ms=history.now_ms)
        request = end_request("tx", identity, "commit", content=content, time_ms=0)
        assert isinstance(
            history.refused(lambda draft, r=request: EndTransaction(r).apply(draft)), UnknownTopicOrPartition
        )


def test_a_file_outside_of_its_partitions_directory_is_refused() -> None:
    history = History()
    identity = history.init()
    batch = history.batch(identity, file=history.file(1))
    staged = history.staged().model_copy(update={"file": history.file(1)})
    content = TransactionContent(batches=(staged,), upload_ms=history.now_ms)
    request = end_request("tx", identity, "commit", content=content, time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), InvalidEntry)
    assert isinstance(history.refused(lambda draft: EndTransaction(request).apply(draft)), InvalidEntry)


def test_an_abort_holds_nothing() -> None:
    history = History()
    identity = ongoing(history)
    for content in (
        TransactionContent(batches=(history.staged(),), upload_ms=history.now_ms),
        TransactionContent(offsets=(offsets_of("g", 1),)),
        TransactionContent(application_version=ApplicationVersion(application_id="app", sink="*", version=1)),
    ):
        request = end_request("tx", identity, "abort", content=content, time_ms=0)
        assert isinstance(history.refused(lambda draft, r=request: EndTransaction(r).apply(draft)), InvalidEntry)


@pytest.mark.parametrize(
    "change",
    [
        {"next_producer_epoch": 7},
        {"next_producer_id": 7},
        {"markers": []},
        {"markers": [{"topic_id": TOPIC_ID, "partition": 0, "offset": 0}]},
        {"markers": [{"topic_id": TOPIC_ID, "partition": 1, "offset": 0}]},
    ],
)
def test_an_end_that_claims_what_it_does_not_get_is_invalid(change: dict[str, object]) -> None:
    history = History()
    identity = ongoing(history)
    branch = History()
    ongoing(branch)
    branch.commit(identity)

    assert history.is_invalid(decode_entry(branch.records[-1][0] | change))
    assert not history.is_invalid(decode_entry(branch.records[-1][0]))
