"""Prepared transactions: what they take, who holds them, and what their end gives them."""

from __future__ import annotations

import copy

import pytest

from eoslog.errors import (
    IllegalGeneration,
    InvalidEntry,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    StagedFilesExpired,
    TransactionAborted,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from eoslog.format import checkpoint_codec as checkpoint
from eoslog.state.entries import HorizonMoved
from eoslog.state.group_entries import OffsetsCommitted
from eoslog.state.partition_state import NO_SLOT, Control
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS, parse_prepared_state, prepared_state
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.sequences import MAX_EPOCH, DuplicateBatch
from eoslog.state.state_machine import decode_entry
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary
from eoslog.state.transaction_requests import AbortTransaction, ForceTerminateTransaction, InitProducerId
from tests.unit.state.answers import batch_refused
from tests.unit.state.histories import OTHER_TOPIC_ID, History, joining, offsets_of, planned_expiry, topic_created
from tests.unit.state.prepared import PLACE, eager, end_refused, prepare_refused

# Preparing


def test_a_prepared_transaction_stays_ongoing_and_is_named_by_its_identity() -> None:
    history = History()
    named = eager(history)

    transaction = history.transaction()

    assert transaction.state is TransactionState.ONGOING
    assert transaction.prepared is not None
    assert named == (transaction.producer_id, transaction.producer_epoch)
    assert transaction.prepared_slot == history.slot
    assert history.state.ongoing == {"tx": transaction.start_ms}


def test_an_eager_prepared_transaction_holds_the_last_stable_offset() -> None:
    history = History()
    eager(history)
    other = history.init("other")
    history.prepare(other, "other", batches=(history.staged(3, partition=1),))

    assert history.partition(0).last_stable_offset == 0
    assert history.partition(1).high_watermark == 0
    assert other.producer_id not in history.partition(1).producers


def test_an_empty_transaction_can_be_prepared_under_its_own_name() -> None:
    history = History()
    first = history.prepare(history.init())
    second = history.prepare(history.commit(first))

    assert history.transaction().state is TransactionState.ONGOING
    assert first != second


@pytest.mark.scenario(104)
def test_it_takes_no_more_batches_offsets_or_application_versions() -> None:
    history = History()
    identity = eager(history)
    batch = history.batch(identity, 2)

    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), InvalidTxnState)
    more = {
        "batches": {"batches": (history.staged(),), "upload_ms": history.now_ms},
        "offsets": {"offsets": (offsets_of("g", 1),)},
        "application_version": {"application_version": ApplicationVersion(application_id="app", sink="*", version=1)},
    }
    for options in more.values():
        assert isinstance(end_refused(history, identity, "commit", **options), InvalidTxnState)
    assert isinstance(prepare_refused(history, identity, batches=(history.staged(),)), InvalidTxnState)
    assert isinstance(prepare_refused(history, identity, offsets=(offsets_of("g", 1),)), InvalidTxnState)


def test_a_batch_that_is_repeated_after_the_prepare_is_still_known() -> None:
    history = History()
    identity = history.init()
    batch = history.batch(identity)
    history.append(lambda draft: draft.append(batch).base_offset)
    history.prepare(identity)

    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), DuplicateBatch)


def test_a_prepare_that_is_repeated_is_answered_the_same_without_a_record() -> None:
    history = History()
    identity, staged = history.init(), history.staged()
    history.prepare(identity, batches=(staged,), offsets=(offsets_of("g", 1),))
    slot = history.slot
    history.now_ms += 5

    assert history.prepare(identity, batches=(staged,), offsets=(offsets_of("g", 1),)) == identity
    assert history.slot == slot


def test_a_producer_that_does_not_hold_the_id_cannot_prepare() -> None:
    history = History()
    zombie = history.init()
    history.init()

    assert isinstance(prepare_refused(history, zombie), ProducerFenced)
    assert isinstance(prepare_refused(history, zombie._replace(producer_id=9)), InvalidProducerIdMapping)


def test_an_overdue_transaction_can_be_prepared_until_it_is_aborted() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    history.now_ms += 60_001
    named = history.prepare(identity)
    assert history.abort_timed_out() == []

    following = history.commit(named)
    history.send(following)
    history.now_ms += 60_001
    assert history.abort_timed_out() == ["tx"]
    assert isinstance(prepare_refused(history, following), InvalidProducerEpoch)


def test_all_that_can_refuse_a_commit_refuses_the_prepare() -> None:
    history = History()
    identity, uploaded = history.init(), history.now_ms
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=uploaded)))
    misplaced = history.staged().model_copy(update={"file": history.file(1)})

    for options, error in (
        ({"batches": (history.staged(),), "upload_ms": uploaded}, StagedFilesExpired),
        ({"batches": (history.staged(),), "upload_ms": None}, InvalidEntry),
        ({"batches": (misplaced,), "upload_ms": uploaded + 1}, InvalidEntry),
        ({"batches": (history.staged(topic_id=OTHER_TOPIC_ID),), "upload_ms": uploaded + 1}, UnknownTopicOrPartition),
        ({"batches": (history.staged(partition=7),), "upload_ms": uploaded + 1}, UnknownTopicOrPartition),
        ({"offsets": (offsets_of("g", 1, topic_id=OTHER_TOPIC_ID),)}, UnknownTopicOrPartition),
        ({"offsets": (offsets_of("g", 1, generation=3, member_id="m"),)}, IllegalGeneration),
    ):
        assert isinstance(prepare_refused(history, identity, **options), error), options


def test_a_jobs_transaction_is_not_prepared_nor_does_a_job_keep_a_prepared_one() -> None:
    history = History()
    identity = history.init(kind="job", owner="run")
    assert isinstance(prepare_refused(history, identity), InvalidTxnState)
    other = History()
    eager(other)

    def keep(draft: object) -> object:
        return InitProducerId("tx", timeout_ms=1, time_ms=1, kind="job", owner="r", keep_prepared=True).take(draft)  # type: ignore[arg-type]

    assert isinstance(other.refused(keep), InvalidRequest)


# Completing


def test_a_commit_places_what_was_staged_with_one_control_row_and_counts_the_offsets() -> None:
    history = History()
    identity = history.init()
    history.send(identity, 0, 2)
    history.prepare(
        identity, batches=(history.staged(3), history.staged(1, partition=1)), offsets=(offsets_of("g", 9),)
    )
    assert not history.state.groups

    after = history.commit(identity)

    assert [(b.base_offset, b.record_count) for b in history.partition().active] == [(0, 2), (2, 3), (5, 1)]
    assert {(b.producer_id, b.producer_epoch) for b in history.partition().active[:2]} == {identity}
    assert history.partition(1).next_offset == 2
    assert history.state.groups["g"].offsets[PLACE][0] == 9
    assert after == identity._replace(producer_epoch=1)
    assert history.transaction().prepared is None
    assert history.transaction().prepared_slot == NO_SLOT


def test_an_abort_leaves_the_eager_rows_aborted_and_nothing_of_what_was_staged() -> None:
    history = History()
    identity = history.init()
    history.send(identity, 0, 2)
    history.prepare(identity, batches=(history.staged(3, partition=1),), offsets=(offsets_of("g", 9),))

    history.abort(identity)

    assert [txn.last_offset for txn in history.partition().aborted] == [2]
    assert history.partition(1).next_offset == 0
    assert not history.state.groups


def test_a_prepared_commit_ignores_file_age_and_generation() -> None:
    history = History()
    identity = history.init()
    history.change_group(joining("m"))
    history.prepare(identity, batches=(history.staged(),), offsets=(offsets_of("g", 9, 1, "m"),))
    history.change_group(left=["m"])
    history.now_ms += 10**12
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    history.commit(identity)

    assert history.partition().next_offset == 2
    assert history.state.groups["g"].offsets[PLACE][0] == 9


def test_the_commit_leaves_out_what_belongs_to_topics_deleted_meanwhile() -> None:
    history = History()
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID, 1)))
    identity = history.init()
    history.send(identity)
    batches = (history.staged(2), history.staged(3, topic_id=OTHER_TOPIC_ID))
    offsets = (offsets_of("g", 9), offsets_of("h", 8, topic_id=OTHER_TOPIC_ID))
    history.prepare(identity, batches=batches, offsets=offsets)
    history.delete_topic()
    history.append(lambda draft: draft.append(topic_created("t", "c" * 32, 1)))

    history.commit(identity)

    assert history.partition(0, OTHER_TOPIC_ID).next_offset == 4
    assert history.partition(0, "c" * 32).next_offset == 0
    assert set(history.state.groups) == {"h"}


@pytest.mark.scenario(160)
def test_an_offset_that_the_group_committed_after_the_prepare_is_the_newer_one() -> None:
    history = History()
    identity = history.init()
    earlier = OffsetsCommitted(committed=offsets_of("g", 3), time_ms=0)
    history.append(lambda draft: draft.append(earlier))
    history.prepare(identity, offsets=(offsets_of("g", 5), offsets_of("h", 5)))
    later = OffsetsCommitted(committed=offsets_of("g", 50), time_ms=0)
    history.append(lambda draft: draft.append(later))

    history.commit(identity)

    assert [history.state.groups[name].offsets[PLACE].offset for name in "gh"] == [50, 5]


@pytest.mark.further("Offsets and tools")
@pytest.mark.parametrize("order", [("early", "late"), ("late", "early")])
def test_of_two_offsets_that_were_prepared_the_later_one_stays_whichever_commits_first(order: tuple[str, str]) -> None:
    history = History()
    identities = {}
    for name, offset in (("early", 5), ("late", 6)):
        identities[name] = history.init(name)
        history.prepare(identities[name], name, offsets=(offsets_of("g", offset),))

    for name in order:
        history.commit(identities[name], name)

    assert history.state.groups["g"].offsets[PLACE].offset == 6


def test_the_groups_offset_is_pending_until_the_end_and_only_where_it_was_prepared() -> None:
    history = History()
    identity = history.prepare(history.init(), offsets=(offsets_of("g", 5),))

    assert pending_partitions(history.state, "g") == {PLACE}
    assert pending_partitions(history.state, "other") == set()
    history.commit(identity)
    assert pending_partitions(history.state, "g") == set()


# The log and its checkpoints


def test_a_checkpoint_holds_what_is_prepared_and_the_commit_goes_on_from_it() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    history.prepare(
        identity, batches=(history.staged(2, partition=1),), offsets=(offsets_of("g", 7),), timeout_ms=5_000
    )
    parts = {part.name: part.encode() for part in checkpoint.parts(history.state, history.slot)}

    state = checkpoint.restore(parts)

    assert state == history.state
    history.state = state
    history.commit(identity)
    assert history.partition(1).next_offset == 3


@pytest.mark.parametrize(
    "change",
    [
        {"batches": []},
        {"offsets": []},
        {"upload_ms": None},
        {"markers": []},
        {"next_producer_epoch": 7},
        {"producer_epoch": 0},
    ],
)
def test_an_end_that_is_not_the_one_of_what_was_prepared_is_invalid(change: dict[str, object]) -> None:
    def prepared(history: History) -> ProducerIdentity:
        identity = history.init()
        history.prepare(identity, batches=(history.staged(2),), offsets=(offsets_of("g", 7),))
        return history.init(keep_prepared=True)

    history, branch = History(), History()
    prepared(history)
    branch.commit(prepared(branch))

    assert history.is_invalid(decode_entry(branch.records[-1][0] | change))
    assert not history.is_invalid(decode_entry(branch.records[-1][0]))


@pytest.mark.parametrize("statistics", [None, '{"n":[0,7,8]}'])
def test_an_end_may_leave_out_the_prepared_statistics_but_not_change_them(
    statistics: str | None,
) -> None:
    history = History()
    history.prepare(history.init(), batches=(history.staged(2), history.staged(3, partition=1)))
    kept = history.init(keep_prepared=True)
    branch = copy.deepcopy(history)
    branch.commit(kept)
    entry = branch.records[-1][0]
    for batch in entry["batches"]:
        del batch["statistics"]
        if statistics is not None:
            batch["statistics"] = statistics

    if statistics is None:
        history.append(lambda draft: draft.append(decode_entry(entry)))
        assert [batch.statistics for batch in history.partition().active] == [None, None]
        assert history.partition(1).next_offset == 4
    else:
        refused = history.refused(lambda draft: draft.append(decode_entry(entry)))
        assert isinstance(refused, InvalidEntry | InvalidTxnState)


def test_an_init_entry_over_a_prepared_transaction_is_invalid_unless_it_keeps_it() -> None:
    history = History()
    eager(history)
    kept = history.init(keep_prepared=True)
    entry = history.records[-1][0] | {"keep_prepared": False, "producer_epoch": kept.producer_epoch + 1}

    assert isinstance(history.refused(lambda draft: draft.append(decode_entry(entry))), InvalidEntry)


# Its name


def test_the_name_of_a_prepared_transaction_is_producer_id_and_epoch() -> None:
    assert prepared_state(ProducerIdentity(12345, 5)) == "12345:5"
    assert parse_prepared_state("12345:5") == (12345, 5)
    assert parse_prepared_state("") is None


def test_readers_take_the_commit_of_a_prepared_transaction_with_any_summary() -> None:
    history = History()
    prepared = history.prepare(history.init(), batches=(history.staged(2),), summary=CommitSummary(rows=2))
    branch = copy.deepcopy(history)
    branch.commit(prepared)
    (entry,) = (decode_entry(value) for value in branch.records[-1])

    assert entry.summary == CommitSummary(rows=2)
    for summary in (None, CommitSummary(rows=3), CommitSummary(rows=2)):
        assert not history.is_invalid(entry.model_copy(update={"summary": summary}))


# Its holder changes


@pytest.mark.scenario(102)
def test_an_init_aborts_what_is_prepared_unless_it_asks_to_keep_it(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.prepare(identity)

    holder = history.init(keep_prepared=True)
    assert history.transaction().state is TransactionState.ONGOING
    assert batch_refused(history, identity, 1) is ProducerFenced

    history.init()
    assert history.transaction().state is TransactionState.EMPTY
    assert history.transaction().prepared is None
    assert [txn.last_offset for txn in history.partition().aborted] == [1]
    assert history.partition().last_stable_offset == 2
    assert batch_refused(history, holder) is ProducerFenced


@pytest.mark.scenario(102)
def test_a_job_does_not_take_part_in_two_phase_commit(history: History) -> None:
    with pytest.raises(InvalidRequest):
        history.init("job", kind="job", owner="run", keep_prepared=True)

    assert history.state.transactions == {}


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


@pytest.mark.scenario(102)
def test_an_init_that_keeps_aborts_a_transaction_that_is_not_prepared() -> None:
    """Kafka's coordinator does not serve KIP-939 and answers UNSUPPORTED_VERSION."""
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
def test_prepared_rows_keep_their_producer_id_when_the_epoch_is_exhausted(outcome: str) -> None:
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


# Its end by others: its own time-out, or an administrator by force


def test_its_own_time_out_counts_and_not_that_of_the_transaction() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    history.now_ms += 50_000
    history.prepare(identity, timeout_ms=DEFAULT_PREPARED_TIMEOUT_MS)
    history.now_ms += DEFAULT_PREPARED_TIMEOUT_MS
    assert history.abort_timed_out() == []
    history.now_ms += 1

    assert history.abort_timed_out() == ["tx"]

    assert isinstance(end_refused(history, identity, "commit"), TransactionAborted)
    assert history.partition().last_stable_offset == 2


def test_without_a_time_out_it_waits_for_ever_and_never_expires() -> None:
    history = History()
    identity = eager(history)
    history.now_ms += 10**12

    assert history.abort_timed_out() == []
    assert planned_expiry(history.state, history.now_ms) is None
    history.commit(identity)


def test_an_init_does_not_prolong_it() -> None:
    history = History()
    identity = history.init()
    history.prepare(identity, timeout_ms=1_000)
    history.now_ms += 900
    history.init(keep_prepared=True)
    history.now_ms += 101

    assert history.abort_timed_out() == ["tx"]


def test_an_administrator_ends_it_only_by_force_which_fences_its_holder() -> None:
    history = History()
    identity = eager(history)

    error = history.refused(lambda draft: AbortTransaction("tx", reason="admin", time_ms=0).apply(draft))
    assert isinstance(error, InvalidTxnState)
    assert "force-terminate" in str(error)
    assert history.force_terminate() is True
    assert history.force_terminate() is False

    assert history.transaction().state is TransactionState.EMPTY
    for outcome in ("commit", "abort"):
        assert isinstance(end_refused(history, identity, outcome), ProducerFenced)
    late = history.batch(identity, 2)
    assert isinstance(history.refused(lambda draft: draft.append(late).base_offset), ProducerFenced)


def test_force_also_ends_open_transactions_and_names_an_unknown_id() -> None:
    history = History()
    history.send(history.init())

    assert history.force_terminate() is True
    error = history.refused(lambda draft: ForceTerminateTransaction("nobody", time_ms=0).apply(draft))
    assert isinstance(error, TransactionalIdNotFound)
