"""Expiry and deletion: of unnamed files, of files that entries dropped, and of unused ids, offsets and groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from eoslog.errors import GroupSubscribedToTopic, InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.entries import (
    Expired,
    ExpiredGroup,
    ExpiredOffset,
    ExpiredProducer,
    ExpiredTransactionalId,
    HorizonMoved,
    PendingDeletionsDone,
)
from eoslog.state.group_entries import GroupDeleted, GroupOffsetsDeleted
from eoslog.state.groups import EMPTY_GROUP, check_empty, group_named, may_subscribe
from eoslog.state.names import PartitionId
from eoslog.state.pending_offsets import drop_pending_offsets, pending_by_group, pending_partitions
from eoslog.state.producer_ids import forget_producer_ids
from eoslog.state.store_state import Group, IdempotentProducer, StoreState, Transaction, TransactionState

STAGED_MAX_AGE_MS = 7 * 24 * 3600 * 1000
DELETED_FILE_RETENTION_MS = 24 * 3600 * 1000
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 3600 * 1000
PRODUCER_ID_EXPIRATION_MS = 24 * 3600 * 1000
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
NEVER = -1
"""The time that turns an expiry off."""
_MOST_EXPIRED = 10_000
"""One record deletes at most this many ids of each kind, and this many groups."""
_MOST_OFFSETS_EXPIRED = 100_000
"""One record deletes at most this many offsets."""
_EXPIRABLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def known_offsets(state: StoreState | Draft, group_id: str, partition_ids: Iterable[PartitionId]) -> set[PartitionId]:
    """Return the given partitions for which a group has an offset, or may get one.

    A group may get an offset from an open transaction.

    Raises:
        GroupIdNotFound
    """
    wanted = set(partition_ids)
    return wanted & {*_named(state, group_id).offsets, *pending_partitions(state, group_id)}


def _named(state: StoreState | Draft, group_id: str) -> Group:
    """Return a group, even if it has offsets only after an open transaction commits."""
    if group_id not in state.groups and pending_partitions(state, group_id):
        return EMPTY_GROUP
    return group_named(state, group_id)


def delete_offsets(draft: Draft, entry: GroupOffsetsDeleted) -> None:
    """Delete committed offsets (KIP-496), and offsets that an open transaction would set.

    Raises:
        GroupIdNotFound
        GroupSubscribedToTopic: a member subscribes to one of the topics, or may do so.
        InvalidEntry: one of the offsets does not exist.
    """
    group = _named(draft, entry.group)
    partition_ids = {PartitionId(each.topic_id, each.partition) for each in entry.partitions}
    for topic in sorted(
        draft.topics[partition_id.topic_id].topic
        for partition_id in partition_ids
        if partition_id.topic_id in draft.topics
    ):
        if may_subscribe(group, topic):
            raise GroupSubscribedToTopic(
                f"group {entry.group!r} has a member that subscribes to {topic}, so its offsets are in use. "
                "Stop the group's consumers first, or remove its members if they died"
            )
    missing = partition_ids - known_offsets(draft, entry.group, partition_ids)
    if missing or len(partition_ids) < len(entry.partitions):
        raise InvalidEntry(f"group {entry.group!r} has no offset of {sorted(missing)}, or one is named twice")
    if entry.group in draft.groups:
        kept = {
            partition_id: offset for partition_id, offset in group.offsets.items() if partition_id not in partition_ids
        }
        draft.groups[entry.group] = replace(group, offsets=kept)
    drop_pending_offsets(draft, entry.group, partition_ids)


def delete_group(draft: Draft, entry: GroupDeleted) -> None:
    """Delete a group, and the offsets that an open transaction would set.

    Raises:
        GroupIdNotFound
        GroupNotEmpty: it has members.
    """
    check_empty(_named(draft, entry.group), entry.group)
    draft.groups.pop(entry.group, None)
    drop_pending_offsets(draft, entry.group, pending_partitions(draft, entry.group))


def plan_offset_expiry(state: StoreState | Draft, now_ms: int, retention_ms: int) -> tuple[ExpiredGroup, ...]:
    """Return the groups whose offsets expire at ``now_ms`` of the store's clock.

    An offset expires ``retention_ms`` after its commit (KIP-211), with three exceptions:

    - In a group without members it expires only after the group has been empty for ``retention_ms``.
    - In a group with members it does not expire while a member subscribes to its topic, or may do so.
    - It does not expire while an open transaction may still replace it.

    A group without members and offsets expires ``retention_ms`` after its last member left. One record has room for a
    limited number of groups and offsets. The next record may hold the rest.
    """
    found: list[ExpiredGroup] = []
    room = _MOST_OFFSETS_EXPIRED
    pending = pending_by_group(state)
    for group_id, group in state.groups.items():
        if len(found) == _MOST_EXPIRED or not room:
            break
        old = tuple(
            ExpiredOffset(topic_id=partition_id.topic_id, partition=partition_id.partition, slot=offset.slot)
            for partition_id, offset in group.offsets.items()
            if max(offset.commit_ms, group.empty_since_ms) + retention_ms <= now_ms
            and not _is_in_use(state, group, partition_id)
            and partition_id not in pending.get(group_id, ())
        )
        left_over = not group.members and not group.offsets and group.empty_since_ms + retention_ms <= now_ms
        if old or left_over:
            found.append(ExpiredGroup(group=group_id, generation=group.generation, offsets=old[:room]))
            room -= len(found[-1].offsets)
    return tuple(found)


def expire_offsets(draft: Draft, expired: ExpiredGroup, pending: Collection[PartitionId]) -> None:
    """Delete expired offsets. Delete the group, too, if it has neither members nor other offsets.

    Args:
        pending: the partitions whose offset in this group an open transaction may still set.

    Raises:
        InvalidEntry: an offset was committed, or a member joined, since the expiry was planned.
    """
    group = draft.groups.get(expired.group)
    if group is None or group.generation != expired.generation:
        raise InvalidEntry(f"group {expired.group!r} has changed since, and its offsets do not expire")
    offsets = dict(group.offsets)
    for each in expired.offsets:
        partition_id = PartitionId(each.topic_id, each.partition)
        known = offsets.pop(partition_id, None)
        in_use = _is_in_use(draft, group, partition_id) or partition_id in pending
        if known is None or known.slot != each.slot or in_use:
            raise InvalidEntry(
                f"the offset of partition {each.partition} in group {expired.group!r} is in use and does not expire"
            )
    if group.members or offsets:
        if not expired.offsets:
            raise InvalidEntry(f"group {expired.group!r} is in use and does not expire")
        draft.groups[expired.group] = replace(group, offsets=offsets)
    else:
        del draft.groups[expired.group]


def _is_in_use(state: StoreState | Draft, group: Group, partition_id: PartitionId) -> bool:
    topic = state.topics.get(partition_id.topic_id)
    return topic is not None and may_subscribe(group, topic.topic)


def move_horizon(draft: Draft, entry: HorizonMoved) -> None:
    """Move vacuum's horizon forward.

    From this slot on an entry that names files uploaded at or before the horizon is refused. Vacuum may therefore
    delete such files if no entry names them yet.

    Raises:
        InvalidEntry: the horizon would not move forward.
    """
    if entry.horizon_ms <= draft.horizon_ms:
        raise InvalidEntry(f"the horizon is at {draft.horizon_ms} ms already")
    draft.horizon_ms = entry.horizon_ms


def drop_pending_deletions(draft: Draft, entry: PendingDeletionsDone) -> None:
    """Remove files from the pending deletions, after vacuum has deleted them.

    Raises:
        InvalidEntry: no files that were dropped up to the slot are pending.
    """
    remaining = tuple(deletion for deletion in draft.pending_deletions if deletion.slot > entry.slot)
    if remaining == draft.pending_deletions:
        raise InvalidEntry(f"no files that were dropped up to slot {entry.slot} are pending deletion")
    draft.pending_deletions = remaining


@dataclass(frozen=True)
class ExpireUnused:
    """Delete ids and offsets that have not been used for long. The answer is the entry; None if nothing expires.

    An id with an open transaction does not expire. A time of ``NEVER`` turns an expiry off. One record has room for a
    limited number of ids. The next record may hold the rest.
    """

    now_ms: int
    """The time of the store's clock (ms)."""
    transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    offsets_retention_ms: int = OFFSETS_RETENTION_MS

    def apply(self, draft: Draft) -> Expired | None:
        transactions = _unused_transactions(draft, self.now_ms, self.transactional_id_expiration_ms)
        producers = _unused_producers(draft, self.now_ms, self.producer_id_expiration_ms)
        expired = Expired(
            transactional_ids=tuple(
                ExpiredTransactionalId(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                )
                for transaction in islice(transactions, _MOST_EXPIRED)
            ),
            producers=tuple(
                ExpiredProducer(producer_id=producer.producer_id, last_update_ms=producer.last_update_ms)
                for producer in islice(producers, _MOST_EXPIRED)
            ),
            groups=(
                ()
                if self.offsets_retention_ms == NEVER
                else plan_offset_expiry(draft, self.now_ms, self.offsets_retention_ms)
            ),
        )
        if not expired.transactional_ids and not expired.producers and not expired.groups:
            return None
        return draft.append(expired)


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
    """Delete expired ids, the producer state of partitions for them, and expired offsets.

    Application versions never expire: a replay must be recognized however late it comes.

    Raises:
        InvalidEntry: an id or an offset was used since the expiry was planned.
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
    pending = pending_by_group(draft) if entry.groups else {}
    for group in entry.groups:
        expire_offsets(draft, group, pending.get(group.group, ()))
