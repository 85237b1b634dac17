"""The end of transactions: everything that they hold, in one slot.

Answers are those of Kafka's coordinator under transaction version 2 (``TransactionCoordinator``, KIP-890). The end
passes through PREPARE_* and reaches COMPLETE_* within its slot, so there is nothing to roll forward, no marker to lose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from eoslog.errors import (
    InvalidEntry,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
)
from eoslog.state.application_versions import check_token, remember_version
from eoslog.state.draft import Draft
from eoslog.state.groups import check_offsets, commit_offsets, is_from_outside
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Control
from eoslog.state.partitions import append_staged, check_file_place, check_upload, partition_of, place_marker, topic_of
from eoslog.state.prepared import (
    check_not_prepared,
    committed_batches,
    committed_offsets,
    marker_epoch,
    open_identity,
    overdue,
)
from eoslog.state.producer_ids import (
    TASKS_BITS,
    ProducerIdentity,
    forget_producer_ids,
    identities_before,
    next_identity,
    task_producer_id,
    task_transactional_id,
    why_aborted,
)
from eoslog.state.store_state import (
    LastCommit,
    LastVersion,
    StoreState,
    TokenKey,
    TopicRows,
    Transaction,
    TransactionState,
)
from eoslog.state.transaction_entries import Marker, StagedBatch, TransactionEnded

_E = TransactionState
VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    _E.EMPTY: frozenset({_E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.ONGOING: frozenset({_E.ONGOING, _E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.PREPARE_COMMIT: frozenset({_E.ONGOING}),
    _E.PREPARE_ABORT: frozenset({_E.ONGOING, _E.PREPARE_EPOCH_FENCE, _E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.COMPLETE_COMMIT: frozenset({_E.PREPARE_COMMIT}),
    _E.COMPLETE_ABORT: frozenset({_E.PREPARE_ABORT}),
    _E.DEAD: frozenset({_E.EMPTY, _E.COMPLETE_ABORT, _E.COMPLETE_COMMIT}),
    _E.PREPARE_EPOCH_FENCE: frozenset({_E.ONGOING}),
}
"""From which states each may be entered (``TransactionState.java``)."""


def transit(transaction: Transaction, *states: TransactionState) -> TransactionState:
    """The state of a transaction after it passed through ``states``: the last of them.

    Raises:
        InvalidTxnState: Kafka allows no such transition.
    """
    current = transaction.state
    for state in states:
        if current not in VALID_PREVIOUS_STATES[state]:
            raise InvalidTxnState(
                f"transactional id {transaction.transactional_id!r} cannot go from {current.name} to {state.name}"
            )
        current = state
    return current


class EndRepeated(Exception):
    """Not an error: this end was done before; ``identity`` is what it answered."""

    def __init__(self, identity: ProducerIdentity) -> None:
        super().__init__("the transaction was ended before")
        self.identity = identity


def check_end(draft: Draft, entry: TransactionEnded) -> Transaction:
    """Kafka's answer to an EndTxn in every state.

    Raises:
        EndRepeated: the same end was done before.
        InvalidProducerIdMapping, ProducerFenced, InvalidTxnState
    """
    transaction = draft.transactions.get(entry.transactional_id)
    if transaction is None:
        raise InvalidProducerIdMapping(f"transactional id {entry.transactional_id!r} is unknown or has expired")
    current = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    wanted = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    if transaction.owner != entry.owner:
        raise ProducerFenced(
            f"transactional id {entry.transactional_id!r}: another run has taken this job over; stop this one"
        )
    if wanted == current:
        # A job commits though none of its tasks had a row.
        begins = bool(entry.batches or entry.offsets or entry.token or entry.task_count)
        if entry.verdict == "commit" and transaction.state is not TransactionState.ONGOING and not begins:
            raise InvalidTxnState(f"transactional id {entry.transactional_id!r} has no open transaction to commit")
        return transaction
    if wanted not in identities_before(transaction) or transaction.state in (
        TransactionState.ONGOING,
        TransactionState.EMPTY,
    ):
        if wanted.producer_id not in (transaction.producer_id, transaction.previous_producer_id):
            raise InvalidProducerIdMapping(
                f"transactional id {entry.transactional_id!r} has producer id {current.producer_id}, "
                f"not {wanted.producer_id}"
            )
        raise ProducerFenced(
            f"transactional id {entry.transactional_id!r}: another producer holds it now (epoch "
            f"{current.producer_epoch}, this producer has {wanted.producer_epoch}); close this producer"
        )
    done = "commit" if transaction.state is TransactionState.COMPLETE_COMMIT else "abort"
    if entry.verdict == done:
        raise EndRepeated(current)
    why = why_aborted(transaction, wanted)
    raise InvalidTxnState(
        f"transactional id {entry.transactional_id!r}: the transaction of epoch {wanted.producer_epoch} ended in {done}"
        + (f" ({why})" if why else "")
    )


def is_shareable_end(entry: TransactionEnded) -> bool:
    """Whether any process may append this end: once the log's tail refuses it, it stays refused for good.

    It is not so with the offsets of a group's member: a partition that the member gave up may become its own again. A
    commit with a token may turn out to be an abort, which no other process decides. A job's end is its driver's.
    """
    return (
        entry.reason == "client"
        and entry.token is None
        and entry.owner is None
        and not entry.task_count
        and all(is_from_outside(offsets) for offsets in entry.offsets)
    )


def _planned(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
    """The end with everything that it gets at this slot: base offsets, markers and the next identity."""
    transaction = check_end(draft, entry)
    check_token(draft, entry.transactional_id, entry.token)
    if entry.verdict == "abort" and (entry.batches or entry.offsets or entry.token):
        raise InvalidEntry("an abort has neither staged batches nor offsets nor a token")
    if transaction.prepared is not None:
        entry = _with_prepared(draft, transaction, entry)
    else:
        _check_content(draft, entry)
    eager = {place for place in transaction.partitions if place in draft.partitions}
    next_offsets: dict[PartitionId, int] = {place: draft.partitions[place].next_offset for place in eager}
    batches = []
    for batch in entry.batches:
        place = PartitionId(batch.topic_id, batch.partition)
        if place not in next_offsets:
            next_offsets[place] = partition_of(draft, place).next_offset
        check_file_place(topic_of(draft, batch.topic_id), place, batch.file)
        _check_task(draft, entry, batch)
        base_offset = next_offsets[place]
        # In the fold the offsets are there already: do not copy the batch.
        planned = batch.base_offset == base_offset
        batches.append(batch if planned else batch.model_copy(update={"base_offset": base_offset}))
        next_offsets[place] = base_offset + batch.record_count
    identity = next_identity(draft, transaction)
    return entry.model_copy(
        update={
            "batches": tuple(batches),
            "markers": tuple(
                Marker(topic_id=place.topic_id, partition=place.partition, offset=next_offsets[place])
                for place in sorted(next_offsets)
            ),
            "next_producer_id": identity.producer_id,
            "next_producer_epoch": identity.producer_epoch,
        }
    )


def _check_content(draft: Draft, entry: TransactionEnded) -> None:
    if entry.batches:
        if entry.upload_ms is None:
            raise InvalidEntry("staged batches need the time of their upload")
        check_upload(draft, entry.upload_ms)
    for offsets in entry.offsets:
        check_offsets(draft, offsets)


def _with_prepared(draft: Draft, transaction: Transaction, entry: TransactionEnded) -> TransactionEnded:
    """The end of a prepared transaction with what was prepared. Nothing of it is checked again."""
    commits = entry.verdict == "commit"
    batches = committed_batches(draft, transaction) if commits else ()
    offsets = committed_offsets(draft, transaction) if commits else ()
    brought = tuple(batch.model_copy(update={"base_offset": 0}) for batch in entry.batches)
    if brought and tuple(batch.statistics for batch in brought) == (None,) * len(batches):
        # A version that knows no statistics repeats what was prepared without them.
        batches = tuple(batch.model_copy(update={"statistics": None}) for batch in batches)
    if (brought and brought != batches) or (entry.offsets and entry.offsets != offsets) or entry.token is not None:
        check_not_prepared(transaction)
    assert transaction.prepared is not None
    return entry.model_copy(
        update={
            "batches": batches,
            "offsets": offsets,
            "upload_ms": transaction.prepared.upload_ms if batches else None,
            "summary": transaction.prepared.summary if commits else entry.summary,
        }
    )


def _check_task(draft: Draft, entry: TransactionEnded, batch: StagedBatch) -> None:
    if batch.task is None:
        return
    if batch.task >= entry.task_count:
        raise InvalidEntry(f"a batch of task {batch.task} in a job of {entry.task_count} tasks")
    if task_transactional_id(entry.transactional_id, batch.task) in draft.transactions:
        raise InvalidRequest(
            f"transactional id {task_transactional_id(entry.transactional_id, batch.task)!r} belongs to a producer, so "
            "the job of that name cannot use it for a task; choose another transactionalId"
        )


def apply_end(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
    """End a transaction.

    Returns:
        The end with everything that it gets at this slot: base offsets, markers and the next identity.

    Raises:
        EndRepeated: it was ended so before.
        Replayed: the application token was committed before.
        InvalidProducerIdMapping, ProducerFenced, InvalidTxnState, and what its batches and offsets are refused for
    """
    entry = _planned(draft, entry)
    transaction = draft.transactions[entry.transactional_id]
    rows = open_identity(transaction)
    counts: defaultdict[str, int] = defaultdict(int)
    for batch in entry.batches:
        counts[batch.topic_id] += batch.record_count
        producer_id, transactional_id = rows.producer_id, entry.transactional_id
        if batch.task is not None:
            producer_id = task_producer_id(entry.producer_id, batch.task)
            transactional_id = task_transactional_id(entry.transactional_id, batch.task)
        append_staged(
            draft.edit_partition(PartitionId(batch.topic_id, batch.partition)),
            batch,
            transactional_id,
            producer_id,
            rows.producer_epoch,
            draft.moment,
        )
    commits = entry.verdict == "commit"
    for marker in entry.markers:
        place = PartitionId(marker.topic_id, marker.partition)
        counts[place.topic_id] += place_marker(
            draft.edit_partition(place),
            Control.COMMIT if commits else Control.ABORT,
            entry.transactional_id,
            rows.producer_id,
            marker_epoch(transaction),
            draft.moment,
            entry.time_ms,
            eager=place in transaction.partitions,
        )
    for offsets in entry.offsets:
        commit_offsets(draft, offsets, draft.slot if transaction.prepared is None else transaction.prepared_slot)
    if entry.token is not None:
        key = TokenKey(entry.transactional_id, entry.token.application_id, entry.token.sink)
        last = LastVersion(entry.token.version, entry.token.query_id, entry.token.starts_anew_after)
        remember_version(draft, key, last)
    last_commit = _last_commit(draft, entry, rows, counts) if commits else transaction.last_commit
    draft.transactions[entry.transactional_id] = _ended(draft, transaction, entry, last_commit)
    draft.ongoing.pop(entry.transactional_id, None)
    if entry.next_producer_id == draft.slot << TASKS_BITS:
        draft.id_given_out = True
    # After a roll-over a retry is recognised by the transaction alone: a batch of the old id is always refused.
    forget_producer_ids(draft, {transaction.producer_id, rows.producer_id} - {entry.next_producer_id})
    return entry


def _last_commit(
    draft: Draft, entry: TransactionEnded, identity: ProducerIdentity, rows: Mapping[str, int]
) -> LastCommit:
    return LastCommit(
        slot=draft.slot,
        time_ms=draft.time_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        token=entry.token,
        offsets=entry.offsets,
        rows=tuple(TopicRows(topic_id=topic_id, rows=count) for topic_id, count in sorted(rows.items())),
    )


def _ended(
    draft: Draft, transaction: Transaction, entry: TransactionEnded, last_commit: LastCommit | None
) -> Transaction:
    begins = transaction.state is not TransactionState.ONGOING
    passed = []
    if entry.verdict == "commit" and begins:
        passed.append(TransactionState.ONGOING)
    if entry.reason == "fence":
        passed.append(TransactionState.PREPARE_EPOCH_FENCE)
    if entry.verdict == "commit":
        passed += [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]
    else:
        passed += [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]
    rolled_over = entry.next_producer_id != transaction.producer_id
    return replace(
        transaction,
        state=transit(transaction, *passed),
        producer_id=entry.next_producer_id,
        producer_epoch=entry.next_producer_epoch,
        previous_producer_id=transaction.producer_id if rolled_over else transaction.previous_producer_id,
        last_producer_epoch=entry.producer_epoch,
        partitions=frozenset(),
        # Kafka too keeps the start until the next init or transaction. Without a partition it is the time of the end.
        start_ms=entry.time_ms if begins else transaction.start_ms,
        start_slot=NO_SLOT,
        last_update_ms=entry.time_ms,
        last_slot=draft.slot,
        last_end_reason=entry.reason,
        task_count=entry.task_count or transaction.task_count,
        prepared=None,
        prepared_slot=NO_SLOT,
        deleted_offsets=frozenset(),
        last_commit=last_commit,
    )


def overdue_transactions(state: StoreState | Draft, now_ms: int) -> list[Transaction]:
    """The open transactions that are past their timeouts at ``now_ms`` of the store's clock."""
    return timed_out([state.transactions[name] for name in list(state.ongoing)], now_ms)


def timed_out(transactions: Iterable[Transaction], now_ms: int) -> list[Transaction]:
    """Those of the open transactions that are past their time-out at ``now_ms`` of the store's clock.

    That of a prepared transaction counts from its prepare, and is its own.
    """
    return [
        transaction
        for transaction in transactions
        if transaction.state is TransactionState.ONGOING
        and (
            transaction.start_ms + transaction.timeout_ms < now_ms
            if transaction.prepared is None
            else overdue(transaction, now_ms)
        )
    ]
