"""Prepared transactions, the first phase of a two-phase commit (KIP-939): they wait for a verdict from outside.

A prepared transaction stays ONGOING and takes no more. All that may refuse a commit is checked when it is prepared:
topics, age of the files, generations. Its commit is refused for none of them, however late it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eoslog.errors import InvalidEntry, InvalidRequest, InvalidTransactionTimeout, InvalidTxnState, quoted
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.groups import check_offsets, committed_offset
from eoslog.state.names import PartitionId
from eoslog.state.partitions import check_file_place, check_upload, partition_of, topic_of
from eoslog.state.producer_ids import ProducerIdentity, check_identity, prepared_identity
from eoslog.state.sequences import MAX_EPOCH
from eoslog.state.store_state import GroupPartition, StoreState, Transaction, TransactionState
from eoslog.state.transaction_entries import StagedBatch, TransactionPrepared

DEFAULT_PREPARED_TIMEOUT_MS = 7 * 24 * 3600 * 1000
MOST_PREPARED_FILES = 50_000
"""The commit's record must have room for them too, and is a little larger than that of the prepare."""

_PREPARED_STATE = re.compile(r"([0-9]{1,19}):([0-9]{1,5})", re.ASCII)


class PrepareRepeated(Exception):
    """Not an error: this transaction was prepared before, with the same content."""

    def __init__(self) -> None:
        super().__init__("the transaction was prepared before")


def check_prepared_timeout(timeout_ms: int | None) -> None:
    """Raises: InvalidTransactionTimeout: neither a number of ms, 1 or more, nor None."""
    if timeout_ms is not None and (not isinstance(timeout_ms, int) or not 0 < timeout_ms < 2**53):
        raise InvalidTransactionTimeout(
            f"prepared_timeout_ms is {timeout_ms!r}; it is a number of ms, 1 or more, or None for no time-out"
        )


def prepared_state(identity: ProducerIdentity) -> str:
    """A prepared transaction's name, ``producer_id:epoch`` (Kafka's ``PreparedTxnState``)."""
    return f"{identity.producer_id}:{identity.producer_epoch}"


def parse_prepared_state(text: str) -> ProducerIdentity | None:
    """The transaction that ``prepared_state`` names; None for the empty string, which names none.

    Raises:
        InvalidRequest: the text is neither.
    """
    if text == "":
        return None
    found = _PREPARED_STATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest(f"a prepared transaction is named as '2097152:7', or '' for none, not {quoted(text)}")
    return ProducerIdentity(int(found[1]), int(found[2]))


def check_not_prepared(transaction: Transaction) -> None:
    """Raises: InvalidTxnState: the transaction is prepared and takes no more."""
    identity = prepared_identity(transaction)
    if identity is not None:
        raise InvalidTxnState(
            f"transactional id {transaction.transactional_id!r}: its transaction {prepared_state(identity)} is "
            "prepared and takes no more; commit or abort it"
        )


def check_prepare(draft: Draft, entry: TransactionPrepared) -> Transaction:
    """Return the transaction, if it may be prepared at this slot.

    Raises:
        PrepareRepeated: it was prepared before.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced, InvalidTxnState, StagedFilesExpired,
        UnknownTopicOrPartition, IllegalGeneration, UnknownMember: it may not be.
    """
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    transaction = check_identity(draft, entry.transactional_id, identity)
    if transaction.kind != "producer":
        raise InvalidTxnState(f"transactional id {entry.transactional_id!r} is a job's, which commits in one step")
    if prepared_identity(transaction) == identity and _content(transaction.prepared) == _content(entry):
        raise PrepareRepeated
    check_not_prepared(transaction)
    if len(entry.batches) > MOST_PREPARED_FILES:
        raise InvalidRequest(f"at most {MOST_PREPARED_FILES} files can be prepared, not {len(entry.batches)}")
    if entry.batches:
        if entry.upload_ms is None:
            raise InvalidEntry("staged batches need the time of their upload")
        check_upload(draft, entry.upload_ms)
    for batch in entry.batches:
        place = PartitionId(batch.topic_id, batch.partition)
        partition_of(draft, place)
        check_file_place(topic_of(draft, batch.topic_id), place, batch.file)
    for offsets in entry.offsets:
        check_offsets(draft, offsets)
    return transaction


def _content(prepared: TransactionPrepared | None) -> object:
    return None if prepared is None else (prepared.batches, prepared.offsets)


def apply_prepare(draft: Draft, entry: TransactionPrepared) -> None:
    transaction = check_prepare(draft, entry)
    begins = transaction.state is not TransactionState.ONGOING
    # Every state that is ever at rest may go on to ONGOING.
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
    """What the commit of a prepared transaction places: its staged batches without those of topics deleted since.

    Their base offsets are yet to be planned.
    """
    if transaction.prepared is None:
        return ()
    return tuple(
        StagedBatch.model_validate({**dict(batch), "base_offset": 0})
        for batch in transaction.prepared.batches
        if batch.topic_id in draft.topics
    )


def committed_offsets(draft: Draft, transaction: Transaction) -> tuple[GroupOffsets, ...]:
    """The group offsets that the commit of a prepared transaction sets.

    Left out are those of topics deleted since, and those that were deleted or committed again after the prepare: that
    is newer, as it is in Kafka's log of offsets.
    """

    def counts(group: str, offset: GroupOffset) -> bool:
        place = PartitionId(offset.topic_id, offset.partition)
        newest = committed_offset(draft, group, place)
        return place in draft.partitions and (newest is None or newest.slot <= transaction.prepared_slot)

    found = []
    for each in _pending_offsets(transaction):
        kept = tuple(offset for offset in each.offsets if counts(each.group, offset))
        if kept:
            found.append(each.model_copy(update={"offsets": kept}))
    return tuple(found)


def _pending_offsets(transaction: Transaction) -> Iterator[GroupOffsets]:
    """What was prepared of groups' offsets, without those deleted since."""
    prepared = () if transaction.prepared is None else transaction.prepared.offsets
    if not transaction.deleted_offsets:
        yield from prepared
        return
    for each in prepared:
        kept = tuple(
            offset
            for offset in each.offsets
            if GroupPartition(each.group, offset.topic_id, offset.partition) not in transaction.deleted_offsets
        )
        yield each.model_copy(update={"offsets": kept})


def open_identity(transaction: Transaction) -> ProducerIdentity:
    """The identity of the rows of the transaction that is open, or is about to be."""
    return prepared_identity(transaction) or ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def marker_epoch(transaction: Transaction) -> int:
    """The epoch of the control rows that end the transaction: above every one given out for its rows' producer id.

    If the holder of a prepared transaction got another producer id, all epochs of the old one are used up: Kafka's
    reserved one is left.
    """
    if transaction.open_producer_id != transaction.producer_id:
        return MAX_EPOCH
    return transaction.producer_epoch + 1


def overdue(transaction: Transaction, now_ms: int) -> bool:
    """Whether a prepared transaction is past its own time-out at ``now_ms`` of the store's clock."""
    prepared = transaction.prepared
    return prepared is not None and prepared.timeout_ms is not None and prepared.time_ms + prepared.timeout_ms < now_ms


def pending_partitions(state: StoreState | Draft, group: str) -> set[PartitionId]:
    """The partitions for which a prepared transaction may still set the group's offset; it need not exist before.

    Who reads on from the offset that is committed now would read again what that transaction has read.
    """
    return {
        PartitionId(offset.topic_id, offset.partition)
        for name in state.ongoing
        for offsets in _pending_offsets(state.transactions[name])
        if offsets.group == group
        for offset in offsets.offsets
    }


def drop_pending_offsets(draft: Draft, group: str, places: Iterable[PartitionId]) -> None:
    """Prepared transactions set the group's offsets of these partitions no more: they were deleted."""
    dropped = {GroupPartition(group, *place) for place in places}
    for name in list(draft.ongoing):
        transaction = draft.transactions[name]
        prepared = {
            GroupPartition(offsets.group, offset.topic_id, offset.partition)
            for offsets in _pending_offsets(transaction)
            for offset in offsets.offsets
        }
        if prepared & dropped:
            deleted = transaction.deleted_offsets | (prepared & dropped)
            draft.transactions[name] = replace(transaction, deleted_offsets=deleted)
