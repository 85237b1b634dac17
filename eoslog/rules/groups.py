"""Consumer groups: members, generations, committed offsets, and who reads which partition.

Offsets of a transaction count from the slot that ends it, where the generation is checked (KIP-447); none is ever
pending.
"""

from __future__ import annotations

from eoslog.errors import IllegalGeneration, InvalidEntry, UnknownMember
from eoslog.rules.draft import Draft
from eoslog.rules.entries import GroupChanged, GroupOffsets
from eoslog.rules.names import PartitionId, TopicPartition
from eoslog.rules.partitions import partition_of
from eoslog.rules.state import CommittedOffset, Group, StoreState

EMPTY_GROUP = Group(0, {}, {})


def check_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """Refuse offsets from a consumer that its group has left behind, or of topics that are no more.

    A generation of -1 with no member id comes from outside of the group's protocol and is accepted.

    Raises:
        IllegalGeneration, UnknownMember, UnknownTopicOrPartition
    """
    group = draft.groups.get(committed.group, EMPTY_GROUP)
    if committed.generation >= 0:
        if committed.member_id and committed.member_id not in group.members:
            raise UnknownMember(f"{committed.member_id!r} is not a member of group {committed.group!r}")
        if committed.generation != group.generation:
            raise IllegalGeneration(
                f"group {committed.group!r} is at generation {group.generation}, the consumer at {committed.generation}"
            )
    for offset in committed.offsets:
        partition_of(draft, PartitionId(offset.topic_id, offset.partition))


def commit_offsets(draft: Draft, committed: GroupOffsets) -> None:
    """Store offsets; the later slot wins."""
    group = draft.groups.get(committed.group, EMPTY_GROUP)
    offsets = dict(group.offsets)
    for offset in committed.offsets:
        offsets[PartitionId(offset.topic_id, offset.partition)] = CommittedOffset(
            offset.offset, offset.metadata, offset.leader_epoch, draft.slot
        )
    draft.groups[committed.group] = Group(group.generation, group.members, offsets)


def change_group(draft: Draft, entry: GroupChanged) -> None:
    """Members join and leave; the generation rises by one.

    Raises:
        IllegalGeneration: the group has moved on meanwhile.
        InvalidEntry: nothing changes.
    """
    group = draft.groups.get(entry.group, EMPTY_GROUP)
    if entry.generation != group.generation + 1:
        raise IllegalGeneration(f"group {entry.group!r} is at generation {group.generation} already")
    members = {member: topics for member, topics in group.members.items() if member not in entry.left}
    members |= {member.member_id: member.topics for member in entry.joined}
    if members == dict(group.members):
        raise InvalidEntry(f"group {entry.group!r}: a new generation without a change of members")
    draft.groups[entry.group] = Group(entry.generation, members, group.offsets)


def assignment(state: StoreState | Draft, group: Group) -> dict[str, list[TopicPartition]]:
    """Each member's partitions: of every topic, dealt out in order among the members that subscribe to it."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(group.members)}
    for topic in sorted({name for topics in group.members.values() for name in topics}):
        topic_id = state.topic_ids.get(topic)
        if topic_id is None:
            continue
        subscribers = [member for member in assigned if topic in group.members[member]]
        for partition in range(state.topics[topic_id].partitions):
            assigned[subscribers[partition % len(subscribers)]].append(TopicPartition(topic, partition))
    return assigned


def committed_offset(state: StoreState | Draft, group: str, partition_id: PartitionId) -> CommittedOffset | None:
    return state.groups.get(group, EMPTY_GROUP).offsets.get(partition_id)
