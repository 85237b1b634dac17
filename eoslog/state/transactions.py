"""Transactions from their begin on: their states, the eager batches and additions, and their timeouts.

The first eager batch or addition after the end of a transaction begins the next one. The answers are those of Kafka's
coordinator (``TransactionCoordinator``): under transaction version 2 (KIP-890), and under version 1 for clients that
know no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eoslog.errors import (
    ConcurrentTransactions,
    InvalidEntry,
    InvalidTxnState,
)
from eoslog.state.draft import Draft
from eoslog.state.groups import check_offsets
from eoslog.state.names import PartitionId
from eoslog.state.partitions import (
    append_batch,
    check_batch,
    check_file_place,
    check_shared,
    check_upload,
    partition_of,
    topic_and_partition,
)
from eoslog.state.pending_offsets import with_added_offsets
from eoslog.state.prepared import (
    check_not_prepared,
    overdue,
)
from eoslog.state.producer_ids import (
    ProducerIdentity,
    check_identity,
    check_may_register,
    check_registered,
)
from eoslog.state.store_state import (
    IdempotentProducer,
    StoreState,
    Transaction,
    TransactionState,
)
from eoslog.state.transaction_entries import (
    AddedToTransaction,
    BatchAppended,
)


def apply_batch(draft: Draft, entry: BatchAppended) -> BatchAppended:
    """Append a batch.

    Returns:
        The entry with the base offset that it gets at this slot.

    Raises:
        DuplicateBatch: the batch was appended before.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced: see ``check_identity``.
        UnknownProducerId: see ``check_registered`` and ``check_may_register``.
        OutOfOrderSequence, InvalidTxnState: see ``check_batch`` and ``check_not_prepared``.
        UnknownTopicOrPartition, StagedFilesExpired: the topic or the file may be gone.
    """
    transaction = None
    if entry.transactional_id is None:
        may_register = entry.registers_producer and entry.base_sequence == 0
        if may_register and entry.producer_id not in draft.producers:
            check_may_register(draft, entry.producer_id)
        else:
            check_registered(draft, entry.producer_id)
    else:
        identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
        transaction = check_identity(draft, entry.transactional_id, identity)
    partition_id = PartitionId(entry.topic_id, entry.partition)
    topic, partition = topic_and_partition(draft, partition_id)
    check_file_place(topic, partition_id, entry.file)
    # Recognize a repeated batch before the age of its file is checked. The first attempt put the file into the log, so
    # its age no longer matters, and the retry must get its offset instead of an error.
    check_batch(partition, f"{topic.topic}-{entry.partition}", entry)
    if transaction is not None:
        check_not_prepared(transaction)
    if not entry.file.in_record:
        check_upload(draft, entry.upload_ms)
        check_shared(draft, entry.file)
    draft.take_file(entry.file)
    if entry.base_offset != partition.next_offset:
        entry = entry.model_copy(update={"base_offset": partition.next_offset})
    append_batch(draft.edit_partition(partition_id), entry, draft.position)
    if transaction is None:
        draft.producers[entry.producer_id] = IdempotentProducer(entry.producer_id, entry.time_ms)
    else:
        # The first batch begins the transaction (KIP-890).
        transaction = _ongoing(draft, transaction, entry.time_ms)
        partitions = transaction.partitions | {partition_id}
        draft.transactions[transaction.transactional_id] = replace(transaction, partitions=partitions)
    return entry


def apply_addition(draft: Draft, entry: AddedToTransaction) -> None:
    """Add partitions and group offsets to a transaction, which begins with its first addition.

    Raises:
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced: see ``check_identity``.
        InvalidTxnState: the transaction is prepared, or belongs to a job.
        UnknownTopicOrPartition
        IllegalGeneration, UnknownMember, FencedInstanceId: see ``check_offsets``.
        InvalidEntry: it adds nothing.
    """
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    transaction = check_identity(draft, entry.transactional_id, identity)
    if transaction.kind != "producer":
        raise InvalidTxnState(f"transactional id {entry.transactional_id!r} belongs to a job")
    check_not_prepared(transaction)
    partitions = frozenset(PartitionId(each.topic_id, each.partition) for each in entry.partitions)
    for partition_id in sorted(partitions):
        partition_of(draft, partition_id)
    for offsets in entry.offsets:
        check_offsets(draft, offsets)
    is_new = transaction.state is not TransactionState.ONGOING
    if not (is_new or entry.offsets or partitions - transaction.partitions - transaction.added_partitions):
        raise InvalidEntry("the entry adds nothing to the transaction")
    transaction = _ongoing(draft, transaction, entry.time_ms)
    transaction = replace(transaction, added_partitions=transaction.added_partitions | partitions)
    transaction = with_added_offsets(transaction, entry.offsets, draft.slot)
    draft.transactions[entry.transactional_id] = transaction


def _ongoing(draft: Draft, transaction: Transaction, time_ms: int) -> Transaction:
    """Return the transaction as open, and updated in this slot. It begins here if it was not open."""
    begins = transaction.state is not TransactionState.ONGOING
    if begins:
        draft.ongoing[transaction.transactional_id] = time_ms
    return replace(
        transaction,
        state=transit(transaction, TransactionState.ONGOING),
        partitions=frozenset() if begins else transaction.partitions,
        start_ms=time_ms if begins else transaction.start_ms,
        start_slot=draft.slot if begins else transaction.start_slot,
        last_update_ms=time_ms,
        last_slot=draft.slot,
    )


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
"""The states from which each state may be entered (``TransactionState.java``)."""


def transit(transaction: Transaction, *states: TransactionState) -> TransactionState:
    """Return the last of ``states`` after checking that the transaction may pass through all of them.

    Raises:
        InvalidTxnState: Kafka forbids one of the transitions.
    """
    current = transaction.state
    for state in states:
        if current not in VALID_PREVIOUS_STATES[state]:
            raise InvalidTxnState(
                f"transactional id {transaction.transactional_id!r} cannot go from {current.name} to {state.name}"
            )
        current = state
    return current


def check_start(transaction: Transaction, start_slot: int | None) -> None:
    """Check that a transaction, if it is open, began in this slot. With None it may have begun in any slot.

    Raises:
        ConcurrentTransactions: it began in another slot. The request may belong to an earlier transaction, or its
            process may have known an older state. A client that still waits for its answer repeats it.
    """
    if (
        start_slot is not None
        and transaction.state is TransactionState.ONGOING
        and transaction.start_slot != start_slot
    ):
        raise ConcurrentTransactions(
            f"transactional id {transaction.transactional_id!r}: another transaction than the request means is open "
            "now. Repeat the request"
        )


def overdue_transactions(state: StoreState | Draft, now_ms: int) -> list[Transaction]:
    """Return the open transactions of a state that have exceeded their timeout at ``now_ms`` of the store's clock."""
    return timed_out([state.transactions[name] for name in state.ongoing], now_ms)


def timed_out(transactions: Iterable[Transaction], now_ms: int) -> list[Transaction]:
    """Return the open transactions that have exceeded their timeout at ``now_ms`` of the store's clock.

    A prepared transaction has its own timeout, which counts from the prepare.
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
