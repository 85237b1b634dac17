"""Prepared transactions: the first phase of a two-phase commit (KIP-939).

A prepared transaction waits until an application outside of the store commits or aborts it. It stays ONGOING and takes
no more rows. The prepare checks all that could refuse the commit: topics, age of the files, generations. The commit
checks none of them again, so it succeeds however late it comes.
"""

from __future__ import annotations

import re
from dataclasses import replace

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidEntry, InvalidRequest, InvalidTransactionTimeout, InvalidTxnState
from eoslog.state.draft import Draft
from eoslog.state.groups import check_offsets
from eoslog.state.names import PartitionId
from eoslog.state.partitions import check_file_place, check_shared, check_upload, topic_and_partition
from eoslog.state.producer_ids import ProducerIdentity, check_identity, current_identity, prepared_identity
from eoslog.state.sequences import MAX_EPOCH
from eoslog.state.store_state import Transaction, TransactionState
from eoslog.state.transaction_entries import StagedBatch, TransactionEnded, TransactionPrepared
from eoslog.wording import quoted

DEFAULT_PREPARED_TIMEOUT_MS = 7 * 24 * 3600 * 1000
MOST_PREPARED_FILES = 50_000
"""The largest number of files in a prepared transaction. The record of its commit must have room for them, too. That
record is a little larger than the record of the prepare."""

_PREPARED_STATE = re.compile(r"([0-9]{1,19}):([0-9]{1,5})", re.ASCII)


class PrepareRepeated(Exception):
    """Not an error: the transaction was prepared before, with the same content."""

    def __init__(self) -> None:
        super().__init__("the transaction was prepared before")


def check_prepared_timeout(timeout_ms: int | None) -> None:
    """Check the timeout of a prepared transaction.

    Raises:
        InvalidTransactionTimeout: it is neither None nor a number of ms from 1 on.
    """
    if timeout_ms is not None and (not is_whole_number(timeout_ms) or not 0 < timeout_ms < 2**53):
        raise InvalidTransactionTimeout(
            f"prepared_timeout_ms is {quoted(timeout_ms)}, but must be a number of ms from 1 on, or None for no timeout"
        )


def prepared_state(identity: ProducerIdentity) -> str:
    """Return the name of a prepared transaction, ``producer_id:epoch`` (Kafka's ``PreparedTxnState``)."""
    return f"{identity.producer_id}:{identity.producer_epoch}"


def parse_prepared_state(text: str) -> ProducerIdentity | None:
    """Return the identity in a name that ``prepared_state`` made; None for the empty string.

    Raises:
        InvalidRequest: the text is neither such a name nor empty.
    """
    if isinstance(text, str) and not text:
        return None
    found = _PREPARED_STATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest(
            f"{quoted(text)} names no prepared transaction. Give a name like '2097152:7', or '' for none"
        )
    return ProducerIdentity(int(found[1]), int(found[2]))


def check_not_prepared(transaction: Transaction) -> None:
    """Check that a transaction may take more rows.

    Raises:
        InvalidTxnState: the transaction is prepared.
    """
    identity = prepared_identity(transaction)
    if identity is not None:
        raise InvalidTxnState(
            f"transactional id {transaction.transactional_id!r}: its transaction {prepared_state(identity)} is "
            "prepared and takes no more rows or offsets. Complete it first: commit or abort it"
        )


def check_prepare(draft: Draft, entry: TransactionPrepared) -> Transaction:
    """Return the transaction if it may be prepared at this slot.

    Raises:
        PrepareRepeated: it was prepared before, with the same content.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced: the producer does not hold its id any more.
        InvalidTxnState: the transaction is prepared already, has offsets that were added to it, or belongs to a job.
        StagedFilesExpired, UnknownTopicOrPartition: the staged files cannot be committed.
        IllegalGeneration, UnknownMember, FencedInstanceId: the group offsets cannot be committed.
    """
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    transaction = check_identity(draft, entry.transactional_id, identity)
    if transaction.kind != "producer":
        raise InvalidTxnState(
            f"transactional id {entry.transactional_id!r} belongs to a job, and a job commits in one step"
        )
    if prepared_identity(transaction) == identity and _content(transaction.prepared) == _content(entry):
        raise PrepareRepeated
    check_not_prepared(transaction)
    if transaction.added_offsets:
        raise InvalidTxnState(
            f"transactional id {entry.transactional_id!r}: a client of Kafka's protocol has added offsets to its "
            "transaction, which can only be committed or aborted"
        )
    if len(entry.batches) > MOST_PREPARED_FILES:
        raise InvalidRequest(f"{len(entry.batches)} files cannot be prepared: the limit is {MOST_PREPARED_FILES}")
    if entry.batches:
        if entry.upload_ms is None:
            raise InvalidEntry("staged batches need the time of their upload")
        check_upload(draft, entry.upload_ms)
    for batch in entry.batches:
        partition_id = PartitionId(batch.topic_id, batch.partition)
        topic, _ = topic_and_partition(draft, partition_id)
        check_file_place(topic, partition_id, batch.file)
        if batch.file.in_record:
            # It may wait for longer than slots are kept.
            raise InvalidEntry(f"file {batch.file.path} of a prepared transaction must not be in a record")
        check_shared(draft, batch.file)
    for offsets in entry.offsets:
        check_offsets(draft, offsets)
    return transaction


def _content(prepared: TransactionPrepared | None) -> object:
    return None if prepared is None else (prepared.batches, prepared.offsets)


def apply_prepare(draft: Draft, entry: TransactionPrepared) -> None:
    """Prepare a transaction. Raises what ``check_prepare`` raises."""
    transaction = check_prepare(draft, entry)
    begins = transaction.state is not TransactionState.ONGOING
    # No check of the transition is needed: a transaction can go to ONGOING from every state in which it rests.
    draft.transactions[entry.transactional_id] = replace(
        transaction,
        state=TransactionState.ONGOING,
        partitions=frozenset() if begins else transaction.partitions,
        start_ms=entry.time_ms if begins else transaction.start_ms,
        start_slot=draft.slot if begins else transaction.start_slot,
        last_update_ms=entry.time_ms,
        last_slot=draft.slot,
        prepared=entry,
        prepared_slot=draft.slot,
    )
    if begins:
        draft.ongoing[entry.transactional_id] = entry.time_ms


def committed_batches(draft: Draft, transaction: Transaction) -> tuple[StagedBatch, ...]:
    """Return the staged batches that the commit of a prepared transaction appends, without base offsets.

    Batches of topics that were deleted since the prepare are left out.
    """
    if transaction.prepared is None:
        return ()
    return tuple(
        StagedBatch.model_validate({**dict(batch), "base_offset": 0})
        for batch in transaction.prepared.batches
        if batch.topic_id in draft.topics
    )


def with_prepared_summary(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
    """Return a commit with the summary that its prepared transaction has. For writers: the fold compares no summary."""
    transaction = draft.transactions.get(entry.transactional_id)
    if transaction is None or transaction.prepared is None or entry.outcome != "commit":
        return entry
    return entry.model_copy(update={"summary": transaction.prepared.summary})


def open_identity(transaction: Transaction) -> ProducerIdentity:
    """Return the identity of the rows of the transaction that is open or about to begin."""
    return prepared_identity(transaction) or current_identity(transaction)


def marker_epoch(transaction: Transaction) -> int:
    """Return the epoch of the control rows that end the transaction.

    It is above each epoch that was assigned with the producer id of the rows. Otherwise a partition would refuse the
    marker, or accept a late batch of a fenced holder.
    """
    # An init rolled the id over while the transaction was prepared. All usable epochs of the old producer id are taken,
    # and the highest one is reserved for this marker.
    if transaction.open_producer_id != transaction.producer_id:
        return MAX_EPOCH
    return transaction.producer_epoch + 1


def overdue(transaction: Transaction, now_ms: int) -> bool:
    """Return True if a prepared transaction has exceeded its own timeout at ``now_ms`` of the store's clock."""
    prepared = transaction.prepared
    return prepared is not None and prepared.timeout_ms is not None and prepared.time_ms + prepared.timeout_ms < now_ms
