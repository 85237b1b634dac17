"""The committed offsets of consumer groups, and who may commit them.

Offsets of a transaction count from the slot that ends it, where the generation is checked (KIP-447); none is ever
pending. Answers are those of Kafka's group coordinator (``OffsetMetadataManager``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eoslog.errors import FencedInstanceId, GroupIdNotFound, GroupNotEmpty, IllegalGeneration, UnknownMember, quoted
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_TIME
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import CommittedOffset, Group, Member, StoreState

EMPTY_GROUP = Group(0, {}, {})


def group_named(state: StoreState | Draft, group_id: str) -> Group:
    """Raises: GroupIdNotFound: the message names the groups that there are."""
    group = state.groups.get(group_id)
    if group is None:
        known = ", ".join(sorted(state.groups)[:20]) or "none"
        raise GroupIdNotFound(f"no consumer group is named {quoted(group_id)}; the store has: {known}")
    return group


def static_member(group: Group, group_instance_id: str) -> str | None:
    """The member id of the static member that holds an instance id now."""
    for member_id, member in group.members.items():
        if member.group_instance_id == group_instance_id:
            return member_id
    return None


def check_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """Refuse offsets of a transaction from a consumer that its group has left behind, or of topics that are no more.

    A generation of -1 with no member id comes from outside of the group's protocol and is accepted.

    Raises:
        FencedInstanceId, UnknownMember, IllegalGeneration, UnknownTopicOrPartition
    """
    places = [PartitionId(offset.topic_id, offset.partition) for offset in committed.offsets]
    if not is_from_outside(committed):
        if committed.group not in draft.groups and committed.generation >= 0:
            raise IllegalGeneration(
                f"group {committed.group!r} is not there any more; the consumer is at generation {committed.generation}"
            )
        _check_member(draft.groups.get(committed.group, EMPTY_GROUP), committed, places)
    for place in places:
        partition_of(draft, place)


def check_plain_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """As ``check_offsets``, for a commit outside of a transaction: a group with members takes it from these only.

    Raises:
        FencedInstanceId, UnknownMember, IllegalGeneration, UnknownTopicOrPartition
    """
    if is_from_outside(committed) and draft.groups.get(committed.group, EMPTY_GROUP).members:
        raise UnknownMember(
            f"group {committed.group!r} has members, which commit its offsets: subscribe as one of them, use another "
            "group, or wait until they have left"
        )
    check_offsets(draft, committed)


def is_from_outside(committed: GroupOffsets) -> bool:
    """Whether no member of the group commits these offsets."""
    return committed.generation < 0 and not committed.member_id and committed.group_instance_id is None


def _check_member(group: Group, committed: GroupOffsets, places: Iterable[PartitionId]) -> None:
    if committed.group_instance_id is not None:
        holder = static_member(group, committed.group_instance_id)
        if holder is not None and holder != committed.member_id:
            raise FencedInstanceId(
                f"another consumer has joined group {committed.group!r} as {committed.group_instance_id!r} since; "
                "close this one"
            )
    member = group.members.get(committed.member_id)
    if member is None:
        raise UnknownMember(f"{committed.member_id!r} is not a member of group {committed.group!r}")
    if committed.generation != group.generation:
        raise IllegalGeneration(
            f"group {committed.group!r} is at generation {group.generation}, the consumer at {committed.generation}"
        )
    for place in places:
        if place not in member.assigned and place not in member.revoking and _owner(group, place) is not None:
            raise IllegalGeneration(
                f"partition {place.partition} of topic {place.topic_id} is another member's in group "
                f"{committed.group!r}, since this one gave it up"
            )


def _owner(group: Group, place: PartitionId) -> str | None:
    for member_id, member in group.members.items():
        if place in member.assigned or place in member.revoking:
            return member_id
    return None


def commit_offsets(draft: Draft, committed: GroupOffsets, slot: int) -> None:
    """Store offsets.

    Args:
        slot: since when the log has them; those of a prepared transaction count only if nothing later was committed.
    """
    group = draft.groups.get(committed.group, EMPTY_GROUP)
    offsets = dict(group.offsets)
    for offset in committed.offsets:
        offsets[PartitionId(offset.topic_id, offset.partition)] = CommittedOffset(
            offset.offset, offset.metadata, offset.leader_epoch, slot, draft.time_ms
        )
    draft.groups[committed.group] = replace(group, offsets=offsets)


def committed_offset(state: StoreState | Draft, group: str, partition_id: PartitionId) -> CommittedOffset | None:
    return state.groups.get(group, EMPTY_GROUP).offsets.get(partition_id)


def without_topic(group: Group, topic_id: str) -> Group:
    """The group after a topic was deleted: nobody reads it, and its offsets are forgotten."""

    def rest(places: Iterable[PartitionId]) -> tuple[PartitionId, ...]:
        return tuple(place for place in places if place.topic_id != topic_id)

    members = {
        member_id: replace(member, assigned=rest(member.assigned), revoking=rest(member.revoking))
        for member_id, member in group.members.items()
    }
    offsets = {place: offset for place, offset in group.offsets.items() if place.topic_id != topic_id}
    return replace(group, members=members, offsets=offsets)


def check_empty(group: Group, group_id: str) -> None:
    """Raises: GroupNotEmpty"""
    if group.members:
        raise GroupNotEmpty(
            f"group {group_id!r} has {len(group.members)} members: stop its consumers first, or remove them"
        )


def is_empty_since(group: Group, members: dict[str, Member], now_ms: int) -> int:
    """When the group became empty, if ``members`` are all it has now."""
    if members:
        return NO_TIME
    return now_ms if group.members else group.empty_since_ms
