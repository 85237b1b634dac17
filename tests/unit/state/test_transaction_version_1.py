"""Ends of transaction version 1, which keep the epoch: Kafka's table cell by cell, sequences, and late requests."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.errors import (
    ConcurrentTransactions,
    EosLogError,
    InvalidEntry,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAborted,
    UnsupportedFormat,
)
from eoslog.format.checkpoint_codec import parts
from eoslog.session.store_machine import StoreMachine
from eoslog.state import features
from eoslog.state.append_requests import AppendBatches, AppendedRows, DuplicateRows
from eoslog.state.end_requests import EndTransaction, end_request
from eoslog.state.features import READER_FEATURES, TRANSACTION_VERSION
from eoslog.state.partition_state import Control, Outcome
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.shared_entries import is_shareable_end
from eoslog.state.state_machine import decode_entry
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import InitProducerId
from tests.unit.state.answers import batch_refused, end_refused, is_inert, previous, reloaded
from tests.unit.state.histories import OTHER_TOPIC_ID, History, fold, topic_created

STATES = (
    "EMPTY",
    "ONGOING by a batch",
    "ONGOING by an addition",
    "ONGOING, prepared",
    "COMPLETE_COMMIT by version 1",
    "COMPLETE_COMMIT by version 2",
    "COMPLETE_ABORT by version 1",
    "COMPLETE_ABORT by version 2",
)
KEPT, REPEATED = "done, and the epoch kept", "answered again"
CELLS = [
    ("EMPTY", "commit", InvalidTxnState),
    ("EMPTY", "abort", InvalidTxnState),
    ("ONGOING by a batch", "commit", KEPT),
    ("ONGOING by a batch", "abort", KEPT),
    ("ONGOING by an addition", "commit", KEPT),
    ("ONGOING by an addition", "abort", KEPT),
    ("ONGOING, prepared", "commit", InvalidTxnState),
    ("ONGOING, prepared", "abort", InvalidTxnState),
    ("COMPLETE_COMMIT by version 1", "commit", REPEATED),
    ("COMPLETE_COMMIT by version 1", "abort", InvalidTxnState),
    ("COMPLETE_COMMIT by version 2", "commit", REPEATED),
    ("COMPLETE_COMMIT by version 2", "abort", InvalidTxnState),
    ("COMPLETE_ABORT by version 1", "commit", InvalidTxnState),
    ("COMPLETE_ABORT by version 1", "abort", REPEATED),
    ("COMPLETE_ABORT by version 2", "commit", InvalidTxnState),
    ("COMPLETE_ABORT by version 2", "abort", REPEATED),
]


def bring_to(history: History, state: str) -> ProducerIdentity:
    """An id in this state, whose epoch is not its first one. Returns the current identity."""
    history.init()
    identity = history.init()
    if state == "ONGOING by an addition":
        history.add(identity, 0)
    elif state != "EMPTY":
        history.send(identity)
    if "prepared" in state:
        history.prepare(identity)
    if "COMPLETE" in state:
        outcome = "commit" if "COMMIT" in state else "abort"
        identity = history.end(identity, outcome, keeps_epoch=state.endswith("version 1"))
    assert history.transaction().state.name == state.partition(" ")[0].strip(",")
    return identity


def ended(history: History, identity: ProducerIdentity, outcome: str) -> ProducerIdentity:
    """End a transaction under version 1."""
    return history.end(identity, outcome, keeps_epoch=True)


@pytest.mark.scenario(106)
@pytest.mark.parametrize(("state", "outcome", "answer"), CELLS)
def test_an_end_of_the_current_identity_is_answered_as_in_kafkas_table(
    history: History, state: str, outcome: str, answer: str | type[EosLogError]
) -> None:
    identity = bring_to(history, state)
    slot = history.slot

    if isinstance(answer, type):
        assert end_refused(history, identity, outcome, keeps_epoch=True) is answer
        return
    assert ended(history, identity, outcome) == identity
    assert history.transaction().state.name == f"COMPLETE_{outcome.upper()}"
    assert history.slot == (slot if answer == REPEATED else slot + 1)
    assert (history.transaction().producer_id, history.transaction().producer_epoch) == identity


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_of_another_epoch_is_fenced_in_every_state(history: History, state: str, outcome: str) -> None:
    identity = bring_to(history, state)

    for epoch in (identity.producer_epoch - 1, identity.producer_epoch + 1):
        other = identity._replace(producer_epoch=epoch)
        assert end_refused(history, other, outcome, keeps_epoch=True) is ProducerFenced


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_of_another_producer_id_or_of_an_unknown_id_is_refused_in_every_state(
    history: History, state: str, outcome: str
) -> None:
    identity = bring_to(history, state)

    other = identity._replace(producer_id=identity.producer_id + 1)
    assert end_refused(history, other, outcome, keeps_epoch=True) is InvalidProducerIdMapping
    assert end_refused(history, identity, outcome, "unknown", keeps_epoch=True) is InvalidProducerIdMapping


def test_an_end_of_a_job_is_refused(history: History) -> None:
    identity = history.job("run", history.staged(task=0))

    assert end_refused(history, identity, "commit", "job", keeps_epoch=True) is ProducerFenced


# Rows, markers and sequences


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_the_marker_has_the_epoch_of_the_rows_and_decides_them(history: History, outcome: str) -> None:
    identity = bring_to(history, "ONGOING by a batch")
    history.send(identity, partition=1)

    ended(history, identity, outcome)

    for partition in (history.partition(0), history.partition(1)):
        rows, marker = partition.active
        assert marker.control is (Control.COMMIT if outcome == "commit" else Control.ABORT)
        assert marker.producer_epoch == rows.producer_epoch == identity.producer_epoch
        assert rows.outcome is (Outcome.COMMITTED if outcome == "commit" else Outcome.ABORTED)
        assert partition.last_stable_offset == partition.high_watermark == 2
        assert [txn.first_offset for txn in partition.aborted] == ([] if outcome == "commit" else [0])
    assert history.records[-1][-1]["next_producer_epoch"] == identity.producer_epoch


def test_a_transaction_that_only_an_addition_began_ends_without_a_marker(history: History) -> None:
    identity = bring_to(history, "ONGOING by an addition")

    ended(history, identity, "commit")

    assert history.records[-1][-1]["markers"] == []
    assert history.partition().high_watermark == 0


@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("restored", [False, True])
def test_sequences_go_on_after_an_end_and_the_last_five_batches_are_still_recognized(
    history: History, outcome: str, restored: bool
) -> None:
    identity = history.init()
    batches = [history.batch(identity, 2 * number, 2) for number in range(6)]
    for batch in batches:
        history.append(lambda draft, batch=batch: draft.append(batch))
    ended(history, identity, outcome)
    if restored:
        history.state = reloaded(history)

    for number, batch in enumerate(batches):
        error = history.refused(lambda draft, batch=batch: draft.append(batch))
        assert isinstance(error, DuplicateBatch)
        assert error.base_offset == (2 * number if number else -1)
    assert batch_refused(history, identity, 13) is OutOfOrderSequence
    assert history.send(identity, 12) == 13
    ended(history, identity, outcome)
    assert history.send(identity, 13) == 15
    assert history.send(identity, 0, partition=1) == 0


def test_sequences_go_on_after_a_segment_is_sealed_behind_the_marker(history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 3)
    history.send(identity, 3, 2)
    ended(history, identity, "commit")
    history.seal(history.partition().next_offset)

    known = history.partition().producers[identity.producer_id]
    assert history.partition().start_producers[identity.producer_id] == known._replace(batches=known.batches[-1:])
    assert history.send(identity, 5) == 6


def test_an_end_of_version_2_after_one_of_version_1_raises_the_epoch_and_sequences_begin_again(
    history: History,
) -> None:
    identity = bring_to(history, "COMPLETE_COMMIT by version 1")
    history.send(identity, 1)

    after = history.commit(identity)

    assert after == identity._replace(producer_epoch=identity.producer_epoch + 1)
    assert history.commit(identity) == after
    assert batch_refused(history, after, 2) is OutOfOrderSequence
    history.send(after)
    assert ended(history, after, "commit") == after
    assert end_refused(history, identity, "commit") is ProducerFenced


def test_the_highest_usable_epoch_is_kept_too(history: History) -> None:
    history.init()
    identity = history.at_epoch(LAST_USABLE_EPOCH)

    for sequence in (0, 1):
        history.send(identity, sequence)
        assert ended(history, identity, "commit") == identity


def test_a_topic_that_was_deleted_meanwhile_gets_no_marker(history: History) -> None:
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID, 1)))
    identity = history.init()
    history.add(identity, 0)
    history.add(identity, 0, topic_id=OTHER_TOPIC_ID)
    history.send(identity)
    history.send(identity, topic_id=OTHER_TOPIC_ID)
    history.delete_topic("other", OTHER_TOPIC_ID)
    history.append(lambda draft: draft.append(topic_created("other", "c" * 32, 1)))

    ended(history, identity, "commit")

    assert history.partition().last_stable_offset == 2
    assert history.partition(0, "c" * 32).high_watermark == 0


# Aborts by others, and holders before


def fence(history: History) -> None:
    assert history.fence()


def take_over(history: History) -> None:
    history.init()


def time_out(history: History) -> None:
    history.now_ms += 10**6
    assert history.abort_timed_out() == ["tx"]


def abort_by_admin(history: History) -> None:
    assert history.abort_by_admin()


@pytest.mark.parametrize("begun", ["by a batch", "by an addition"])
@pytest.mark.parametrize("abort", [fence, take_over, time_out, abort_by_admin])
def test_an_abort_by_another_raises_the_epoch_and_refuses_the_old_identity(
    history: History, begun: str, abort: Any
) -> None:
    identity = bring_to(history, "COMPLETE_COMMIT by version 1")
    if begun == "by a batch":
        history.send(identity, 1)
    else:
        history.add(identity, 0)

    abort(history)

    assert history.transaction().producer_id == identity.producer_id
    assert history.transaction().producer_epoch > identity.producer_epoch
    marker = history.partition().active[-1]
    assert marker.producer_epoch == identity.producer_epoch + (1 if begun == "by a batch" else 0)
    learns = abort in (time_out, abort_by_admin)
    assert batch_refused(history, identity, 2) is (InvalidProducerEpoch if learns else ProducerFenced)
    for outcome in ("commit", "abort"):
        assert end_refused(history, identity, outcome, keeps_epoch=True) is ProducerFenced
    assert end_refused(history, identity, "commit") is (TransactionAborted if learns else ProducerFenced)


@pytest.mark.parametrize("rolls_over", [False, True])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("keeps_epoch", [False, True])
def test_a_holder_before_is_not_told_that_its_end_was_done_because_its_successor_ended_one(
    history: History, rolls_over: bool, outcome: str, keeps_epoch: bool
) -> None:
    before = history.init()
    if rolls_over:
        before = history.at_epoch(LAST_USABLE_EPOCH)
    # The successor states the identity of the holder before. So the state keeps that identity.
    successor = history.init(expected=before)
    assert (successor.producer_id != before.producer_id) is rolls_over
    history.send(successor)
    ended(history, successor, outcome)

    refused = InvalidProducerIdMapping if rolls_over and keeps_epoch else ProducerFenced
    assert end_refused(history, before, outcome, keeps_epoch=keeps_epoch) is refused
    assert batch_refused(history, before, 1) is ProducerFenced
    assert ended(history, successor, outcome) == successor


def test_an_abort_that_kept_the_epoch_passes_for_none_of_the_epoch_before(history: History) -> None:
    """The reason of the last end would tell the holder before that a timeout aborted its transaction."""
    before = history.init()
    identity = history.init()
    history.send(identity)
    time_out(history)
    assert batch_refused(history, before) is ProducerFenced
    identity = history.init()
    history.send(identity)
    ended(history, identity, "abort")

    assert batch_refused(history, previous(identity)) is ProducerFenced


def test_an_init_that_states_its_identity_after_an_end_is_answered_as_ever(history: History) -> None:
    before = history.init()
    identity = history.init()
    history.send(identity)
    ended(history, identity, "commit")

    def take(expected: ProducerIdentity) -> Exception:
        return history.refused(InitProducerId("tx", timeout_ms=60_000, time_ms=history.now_ms, expected=expected).apply)

    assert isinstance(take(before), ProducerFenced)
    after = history.init(expected=identity)
    assert after == identity._replace(producer_epoch=identity.producer_epoch + 1)
    slot = history.slot
    assert history.init(expected=identity) == after
    assert history.slot == slot
    assert isinstance(take(before), ProducerFenced)


# Late requests


def begin(history: History, identity: ProducerIdentity, sequence: int, by: str) -> int:
    """Begin a transaction. Returns the slot in which it began."""
    if by == "a batch":
        history.send(identity, sequence)
    else:
        history.add(identity, 1)
    assert history.transaction().start_slot == history.slot
    return history.slot


@pytest.mark.parametrize("by", ["a batch", "an addition"])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_late_end_does_not_hit_the_next_transaction(history: History, by: str, outcome: str) -> None:
    identity = history.init()
    first = begin(history, identity, 0, by)
    late = EndTransaction(
        end_request("tx", identity, outcome, keeps_epoch=True, time_ms=history.now_ms), start_slot=first
    )
    assert history.append(late.apply) == (identity, True)
    slot = history.slot
    assert history.append(late.apply) == (identity, True)
    assert history.slot == slot
    second = begin(history, identity, 1, by)

    assert isinstance(history.refused(late.apply), ConcurrentTransactions)
    end = EndTransaction(late.entry, start_slot=second)
    assert history.append(end.apply) == (identity, True)


def test_an_end_without_the_slot_of_its_begin_ends_whatever_is_open(history: History) -> None:
    identity = history.init()
    late = EndTransaction(end_request("tx", identity, "abort", keeps_epoch=True, time_ms=history.now_ms))
    for sequence in (0, 1):
        history.send(identity, sequence)
        assert history.append(late.apply) == (identity, True)
    assert history.partition().high_watermark == 4


def test_no_other_process_may_append_an_end_that_keeps_the_epoch(history: History) -> None:
    identity = history.init()
    history.send(identity)
    kept = end_request("tx", identity, "commit", keeps_epoch=True, time_ms=history.now_ms)
    raised = end_request("tx", identity, "commit", time_ms=history.now_ms)

    assert (is_shareable_end(kept), is_shareable_end(raised)) == (False, True)
    assert EndTransaction(kept).shared_entries == ()
    entry = kept.model_dump(mode="json")
    error = history.refused(lambda draft: StoreMachine().append_for_another(draft, [entry], {}))
    assert isinstance(error, InvalidEntry)


def to_added(*batches: BatchAppended) -> AppendBatches:
    return AppendBatches(batches, needs_added_partition=True)


@pytest.mark.parametrize("state", [state for state in STATES if "ONGOING" not in state])
def test_batches_need_an_added_partition_and_late_additions_an_open_transaction(history: History, state: str) -> None:
    identity = bring_to(history, state)
    batch = history.batch(identity, 0 if state == "EMPTY" else 1)

    assert isinstance(history.refused(to_added(batch).apply), InvalidTxnState)
    error = history.refused(lambda draft: history.add(identity, 0, may_begin=False))
    assert isinstance(error, InvalidTxnState)


def test_a_batch_that_needs_an_added_partition_goes_where_the_transaction_has_it(history: History) -> None:
    identity = history.init()
    history.add(identity, 0)
    inside, outside = history.batch(identity), history.batch(identity, partition=1)

    assert isinstance(history.refused(to_added(outside).apply), InvalidTxnState)
    assert isinstance(history.refused(to_added(inside, outside).apply), InvalidTxnState)
    assert type(history.append(to_added(inside).apply)[0]) is AppendedRows
    assert type(history.append(to_added(inside).apply)[0]) is DuplicateRows
    history.add(identity, 1, may_begin=False)
    (appended,) = history.append(to_added(outside).apply)
    assert appended.base_offset == 0
    ended(history, identity, "commit")

    # The log still knows the batch. Its transaction is over, so it is refused all the same.
    assert isinstance(history.refused(to_added(inside).apply), InvalidTxnState)
    history.add(identity, 0)
    assert type(history.append(to_added(inside).apply)[0]) is DuplicateRows


def test_a_partition_that_has_a_batch_needs_no_addition(history: History) -> None:
    identity = history.init()
    history.send(identity)

    (appended,) = history.append(to_added(history.batch(identity, 1)).apply)

    assert appended.base_offset == 1


def test_a_fenced_producer_is_told_so_also_where_its_partition_was_not_added(history: History) -> None:
    identity = history.init()
    history.add(identity, 0)
    time_out(history)
    assert isinstance(history.refused(to_added(history.batch(identity)).apply), InvalidProducerEpoch)
    history.add(history.init(), 0)
    assert isinstance(history.refused(to_added(history.batch(identity)).apply), ProducerFenced)


def test_batches_without_a_transaction_need_no_verification(history: History) -> None:
    batch = history.batch(history.init(None), transactional_id=None)

    assert len(history.append(to_added(batch).apply)) == 1


def test_no_other_process_may_append_a_batch_that_needs_an_added_partition(history: History) -> None:
    identity = history.init()
    batch = history.batch(identity)

    assert to_added(batch).shared_entries == ()
    assert AppendBatches([batch]).shared_entries == [batch]


# The log


def test_the_store_gets_the_feature_once_and_just_before_the_first_entry_that_needs_it() -> None:
    by_end, by_addition = History(), History()
    for history in (by_end, by_addition):
        identity = history.init()
        assert end_refused(history, identity, "commit", keeps_epoch=True) is InvalidTxnState
        unknown = history.addition(identity, 9)
        history.refused(lambda draft, entry=unknown: draft.append(entry))
        if history is by_addition:
            history.add(identity, 0)
            history.add(identity, 0)
            history.add(identity, 1)
        history.send(identity)
        assert (TRANSACTION_VERSION in history.state.reader_features) is (history is by_addition)
        for _ in range(2):
            ended(history, identity, "commit")
        history.send(identity, 1)
        ended(history, identity, "commit")
        assert history.state.reader_features == (TRANSACTION_VERSION,)

    types = [[[entry["type"] for entry in record] for record in log.records[3:]] for log in (by_end, by_addition)]
    assert types == [
        [["batch"], ["features", "end"], ["batch"], ["end"]],
        [["features", "add_to_transaction"], ["add_to_transaction"], ["batch"], ["end"], ["batch"], ["end"]],
    ]


def test_a_version_without_the_feature_refuses_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    history, older = History(), History()
    older.init()
    history.add(history.init(), 0)
    monkeypatch.setattr(features, "READER_FEATURES", READER_FEATURES - {TRANSACTION_VERSION})

    with pytest.raises(UnsupportedFormat, match=TRANSACTION_VERSION):
        fold(older.state, history.slot, history.records[-1])
    encoded = {part.name: part.encode() for part in parts(history.state, history.slot)}
    with pytest.raises(UnsupportedFormat, match=TRANSACTION_VERSION):
        StoreMachine().restore(encoded)


@pytest.mark.parametrize(
    "change",
    [
        {"transaction_version": None},
        {"next_producer_epoch": 2},
        {"next_producer_epoch": 0},
        {"next_producer_id": 7},
        {"producer_epoch": 0},
        {"markers": []},
        {"reason": "timeout"},
        {"reason": "fence"},
        {"task_count": 1},
        {"owner": "run"},
    ],
)
def test_an_end_with_other_results_or_of_another_kind_is_invalid(change: dict[str, object]) -> None:
    history, branch = History(), History()
    bring_to(history, "ONGOING by a batch")
    ended(branch, bring_to(branch, "ONGOING by a batch"), "commit")
    end = branch.records[-1][-1]

    assert not history.is_invalid(decode_entry(end))
    assert history.is_invalid(decode_entry(end | change))


def test_an_end_with_staged_batches_is_invalid(history: History) -> None:
    identity = bring_to(history, "ONGOING by a batch")

    error = history.refused(
        lambda draft: history.end(
            identity, "commit", keeps_epoch=True, batches=(history.staged(),), upload_ms=history.now_ms
        )
    )

    assert isinstance(error, InvalidEntry)


@pytest.mark.parametrize("version", [0, 2, 3, -1, "1", 1.0, 1.5, True, [1], {}])
def test_an_end_of_any_other_version_changes_nothing(history: History, version: object) -> None:
    branch = History()
    bring_to(history, "ONGOING by a batch")
    ended(branch, bring_to(branch, "ONGOING by a batch"), "commit")
    record = [*branch.records[-1][:-1], branch.records[-1][-1] | {"transaction_version": version}]

    assert is_inert(history.state, history.slot + 1, record)
