"""When a store forgets a consumer group and its offsets: told to, or because nobody used them for long.

Answers are those of Kafka's group coordinator (``GroupMetadataManager``, ``OffsetMetadataManager``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eoslog.errors import GroupSubscribedToTopic, InvalidEntry
from eoslog.rules.draft import Draft
from eoslog.rules.forgetting_entries import ExpiredGroup, ExpiredOffset
from eoslog.rules.group_entries import GroupDeleted, GroupOffsetsDeleted
from eoslog.rules.groups import EMPTY_GROUP, check_empty, group_named
from eoslog.rules.names import PartitionId
from eoslog.rules.prepared import drop_pending_offsets, pending_partitions
from eoslog.rules.state import Group, Member, StoreState


def known_offsets(state: StoreState | Draft, group_id: str, places: Iterable[PartitionId]) -> set[PartitionId]:
    """Those of the partitions of which a group has an offset, or a prepared transaction may still set one.

    Raises:
        GroupIdNotFound
    """
    wanted = set(places)
    return wanted & {*_named(state, group_id).offsets, *pending_partitions(state, group_id)}


def _named(state: StoreState | Draft, group_id: str) -> Group:
    """A group, also one that has offsets only if a prepared transaction commits."""
    if group_id not in state.groups and pending_partitions(state, group_id):
        return EMPTY_GROUP
    return group_named(state, group_id)


def delete_offsets(draft: Draft, entry: GroupOffsetsDeleted) -> None:
    """Forget committed offsets (KIP-496), and those that a prepared transaction would set.

    Raises:
        GroupIdNotFound
        GroupSubscribedToTopic: a member reads one of the topics.
        InvalidEntry: one of the offsets is not there.
    """
    group = _named(draft, entry.group)
    places = {PartitionId(each.topic_id, each.partition) for each in entry.partitions}
    subscribed = _subscribed(group.members.values())
    for topic in sorted(draft.topics[place.topic_id].topic for place in places if place.topic_id in draft.topics):
        if topic in subscribed:
            raise GroupSubscribedToTopic(
                f"group {entry.group!r} has a member that subscribes to {topic}: its offsets are in use"
            )
    missing = places - known_offsets(draft, entry.group, places)
    if missing or len(places) < len(entry.partitions):
        raise InvalidEntry(f"group {entry.group!r} has no offset of {sorted(missing)}, or one is named twice")
    if entry.group in draft.groups:
        kept = {place: offset for place, offset in group.offsets.items() if place not in places}
        draft.groups[entry.group] = replace(group, offsets=kept)
    drop_pending_offsets(draft, entry.group, places)


def delete_group(draft: Draft, entry: GroupDeleted) -> None:
    """Forget a group, and the offsets that a prepared transaction would set.

    Raises:
        GroupIdNotFound
        GroupNotEmpty: it has members.
    """
    check_empty(_named(draft, entry.group), entry.group)
    draft.groups.pop(entry.group, None)
    drop_pending_offsets(draft, entry.group, pending_partitions(draft, entry.group))


def plan_offset_expiry(state: StoreState | Draft, now_ms: int, retention_ms: int) -> tuple[ExpiredGroup, ...]:
    """The offsets that nobody needs any more at ``now_ms`` of the store's clock.

    In a group without members an offset expires ``retention_ms`` after its commit, and not before the group was empty
    for so long. With members, only offsets of topics to which none subscribes do, by their commit. One that a prepared
    transaction may still replace does not.
    """
    found = []
    for group_id, group in state.groups.items():
        old = tuple(
            ExpiredOffset(topic_id=place.topic_id, partition=place.partition, slot=offset.slot)
            for place, offset in group.offsets.items()
            if max(offset.commit_ms, group.empty_since_ms) + retention_ms <= now_ms
            and not _is_in_use(state, group, place)
            and place not in pending_partitions(state, group_id)
        )
        left_over = not group.members and not group.offsets and group.empty_since_ms + retention_ms <= now_ms
        if old or left_over:
            found.append(ExpiredGroup(group=group_id, generation=group.generation, offsets=old))
    return tuple(found)


def expire_offsets(draft: Draft, expired: ExpiredGroup) -> None:
    """Forget old offsets, and the group with its last one unless it has members.

    Raises:
        InvalidEntry: an offset was committed, or a member joined, since the entry was planned.
    """
    group = draft.groups.get(expired.group)
    if group is None or group.generation != expired.generation:
        raise InvalidEntry(f"group {expired.group!r} has changed, and its offsets do not expire")
    offsets = dict(group.offsets)
    for each in expired.offsets:
        place = PartitionId(each.topic_id, each.partition)
        known = offsets.pop(place, None)
        in_use = _is_in_use(draft, group, place) or place in pending_partitions(draft, expired.group)
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


def _is_in_use(state: StoreState | Draft, group: Group, place: PartitionId) -> bool:
    topic = state.topics.get(place.topic_id)
    return topic is not None and topic.topic in _subscribed(group.members.values())


def _subscribed(members: Iterable[Member]) -> set[str]:
    return {topic for member in members for topic in member.topics}
