"""Eager batches: they get their offsets at once. They belong to an idempotent producer or to a transaction.

The first batch after the end of a transaction begins the next one.
"""

from __future__ import annotations

from dataclasses import replace

from eoslog.errors import InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId
from eoslog.state.partitions import append_batch, check_batch, check_file_place, check_upload, partition_of, topic_of
from eoslog.state.prepared import check_not_prepared
from eoslog.state.producer_ids import ProducerIdentity, check_identity, check_registered
from eoslog.state.store_state import IdempotentProducer, Transaction, TransactionState
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transactions import transit


def apply_batch(draft: Draft, entry: BatchAppended) -> BatchAppended:
    """Append a batch.

    Returns:
        The entry with the base offset that it gets at this slot.

    Raises:
        DuplicateBatch: the batch was appended before.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced: see ``check_identity``.
        UnknownProducerId: see ``check_registered``.
        OutOfOrderSequence, InvalidTxnState: see ``check_batch`` and ``check_not_prepared``.
        UnknownTopicOrPartition, StagedFilesExpired: the topic or the file may be gone.
    """
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    transaction = None
    if entry.transactional_id is None:
        check_registered(draft, identity)
    else:
        transaction = check_identity(draft, entry.transactional_id, identity)
    partition_id = PartitionId(entry.topic_id, entry.partition)
    partition = partition_of(draft, partition_id)
    topic = topic_of(draft, entry.topic_id)
    check_file_place(topic, partition_id, entry.file)
    # Recognize a repeated batch before the age of its file is checked. The first attempt put the file into the log, so
    # its age no longer matters, and the retry must get its offset instead of an error.
    check_batch(partition, f"{topic.topic}-{entry.partition}", entry)
    if transaction is not None:
        check_not_prepared(transaction)
    check_upload(draft, entry.upload_ms)
    if entry.base_offset != partition.next_offset:
        entry = entry.model_copy(update={"base_offset": partition.next_offset})
    append_batch(draft.edit_partition(partition_id), entry, draft.moment)
    if transaction is None:
        draft.producers[entry.producer_id] = IdempotentProducer(entry.producer_id, entry.time_ms)
    else:
        _add_partition(draft, transaction, partition_id, entry)
    return entry


def _add_partition(draft: Draft, transaction: Transaction, partition_id: PartitionId, entry: BatchAppended) -> None:
    """Note a partition of the open transaction. The first batch begins the transaction (KIP-890)."""
    begins = transaction.state is not TransactionState.ONGOING
    draft.transactions[transaction.transactional_id] = replace(
        transaction,
        state=transit(transaction, TransactionState.ONGOING),
        partitions=(frozenset() if begins else transaction.partitions) | {partition_id},
        start_ms=entry.time_ms if begins else transaction.start_ms,
        start_slot=draft.slot if begins else transaction.start_slot,
        last_update_ms=entry.time_ms,
        last_slot=draft.slot,
    )
    if begins:
        draft.ongoing[transaction.transactional_id] = entry.time_ms


def check_not_outlived(draft: Draft, entry: BatchAppended) -> None:
    """Check that a producer has appended nothing since a batch was made.

    A process calls it before it appends a batch on behalf of another process. Sequences wrap around: after 2^31 rows a
    partition would accept an old copy of a batch again. Only the producer's own process knows that it has sent nothing
    since.

    Raises:
        InvalidEntry: the producer has appended a later batch.
    """
    if entry.transactional_id is None:
        producer = draft.producers.get(entry.producer_id)
        newest_ms = -1 if producer is None else producer.last_update_ms
    else:
        transaction = draft.transactions.get(entry.transactional_id)
        newest_ms = -1 if transaction is None else transaction.last_update_ms
    if entry.time_ms < newest_ms:
        raise InvalidEntry(f"producer {entry.producer_id} has appended batches since this one was made")
