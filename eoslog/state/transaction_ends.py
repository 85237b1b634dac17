"""The ends of transactions: commits and aborts.

An end writes the outcome, markers, staged batches, group offsets and application version, in one slot. It passes
through PREPARE_* and reaches COMPLETE_* within its slot. After a crash there is therefore no transaction to roll
forward and no missing marker. The answers are those of Kafka's coordinator to EndTxn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from eoslog.errors import (
    InvalidEntry,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
)
from eoslog.state.application_versions import check_application_version, remember_version
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.groups import check_offsets, commit_offsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.partitions import (
    append_marker,
    append_staged,
    check_file_place,
    check_shared,
    check_upload,
    topic_and_partition,
)
from eoslog.state.pending_offsets import commit_added_offsets, prepared_offsets
from eoslog.state.prepared import (
    check_not_prepared,
    committed_batches,
    marker_epoch,
    open_identity,
)
from eoslog.state.producer_ids import (
    ProducerIdentity,
    current_identity,
    forget_producer_ids,
    identities_before,
    next_identity,
    task_producer_id,
    task_transactional_id,
    why_aborted,
)
from eoslog.state.store_state import (
    ApplicationVersionKey,
    LastCommit,
    LastVersion,
    TopicRows,
    Transaction,
    TransactionState,
)
from eoslog.state.transaction_entries import (
    Marker,
    StagedBatch,
    TransactionEnded,
)
from eoslog.state.transactions import transit

_COMPLETE = {"commit": TransactionState.COMPLETE_COMMIT, "abort": TransactionState.COMPLETE_ABORT}


class EndRepeated(Exception):
    """Not an error: this transaction was ended the same way before. ``identity`` is the answer given then."""

    def __init__(self, identity: ProducerIdentity) -> None:
        super().__init__("the transaction was ended before")
        self.identity = identity


def check_end(draft: Draft, entry: TransactionEnded) -> Transaction:
    """Return the transaction if its producer may end it now. In every state the answer is Kafka's to EndTxn.

    Raises:
        EndRepeated: the transaction was ended the same way before.
        InvalidProducerIdMapping: the transactional id is unknown, or has another producer id.
        ProducerFenced: another producer or another run holds the transactional id.
        InvalidTxnState: no transaction is open, or it was ended the other way.
    """
    transaction = draft.transactions.get(entry.transactional_id)
    if transaction is None:
        raise InvalidProducerIdMapping(f"transactional id {entry.transactional_id!r} is unknown or has expired")
    current = current_identity(transaction)
    wanted = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    if transaction.owner != entry.owner:
        raise ProducerFenced(
            f"transactional id {entry.transactional_id!r}: another run has taken this job over. Stop this one"
        )
    if entry.keeps_epoch:
        return _check_end_with_epoch_kept(transaction, current, wanted, entry.outcome)
    if wanted == current:
        # An abort always passes: after a lost answer a producer cannot know whether its first batch began a
        # transaction (KIP-890). A commit needs an open transaction or content. The tasks of a job count as content even
        # without rows: the commit records that the job is done.
        begins = bool(entry.batches or entry.offsets or entry.application_version or entry.task_count)
        if entry.outcome == "commit" and transaction.state is not TransactionState.ONGOING and not begins:
            raise InvalidTxnState(f"transactional id {entry.transactional_id!r} has no open transaction to commit")
        return transaction
    # Each end raises the epoch. A retry whose first answer was lost therefore comes with the identity before. It counts
    # as a retry only while the transaction rests in COMPLETE_*. In EMPTY or ONGOING another call used the new epoch
    # since: an init, or the first batch of the next transaction.
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
            f"{current.producer_epoch}, this producer has {wanted.producer_epoch}). Close this producer"
        )
    done = "commit" if transaction.state is TransactionState.COMPLETE_COMMIT else "abort"
    if entry.outcome == done:
        raise EndRepeated(current)
    why = why_aborted(transaction, wanted)
    raise InvalidTxnState(
        f"transactional id {entry.transactional_id!r}: the transaction of epoch {wanted.producer_epoch} ended in {done}"
        + (f" ({why})" if why else "")
    )


def _check_end_with_epoch_kept(
    transaction: Transaction, current: ProducerIdentity, wanted: ProducerIdentity, outcome: str
) -> Transaction:
    """Return the transaction if a client of transaction version 1 may end it now.

    The epoch does not tell one of its transactions from the next. So only an open transaction can be ended, and the
    same end of a transaction that rests in COMPLETE_* passes for a repetition (``endTransactionWithTV1``).
    """
    named = f"transactional id {transaction.transactional_id!r}"
    if wanted.producer_id != current.producer_id:
        raise InvalidProducerIdMapping(f"{named} has producer id {current.producer_id}, not {wanted.producer_id}")
    if wanted != current:
        raise ProducerFenced(
            f"{named}: its epoch is {current.producer_epoch} now, because another producer holds it or its transaction "
            f"was aborted. This producer has {wanted.producer_epoch}. Initialize it again, or close it"
        )
    check_not_prepared(transaction)
    if transaction.state is TransactionState.ONGOING:
        return transaction
    if transaction.state is _COMPLETE[outcome]:
        raise EndRepeated(current)
    raise InvalidTxnState(f"{named} has no open transaction to {outcome}, but is in {transaction.state.name}")


def _planned(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
    """Return the end with its results at this slot: base offsets, markers and the next identity."""
    transaction = check_end(draft, entry)
    check_application_version(draft, entry.transactional_id, entry.application_version)
    if entry.outcome == "abort" and (entry.batches or entry.offsets or entry.application_version):
        raise InvalidEntry("an abort must have no staged batches, offsets or application version")
    if entry.keeps_epoch and (entry.reason != "client" or entry.batches or entry.task_count):
        raise InvalidEntry("only a client ends a transaction under version 1, and without staged batches")
    if entry.task_count and transaction.kind != "job":
        # The producer ids after that of a producer belong to other producers, not to tasks.
        raise InvalidEntry(f"the end of {entry.transactional_id!r} has {entry.task_count} tasks, but it is not a job")
    if transaction.prepared is not None:
        entry = _with_prepared(draft, transaction, entry)
    else:
        _check_content(draft, entry)
    # A topic may have been deleted while the transaction was open. The transaction ends without its partitions.
    eager = {partition_id for partition_id in transaction.partitions if partition_id in draft.partitions}
    next_offsets: dict[PartitionId, int] = {
        partition_id: draft.partitions[partition_id].next_offset for partition_id in eager
    }
    batches = []
    for batch in entry.batches:
        partition_id = PartitionId(batch.topic_id, batch.partition)
        topic, partition = topic_and_partition(draft, partition_id)
        check_file_place(topic, partition_id, batch.file)
        draft.take_file(batch.file)
        _check_task(draft, entry, batch)
        base_offset = next_offsets.setdefault(partition_id, partition.next_offset)
        # An entry that comes from the log has its offsets already. Copying each of its batches would slow readers down.
        planned = batch.base_offset == base_offset
        batches.append(batch if planned else batch.model_copy(update={"base_offset": base_offset}))
        next_offsets[partition_id] = base_offset + batch.record_count
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    if not entry.keeps_epoch:
        identity = next_identity(draft, transaction, transaction.kind)
    markers = (
        Marker(topic_id=partition_id.topic_id, partition=partition_id.partition, offset=next_offsets[partition_id])
        for partition_id in sorted(next_offsets)
    )
    results = {
        "batches": tuple(batches),
        "markers": tuple(markers),
        "next_producer_id": identity.producer_id,
        "next_producer_epoch": identity.producer_epoch,
    }
    # An entry that comes from the log has its results already. Then the fold need not compare a copy with it.
    has_results = all(getattr(entry, name) == result for name, result in results.items())
    return entry if has_results else entry.model_copy(update=results)


def _check_content(draft: Draft, entry: TransactionEnded) -> None:
    if any(not batch.file.in_record for batch in entry.batches):
        if entry.upload_ms is None:
            raise InvalidEntry("staged files need the time of their upload")
        check_upload(draft, entry.upload_ms)
        for batch in entry.batches:
            check_shared(draft, batch.file)
    for offsets in entry.offsets:
        check_offsets(draft, offsets)


def _with_prepared(draft: Draft, transaction: Transaction, entry: TransactionEnded) -> TransactionEnded:
    """Return the end of a prepared transaction with the prepared content.

    The content was checked at the prepare and is not checked again: the commit of a prepared transaction must not fail.

    Raises:
        InvalidTxnState: the entry brings other content than was prepared.
    """
    commits = entry.outcome == "commit"
    batches = committed_batches(draft, transaction) if commits else ()
    offsets = prepared_offsets(draft, transaction) if commits else ()
    brought = tuple(batch.model_copy(update={"base_offset": 0}) for batch in entry.batches)
    if brought and tuple(batch.statistics for batch in brought) == (None,) * len(batches):
        # An older version of eoslog knows no statistics. It repeats the prepared batches without them.
        batches = tuple(batch.model_copy(update={"statistics": None}) for batch in batches)
    if (
        (brought and brought != batches)
        or (entry.offsets and entry.offsets != offsets)
        or entry.application_version is not None
    ):
        check_not_prepared(transaction)
    assert transaction.prepared is not None
    return entry.model_copy(
        update={
            "batches": batches,
            "offsets": offsets,
            "upload_ms": transaction.prepared.upload_ms if batches else None,
        }
    )


def _check_task(draft: Draft, entry: TransactionEnded, batch: StagedBatch) -> None:
    """Check that a batch's task belongs to the job.

    Raises:
        InvalidEntry: the job has fewer tasks.
        InvalidRequest: a producer already uses the transactional id of the task.
    """
    if batch.task is None:
        return
    if batch.task >= entry.task_count:
        raise InvalidEntry(f"a batch names task {batch.task}, but the job has only {entry.task_count} tasks")
    if task_transactional_id(entry.transactional_id, batch.task) in draft.transactions:
        raise InvalidRequest(
            f"transactional id {task_transactional_id(entry.transactional_id, batch.task)!r} belongs to a producer, so "
            f"the job {entry.transactional_id!r} cannot use it for a task. Choose another transactionalId"
        )


def apply_end(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
    """End a transaction.

    Returns:
        The entry with its results at this slot: base offsets, markers and the next identity.

    Raises:
        EndRepeated: the transaction was ended the same way before.
        Replayed: the application version was committed before.
        InvalidProducerIdMapping, ProducerFenced, InvalidTxnState: see ``check_end``.
        Further errors of ``check_upload``, ``check_offsets`` and ``partition_of`` for batches and offsets.
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
            identity=ProducerIdentity(producer_id, rows.producer_epoch),
            position=draft.position,
        )
    marker_identity = ProducerIdentity(rows.producer_id, marker_epoch(transaction))
    if entry.keeps_epoch:
        marker_identity = rows
    for marker in entry.markers:
        partition_id = PartitionId(marker.topic_id, marker.partition)
        counts[partition_id.topic_id] += append_marker(
            draft.edit_partition(partition_id),
            entry,
            marker_identity,
            draft.position,
            eager=partition_id in transaction.partitions,
        )
    committed = commit_added_offsets(draft, transaction) if entry.outcome == "commit" else ()
    for offsets in entry.offsets:
        commit_offsets(draft, offsets, draft.slot if transaction.prepared is None else transaction.prepared_slot)
    work = entry.application_version
    if work is not None:
        key = ApplicationVersionKey(entry.transactional_id, work.application_id, work.sink)
        last = LastVersion(
            version=work.version,
            query_id=work.query_id,
            starts_anew_after=work.starts_anew_after,
            rows=work.rows,
            content=work.content,
            invocation=work.invocation,
        )
        remember_version(draft, key, last)
    last_commit = transaction.last_commit
    if entry.outcome == "commit":
        last_commit = _last_commit(draft, entry, rows, offsets=(*committed, *entry.offsets), rows=counts)
    draft.transactions[entry.transactional_id] = _ended(draft, transaction, entry, last_commit)
    draft.ongoing.pop(entry.transactional_id, None)
    # After a roll-over partitions may forget the old producer id. The transaction alone recognizes a retry of this end
    # (``previous_producer_id``), and every later batch of the old id is refused.
    forget_producer_ids(draft, {transaction.producer_id, rows.producer_id} - {entry.next_producer_id})
    return entry


def _last_commit(
    draft: Draft,
    entry: TransactionEnded,
    identity: ProducerIdentity,
    *,
    offsets: tuple[GroupOffsets, ...],
    rows: Mapping[str, int],
) -> LastCommit:
    return LastCommit(
        slot=draft.slot,
        time_ms=draft.time_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        application_version=entry.application_version,
        offsets=offsets,
        rows=tuple(TopicRows(topic_id=topic_id, rows=count) for topic_id, count in sorted(rows.items())),
    )


def _ended(
    draft: Draft, transaction: Transaction, entry: TransactionEnded, last_commit: LastCommit | None
) -> Transaction:
    begins = transaction.state is not TransactionState.ONGOING
    passed = []
    if entry.outcome == "commit" and begins:
        passed.append(TransactionState.ONGOING)
    if entry.reason == "fence":
        passed.append(TransactionState.PREPARE_EPOCH_FENCE)
    if entry.outcome == "commit":
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
        # An end that keeps the epoch leaves no identity before it, with which an end could be repeated.
        last_producer_epoch=-1 if entry.keeps_epoch else entry.producer_epoch,
        partitions=frozenset(),
        # The start stays until the next init or transaction, as in Kafka. If no batch began the transaction, its start
        # is the time of its end.
        start_ms=entry.time_ms if begins else transaction.start_ms,
        start_slot=NO_SLOT,
        last_update_ms=entry.time_ms,
        last_slot=draft.slot,
        last_end_reason=entry.reason,
        task_count=entry.task_count or transaction.task_count,
        prepared=None,
        prepared_slot=NO_SLOT,
        deleted_offsets=frozenset(),
        added_partitions=frozenset(),
        added_offsets=(),
        last_commit=last_commit,
    )
