"""Batches that get their offsets at once: of idempotent producers, and of transactions, which the first one begins."""

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
    """Append a batch. Returns it with the base offset that it gets at this slot.

    Raises:
        DuplicateBatch: it was appended before.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced, UnknownProducerId, OutOfOrderSequence,
        InvalidTxnState, UnknownTopicOrPartition, StagedFilesExpired: it may not be appended.
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
    # A repeat first: it names no file anew, so it is no matter how old its file is.
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
    """Refuse a batch that is older than what its producer has appended since.

    Sequences wrap around. After 2^31 rows a partition would take an old copy of a batch again. Only its own process
    knows that it has sent nothing since.

    Raises:
        InvalidEntry
    """
    if entry.transactional_id is None:
        producer = draft.producers.get(entry.producer_id)
        newest_ms = -1 if producer is None else producer.last_update_ms
    else:
        transaction = draft.transactions.get(entry.transactional_id)
        newest_ms = -1 if transaction is None else transaction.last_update_ms
    if entry.time_ms < newest_ms:
        raise InvalidEntry(f"producer {entry.producer_id} has appended batches since this one was made")
