"""The committed offsets of consumer groups, and the checks of a commit.

Offsets of a transaction take effect in the slot that ends it, and the generation is checked in that slot (KIP-447).
Before that they may be pending (see ``pending_offsets``). The answers are those of Kafka's group
coordinator (``OffsetMetadataManager``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eoslog.errors import FencedInstanceId, GroupIdNotFound, GroupNotEmpty, IllegalGeneration, UnknownMember
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, NO_TIME
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import CommittedOffset, Group, Member, StoreState
from eoslog.wording import counted, none_named

EMPTY_GROUP = Group(0, {}, {})
_POLL_AGAIN = "Poll again: the consumer then goes on from the committed offsets of the partitions that it has"


def group_named(state: StoreState | Draft, group_id: str) -> Group:
    """Return a consumer group.

    Raises:
        GroupIdNotFound: the group does not exist. The message lists the existing groups.
    """
    group = state.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(none_named("consumer group", group_id, state.groups))
    return group


def static_member(group: Group, group_instance_id: str) -> str | None:
    """Return the member id of the static member that holds an instance id now; None if no member holds it."""
    for member_id, member in group.members.items():
        if member.group_instance_id == group_instance_id:
            return member_id
    return None


def check_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """Check that offsets of a transaction may be committed.

    Offsets with generation -1 and no member id come from outside the group's protocol, and are accepted (KIP-447).

    Raises:
        FencedInstanceId, UnknownMember, IllegalGeneration: the group has moved on without this consumer.
        UnknownTopicOrPartition: a topic was deleted.
    """
    partition_ids = [PartitionId(offset.topic_id, offset.partition) for offset in committed.offsets]
    if not is_from_outside(committed):
        if committed.group not in draft.groups and committed.generation >= 0:
            raise IllegalGeneration(
                f"group {committed.group!r} no longer exists; the consumer is at generation {committed.generation}. "
                f"{_POLL_AGAIN}"
            )
        _check_member(draft, committed, partition_ids)
    for partition_id in partition_ids:
        partition_of(draft, partition_id)


def check_plain_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """Check that offsets may be committed outside of a transaction. If a group has members, only they may.

    Raises:
        UnknownMember: the group has members, and none of them commits.
        FencedInstanceId, UnknownMember, IllegalGeneration, UnknownTopicOrPartition: as ``check_offsets``.
    """
    if is_from_outside(committed) and has_members(draft, committed.group):
        raise UnknownMember(
            f"group {committed.group!r} has members, and only they may commit its offsets. Subscribe as a member, use "
            "another group, or wait until the members have left"
        )
    check_offsets(draft, committed)


def is_from_outside(committed: GroupOffsets) -> bool:
    """Return True if the commit names no member of the group."""
    return committed.generation < 0 and not committed.member_id and committed.group_instance_id is None


def _check_member(draft: Draft, committed: GroupOffsets, partition_ids: Iterable[PartitionId]) -> None:
    group = draft.groups.get(committed.group, EMPTY_GROUP)
    if committed.group_instance_id is not None:
        holder = static_member(group, committed.group_instance_id)
        if holder is not None and holder != committed.member_id:
            raise FencedInstanceId(
                f"another consumer has joined group {committed.group!r} as {committed.group_instance_id!r}. Close this "
                "one"
            )
    member = group.members.get(committed.member_id)
    if member is None:
        raise UnknownMember(
            f"{committed.member_id!r} is not a member of group {committed.group!r}, or no longer. {_POLL_AGAIN}"
        )
    if not 0 <= committed.generation <= group.generation:
        raise IllegalGeneration(
            f"group {committed.group!r} is at generation {group.generation}, the consumer at {committed.generation}. "
            f"{_POLL_AGAIN}"
        )
    for partition_id in partition_ids:
        _check_partition(draft, group, member, committed=committed, partition_id=partition_id)


def _check_partition(
    draft: Draft, group: Group, member: Member, *, committed: GroupOffsets, partition_id: PartitionId
) -> None:
    """Check that no other member has had a partition since the generation of a commit (KIP-1251).

    Raises:
        IllegalGeneration
    """
    since = member.since.get(partition_id)
    if since is not None:
        # A rebalance elsewhere in the group does not concern a partition that the member has kept, or must still give
        # up. But if the partition came back, another member may have read it and committed in between.
        if since <= committed.generation:
            return
    elif committed.generation == group.generation and _owner(group, partition_id) is None:
        # No member has the partition, and none has had it in this generation: a member that loses one, by giving it up
        # or by leaving, ends the generation. A coordinator has no partitions, so it commits for its clients in this
        # generation only. The log does not know which partitions a client has kept since an older one.
        return
    topic = draft.topics.get(partition_id.topic_id)
    name = partition_id.topic_id if topic is None else topic.topic
    raise IllegalGeneration(
        f"partition {partition_id.partition} of topic {name} did not stay with this member since generation "
        f"{committed.generation}: group {committed.group!r} is at generation {group.generation}. {_POLL_AGAIN}"
    )


def _owner(group: Group, partition_id: PartitionId) -> str | None:
    for member_id, member in group.members.items():
        if partition_id in member.since:
            return member_id
    return None


def commit_offsets(draft: Draft, committed: GroupOffsets, slot: int) -> None:
    """Store offsets.

    Args:
        slot: the slot that put the offsets into the log. For a prepared transaction it is the slot of the prepare: a
            later commit of the same partition is newer, and wins.
    """
    group = draft.groups.get(committed.group, EMPTY_GROUP)
    offsets = dict(group.offsets)
    for offset in committed.offsets:
        offsets[PartitionId(offset.topic_id, offset.partition)] = CommittedOffset(
            offset.offset, offset.metadata, offset.leader_epoch, slot, draft.time_ms
        )
    draft.groups[committed.group] = replace(group, offsets=offsets, created_slot=created_slot(group, draft))


def created_slot(group: Group, draft: Draft) -> int:
    """Return the slot that created a group, which is the draft's if it does not exist yet."""
    return draft.slot if group.created_slot == NO_SLOT else group.created_slot


def committed_offset(state: StoreState | Draft, group: str, partition_id: PartitionId) -> CommittedOffset | None:
    """Return the offset that a group has committed for a partition; None if it has committed none."""
    return state.groups.get(group, EMPTY_GROUP).offsets.get(partition_id)


def without_topic(group: Group, topic_id: str) -> Group:
    """Return the group without the assignments and offsets of a deleted topic."""

    def rest(partition_ids: Iterable[PartitionId]) -> tuple[PartitionId, ...]:
        return tuple(partition_id for partition_id in partition_ids if partition_id.topic_id != topic_id)

    members = {
        member_id: replace(
            member,
            assigned=rest(member.assigned),
            revoking=rest(member.revoking),
            since={partition_id: member.since[partition_id] for partition_id in rest(member.since)},
        )
        for member_id, member in group.members.items()
    }
    offsets = {
        partition_id: offset for partition_id, offset in group.offsets.items() if partition_id.topic_id != topic_id
    }
    return replace(group, members=members, offsets=offsets)


def has_members(state: StoreState | Draft, group_id: str) -> bool:
    """Return whether a group has members. A group that does not exist has none."""
    return bool(state.groups.get(group_id, EMPTY_GROUP).members)


def may_subscribe(group: Group, topic: str) -> bool:
    """Return whether a member subscribes to a topic.

    A coordinator without topics does not know those of its clients. So they may use any topic, as in Kafka.
    """
    return any(
        topic in member.topics or (member.is_coordinator and not member.topics) for member in group.members.values()
    )


def check_empty(group: Group, group_id: str) -> None:
    """Check that a group has no members.

    Raises:
        GroupNotEmpty
    """
    if group.members:
        raise GroupNotEmpty(
            f"group {group_id!r} has {counted(len(group.members), 'member')}. Stop its consumers first, or remove them"
        )


def emptied_ms(group: Group, members: dict[str, Member], now_ms: int) -> int:
    """Return the time at which the group became empty (ms); ``NO_TIME`` if it has members from now on.

    Args:
        members: the members of the group from now on.
        now_ms: the time of the store's clock (ms).
    """
    if members:
        return NO_TIME
    return now_ms if group.members else group.empty_since_ms
