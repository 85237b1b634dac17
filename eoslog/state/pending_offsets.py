"""Group offsets that an open transaction has, and sets if it commits.

A prepared transaction has them in its ``prepare``. A client of Kafka's protocol adds them before the end. In each case
the generation was checked when they entered the log, and the later change of an offset wins, as in Kafka's log of
offsets (``OffsetMetadataManager``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.groups import commit_offsets, committed_offset
from eoslog.state.names import PartitionId
from eoslog.state.store_state import GroupPartition, PendingOffset, StoreState, Transaction


def with_added_offsets(transaction: Transaction, added: Iterable[GroupOffsets], slot: int) -> Transaction:
    """Return the transaction with further offsets. A later offset of the same partition replaces an earlier one."""
    pending = {each.group_partition: each for each in transaction.added_offsets}
    for offsets in added:
        for each in offsets.offsets:
            offset = PendingOffset(
                group=offsets.group,
                topic_id=each.topic_id,
                partition=each.partition,
                offset=each.offset,
                metadata=each.metadata,
                leader_epoch=each.leader_epoch,
                slot=slot,
            )
            pending[offset.group_partition] = offset
    return replace(transaction, added_offsets=tuple(sorted(pending.values())))


def commit_added_offsets(draft: Draft, transaction: Transaction) -> tuple[GroupOffsets, ...]:
    """Commit the offsets that were added to a transaction, and return them.

    Left out are offsets of topics that were deleted since, and offsets that were committed again since.
    """
    by_slot: defaultdict[tuple[str, int], list[GroupOffset]] = defaultdict(list)
    for each in transaction.added_offsets:
        if _is_current(draft, each.group, PartitionId(each.topic_id, each.partition), each.slot):
            by_slot[each.group, each.slot].append(each.group_offset)
    committed = []
    for (group, slot), offsets in by_slot.items():
        committed.append(GroupOffsets(group=group, offsets=tuple(offsets)))
        commit_offsets(draft, committed[-1], slot)
    return tuple(committed)


def prepared_offsets(draft: Draft, transaction: Transaction) -> tuple[GroupOffsets, ...]:
    """Return the group offsets that the commit of a prepared transaction sets.

    Offsets of topics that were deleted since the prepare are left out. So are offsets that were deleted or committed
    again since the prepare.
    """
    found = []
    for each in _prepared(transaction):
        kept = tuple(
            offset
            for offset in each.offsets
            if _is_current(draft, each.group, PartitionId(offset.topic_id, offset.partition), transaction.prepared_slot)
        )
        if kept:
            found.append(each.model_copy(update={"offsets": kept}))
    return tuple(found)


def _is_current(draft: Draft, group: str, partition_id: PartitionId, slot: int) -> bool:
    """Return True if a partition exists, and its offset was not committed after a slot."""
    newest = committed_offset(draft, group, partition_id)
    return partition_id in draft.partitions and (newest is None or newest.slot <= slot)


def _prepared(transaction: Transaction) -> Iterator[GroupOffsets]:
    """Yield the prepared group offsets, without offsets that were deleted since the prepare."""
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


def pending_offsets(transaction: Transaction) -> Iterator[GroupPartition]:
    """Yield the partitions of groups whose offset an open transaction may still set."""
    for offsets in _prepared(transaction):
        for offset in offsets.offsets:
            yield GroupPartition(offsets.group, offset.topic_id, offset.partition)
    for each in transaction.added_offsets:
        yield each.group_partition


def pending_partitions(state: StoreState | Draft, group: str) -> set[PartitionId]:
    """Return the partitions whose group offset an open transaction may still set. The group need not exist yet.

    A consumer that continued from the offset committed now would read again what that transaction has processed.
    """
    return pending_by_group(state).get(group, set())


def pending_by_group(state: StoreState | Draft) -> dict[str, set[PartitionId]]:
    """Return the answers of ``pending_partitions`` for all groups that have one. It costs as much as one answer."""
    found: defaultdict[str, set[PartitionId]] = defaultdict(set)
    for name in state.ongoing:
        for each in pending_offsets(state.transactions[name]):
            found[each.group].add(PartitionId(each.topic_id, each.partition))
    return dict(found)


def drop_pending_offsets(draft: Draft, group: str, partition_ids: Iterable[PartitionId]) -> None:
    """Remove a group's offsets of these partitions from all open transactions, because they were deleted."""
    dropped = {GroupPartition(group, *partition_id) for partition_id in partition_ids}
    for name in list(draft.ongoing):
        transaction = draft.transactions[name]
        found = dropped.intersection(pending_offsets(transaction))
        if not found:
            continue
        # The entry of the prepare stays as it is, so the state notes what is deleted from it.
        deleted = found if transaction.prepared is not None else set()
        draft.transactions[name] = replace(
            transaction,
            deleted_offsets=transaction.deleted_offsets | deleted,
            added_offsets=tuple(each for each in transaction.added_offsets if each.group_partition not in dropped),
        )
