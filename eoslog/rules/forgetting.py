"""What a store may forget: files that no entry names, files that entries dropped, ids that nobody used for long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.rules.draft import Draft
from eoslog.rules.entries import (
    DoomedDeleted,
    Expired,
    ExpiredProducer,
    ExpiredTransactionalId,
    FileReference,
    HorizonMoved,
    LogStartMoved,
)
from eoslog.rules.group_forgetting import expire_offsets, plan_offset_expiry
from eoslog.rules.names import PartitionId
from eoslog.rules.partitions import partition_of
from eoslog.rules.producer_ids import forget_producer_ids
from eoslog.rules.segment_start import move_segment_start
from eoslog.rules.state import (
    NO_SLOT,
    Batch,
    Doomed,
    IdempotentProducer,
    Partition,
    SealedSegment,
    StoreState,
    Transaction,
    TransactionState,
    Verdict,
)

STAGED_MAX_AGE_MS = 7 * 24 * 3600 * 1000
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 3600 * 1000
PRODUCER_ID_EXPIRATION_MS = 24 * 3600 * 1000
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
NEVER = -1
_MOST_EXPIRED = 10_000
_EXPIRABLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def move_horizon(draft: Draft, entry: HorizonMoved) -> None:
    """From here on an entry that names files uploaded at or before the horizon is refused.

    Raises:
        InvalidEntry: the horizon would move back.
    """
    if entry.horizon_ms <= draft.horizon_ms:
        raise InvalidEntry(f"the horizon is at {draft.horizon_ms} ms already")
    draft.horizon_ms = entry.horizon_ms


def move_log_start(draft: Draft, entry: LogStartMoved) -> None:
    """Drop rows below an offset, whole segments and batches at a time. Producer state outlives them (Kafka's
    ``deleteRecords``).

    Raises:
        OffsetOutOfRange: the offset lies beyond the last stable offset, so that an open transaction would lose rows.
        InvalidEntry: the log start would not move forward, or the entry claims what the segment it cuts cannot hold.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    before = partition_of(draft, partition_id)
    if entry.offset <= before.log_start_offset:
        raise InvalidEntry(f"the log of partition {entry.partition} starts at {before.log_start_offset} already")
    if entry.offset > before.last_stable_offset:
        raise OffsetOutOfRange(
            f"the log of partition {entry.partition} cannot start at {entry.offset}: the last stable offset is "
            f"{before.last_stable_offset}, and an open transaction may not lose rows"
        )
    removed_end_slot = _removed_end_slot(before, entry)
    partition = draft.edit_partition(partition_id)
    partition.log_start_offset = entry.offset
    partition.snapshot_floor = draft.slot
    partition.snapshot_floor_ms = draft.time_ms
    partition.removed_end_slot = max(partition.removed_end_slot, removed_end_slot)
    dropped = [segment for segment in partition.sealed if segment.end_offset <= entry.offset]
    partition.sealed = partition.sealed[len(dropped) :]
    gone = [batch for batch in partition.active if batch.end_offset <= entry.offset]
    files: list[FileReference] = []
    if gone:
        move_segment_start(draft, partition, gone)
        del partition.active[: len(gone)]
        partition.segment_base_offset = gone[-1].end_offset
        partition.aborted = [txn for txn in partition.aborted if txn.last_offset >= partition.segment_base_offset]
        partition.active_bytes -= sum(batch.file.length for batch in gone if batch.file is not None)
        named = {batch.file.path for batch in partition.active if batch.file is not None}
        files += {batch.file.path: batch.file for batch in gone if batch.file and batch.file.path not in named}.values()
    for segment in dropped:
        files += [file for file in (segment.txnindex, segment.snapshot) if file is not None]
    if files or dropped:
        indexes = tuple(segment.index for segment in dropped)
        draft.doomed = (*draft.doomed, Doomed(draft.slot, "", tuple(files), indexes))


def _removed_end_slot(partition: Partition, entry: LogStartMoved) -> int:
    """The last slot that ended a transaction whose committed rows a new log start removes, as far as it can be known.

    The batches of sealed segments stand in index files. Of one that is cut the entry may know what goes; else its
    largest end slot counts.
    """
    removed = [last_end_slot_below(partition.active, entry.offset)]
    removed += [segment.max_end_slot for segment in partition.sealed if segment.end_offset <= entry.offset]
    cut = segment_cut_at(partition, entry.offset)
    if entry.removed_end_slot is None:
        removed += [cut.max_end_slot] if cut is not None else []
    elif cut is None or entry.removed_end_slot > cut.max_end_slot:
        raise InvalidEntry(
            f"partition {entry.partition}: no sealed segment at offset {entry.offset} holds a transaction that ended "
            f"at slot {entry.removed_end_slot}"
        )
    else:
        removed.append(entry.removed_end_slot)
    return max(removed)


def segment_cut_at(partition: Partition, offset: int) -> SealedSegment | None:
    """The sealed segment of which a log start at ``offset`` leaves a part."""
    return next((each for each in partition.sealed if each.base_offset < offset < each.end_offset), None)


def last_end_slot_below(batches: Iterable[Batch], offset: int) -> int:
    """The last slot that ended a transaction with committed rows below ``offset``; ``NO_SLOT`` if none did."""
    return max(
        (each.end_slot for each in batches if each.base_offset < offset and _is_committed(each)), default=NO_SLOT
    )


def _is_committed(batch: Batch) -> bool:
    return batch.control is None and batch.verdict is Verdict.COMMITTED


def forget_doomed(draft: Draft, entry: DoomedDeleted) -> None:
    remaining = tuple(doomed for doomed in draft.doomed if doomed.slot > entry.slot)
    if remaining == draft.doomed:
        raise InvalidEntry(f"no doomed files up to slot {entry.slot}")
    draft.doomed = remaining


def plan_expiry(
    state: StoreState | Draft,
    now_ms: int,
    *,
    transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    offsets_retention_ms: int = OFFSETS_RETENTION_MS,
) -> Expired | None:
    """The ids and offsets that nobody used for long at ``now_ms`` of the store's clock.

    Never an id with an open transaction. What has ``NEVER`` for its time stays. An entry holds so many ids at most as
    fit into a record; more may be left for the next.
    """
    transactional_ids = tuple(
        ExpiredTransactionalId(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
        )
        for transaction in islice(_unused_transactions(state, now_ms, transactional_id_expiration_ms), _MOST_EXPIRED)
    )
    producers = tuple(
        ExpiredProducer(producer_id=producer.producer_id, last_update_ms=producer.last_update_ms)
        for producer in islice(_unused_producers(state, now_ms, producer_id_expiration_ms), _MOST_EXPIRED)
    )
    groups = () if offsets_retention_ms == NEVER else plan_offset_expiry(state, now_ms, offsets_retention_ms)
    if not transactional_ids and not producers and not groups:
        return None
    return Expired(transactional_ids=transactional_ids, producers=producers, groups=groups)


def _unused_transactions(state: StoreState | Draft, now_ms: int, expiration_ms: int) -> Iterator[Transaction]:
    if expiration_ms != NEVER:
        for transaction in state.transactions.values():
            if transaction.state in _EXPIRABLE and transaction.last_update_ms + expiration_ms <= now_ms:
                yield transaction


def _unused_producers(state: StoreState | Draft, now_ms: int, expiration_ms: int) -> Iterator[IdempotentProducer]:
    if expiration_ms != NEVER:
        for producer in state.producers.values():
            if producer.last_update_ms + expiration_ms <= now_ms:
                yield producer


def expire(draft: Draft, entry: Expired) -> None:
    """Forget ids, what partitions know of their producers, and offsets. Application tokens stay for ever.

    Raises:
        InvalidEntry: an id or an offset moved since the entry was planned.
    """
    forgotten: set[int] = set()
    for expired in entry.transactional_ids:
        transaction = draft.transactions.get(expired.transactional_id)
        if (
            transaction is None
            or transaction.state not in _EXPIRABLE
            or (transaction.producer_id, transaction.producer_epoch) != (expired.producer_id, expired.producer_epoch)
        ):
            raise InvalidEntry(f"transactional id {expired.transactional_id!r} is in use and does not expire")
        del draft.transactions[expired.transactional_id]
        forgotten.add(transaction.producer_id)
    for producer in entry.producers:
        known = draft.producers.get(producer.producer_id)
        if known is None or known.last_update_ms != producer.last_update_ms:
            raise InvalidEntry(f"producer id {producer.producer_id} is in use and does not expire")
        del draft.producers[producer.producer_id]
        forgotten.add(producer.producer_id)
    forget_producer_ids(draft, forgotten)
    for group in entry.groups:
        expire_offsets(draft, group)
