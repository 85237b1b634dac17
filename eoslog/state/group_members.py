"""Members of consumer groups: they join, leave, and hand partitions over to each other.

A handover has two steps (KIP-429, KIP-848): a new generation tells a member what to give up; when it has done so, or is
gone, the partition is the next one's. So nobody reads what another may still commit, and what stays goes on unhindered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eoslog.errors import IllegalGeneration, InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.group_entries import AssignedPartitions, GroupChanged, GroupMember, MemberAssignment
from eoslog.state.groups import EMPTY_GROUP, is_empty_since, static_member
from eoslog.state.names import PartitionId
from eoslog.state.store_state import Group, Member, StoreState

Assignment = dict[str, tuple[PartitionId, ...]]


def partitions_to_read(state: StoreState | Draft, members: Mapping[str, Member]) -> dict[str, list[PartitionId]]:
    """The partitions of each topic that there is and that a member subscribes to, by the topic's name."""
    names = sorted({topic for member in members.values() for topic in member.topics} & state.topic_ids.keys())
    return {name: state.topics[state.topic_ids[name]].partition_ids() for name in names}


def share_out(state: StoreState | Draft, members: Mapping[str, Member]) -> Assignment:
    """What each member is to read.

    A member keeps what it has as long as none of the topic's other subscribers has two partitions fewer than it.
    What a member is to give up already counts as free.
    """
    return _Sharing(partitions_to_read(state, members), members).shared_out()


class _Sharing:
    def __init__(self, topics: Mapping[str, list[PartitionId]], members: Mapping[str, Member]) -> None:
        self._topics = topics
        self._subscribers = {
            name: sorted(member_id for member_id, member in members.items() if name in member.topics) for name in topics
        }
        self._kept = {member_id: frozenset(member.assigned) for member_id, member in members.items()}
        self._holders = {place: member_id for member_id, member in members.items() for place in member.revoking}
        self._load = dict.fromkeys(members, 0)
        self._owned: dict[str, dict[str, list[PartitionId]]] = {
            name: {member_id: [] for member_id in subscribers} for name, subscribers in self._subscribers.items()
        }

    def shared_out(self) -> Assignment:
        self._keep()
        # Topics with few subscribers first: their partitions have the least choice.
        for name in sorted(self._topics, key=lambda name: (len(self._subscribers[name]), name)):
            self._give_free(name)
        while any(self._even_out(name) for name in self._topics):
            pass
        found: dict[str, list[PartitionId]] = {member_id: [] for member_id in self._load}
        for owners in self._owned.values():
            for member_id, places in owners.items():
                found[member_id] += places
        return {member_id: tuple(sorted(places)) for member_id, places in sorted(found.items())}

    def _keep(self) -> None:
        for name, places in self._topics.items():
            for member_id in self._subscribers[name]:
                kept = [place for place in places if place in self._kept[member_id]]
                self._owned[name][member_id] = kept
                self._load[member_id] += len(kept)

    def _give_free(self, name: str) -> None:
        taken = {place for places in self._owned[name].values() for place in places}
        for place in self._topics[name]:
            if place not in taken:
                self._give(name, place, self._least_loaded(name, self._holders.get(place)))

    def _give(self, name: str, place: PartitionId, member_id: str) -> None:
        self._owned[name][member_id].append(place)
        self._load[member_id] += 1

    def _least_loaded(self, name: str, preferred: str | None = None) -> str:
        return min(self._subscribers[name], key=lambda each: (self._load[each], each != preferred, each))

    def _even_out(self, name: str) -> bool:
        """Move partitions from who has most to who has least, until none has two more. True if one was moved."""
        moved = False
        owned = self._owned[name]
        while True:
            to = self._least_loaded(name)
            owners = [member_id for member_id in self._subscribers[name] if owned[member_id]]
            most = max(owners, key=lambda each: (self._load[each], each), default=to)
            if self._load[most] - self._load[to] < 2:
                return moved
            # What was not its own before is moved first: that is no move for anybody.
            place = max(owned[most], key=lambda place: (place not in self._kept[most], place))
            owned[most].remove(place)
            self._load[most] -= 1
            self._give(name, place, to)
            moved = True


class _Changed(NamedTuple):
    members: dict[str, Member]
    """After they joined, left and gave up, and before the partitions are shared out anew."""
    is_new_generation: bool
    """Whether that alone needs a new generation."""


def plan_group_change(
    state: StoreState | Draft,
    group_id: str,
    *,
    joined: Sequence[GroupMember] = (),
    left: Iterable[str] = (),
    revoked: Iterable[str] = (),
    time_ms: int,
) -> GroupChanged | None:
    """The change with what every member then reads; None if nothing changes.

    Args:
        left, revoked: those that are no members, or have nothing to give up, are passed over.
    """
    group = state.groups.get(group_id, EMPTY_GROUP)
    joined = tuple(member for member in joined if not _is_joined(group, member))
    left = tuple(sorted(set(left) & group.members.keys()))
    revoked = tuple(sorted(each for each in set(revoked) if each in group.members and group.members[each].revoking))
    changed = _changed(group, joined, left, revoked)
    assignment = _without_others(share_out(state, changed.members), changed.members)
    gives_up = any(set(member.assigned) - set(assignment[name]) for name, member in changed.members.items())
    if not (joined or left or revoked) and _is_assigned(changed.members, assignment):
        return None
    return GroupChanged(
        group=group_id,
        generation=group.generation + (changed.is_new_generation or gives_up),
        joined=joined,
        left=left,
        revoked=revoked,
        assigned=tuple(_entry(member_id, places) for member_id, places in assignment.items()),
        time_ms=time_ms,
    )


@dataclass(frozen=True)
class ChangeGroup:
    """Let members join, leave and give up partitions. The answer lists the members that left."""

    group_id: str
    time_ms: int
    joined: GroupMember | None = None
    only_if_member: bool = False
    """Ignore ``joined`` if it is no member any more. A member that was evicted joins under another id."""
    left: Iterable[str] = ()
    revoked: Iterable[str] = ()

    def apply(self, draft: Draft) -> Sequence[str]:
        members = draft.groups.get(self.group_id, EMPTY_GROUP).members
        joins = self.joined is not None and (not self.only_if_member or self.joined.member_id in members)
        entry = plan_group_change(
            draft,
            self.group_id,
            joined=(self.joined,) if self.joined is not None and joins else (),
            left=self.left,
            revoked=self.revoked,
            time_ms=self.time_ms,
        )
        return () if entry is None else draft.append(entry).left


def change_group(draft: Draft, entry: GroupChanged) -> None:
    """Members join, leave and give up, and read what the entry says.

    Raises:
        IllegalGeneration: the group has moved on meanwhile.
        InvalidEntry: nothing changes, or a partition would be nobody's or two members'.
    """
    group = draft.groups.get(entry.group, EMPTY_GROUP)
    if entry.generation not in (group.generation, group.generation + 1):
        raise IllegalGeneration(f"group {entry.group!r} is at generation {group.generation} already")
    changed = _changed(group, entry.joined, entry.left, entry.revoked)
    assignment = {
        each.member_id: tuple(
            PartitionId(topic.topic_id, partition) for topic in each.topics for partition in topic.partitions
        )
        for each in entry.assigned
    }
    if assignment.keys() != changed.members.keys():
        raise InvalidEntry(f"group {entry.group!r}: the assignment is not that of its members")
    members = {
        member_id: replace(
            member,
            assigned=assignment[member_id],
            revoking=tuple(sorted({*member.assigned, *member.revoking} - set(assignment[member_id]))),
        )
        for member_id, member in changed.members.items()
    }
    _check_assignment(draft, entry.group, members)
    gives_up = any(set(member.assigned) - set(assignment[name]) for name, member in changed.members.items())
    expected = group.generation + (changed.is_new_generation or gives_up)
    if entry.generation < expected:
        raise IllegalGeneration(f"group {entry.group!r} is at generation {group.generation} already")
    if entry.generation > expected or members == dict(group.members):
        raise InvalidEntry(f"group {entry.group!r}: a new generation without a change")
    draft.groups[entry.group] = Group(
        entry.generation, members, group.offsets, is_empty_since(group, members, draft.time_ms)
    )


def _is_joined(group: Group, member: GroupMember) -> bool:
    known = group.members.get(member.member_id)
    return known is not None and (known.topics, known.group_instance_id) == (member.topics, member.group_instance_id)


def _changed(group: Group, joined: Sequence[GroupMember], left: Sequence[str], revoked: Sequence[str]) -> _Changed:
    members = dict(group.members)
    is_new_generation = bool(left)
    for member_id in left:
        if members.pop(member_id, None) is None:
            raise InvalidEntry(f"{member_id!r} leaves a group of which it is no member")
    for member_id in revoked:
        if member_id not in members or not members[member_id].revoking:
            raise InvalidEntry(f"{member_id!r} has nothing to give up")
        members[member_id] = replace(members[member_id], revoking=())
    for member in joined:
        before = members.get(member.member_id)
        if before is None and member.group_instance_id is not None:
            before = _replaced(members, member.group_instance_id)
        if before is None or before.topics != member.topics:
            is_new_generation = True
        if before is None:
            before = Member(())
        members[member.member_id] = replace(before, topics=member.topics, group_instance_id=member.group_instance_id)
    return _Changed(members, is_new_generation)


def _replaced(members: dict[str, Member], group_instance_id: str) -> Member | None:
    """Take out the static member whose place another takes. It is fenced, so what it was to give up is free."""
    holder = static_member(Group(0, members, {}), group_instance_id)
    return None if holder is None else replace(members.pop(holder), revoking=())


def _without_others(target: Assignment, members: Mapping[str, Member]) -> Assignment:
    """What each member may read now: of its target, what no other member holds still."""
    holders = {
        place: member_id for member_id, member in members.items() for place in (*member.assigned, *member.revoking)
    }
    return {
        member_id: tuple(place for place in places if holders.get(place, member_id) == member_id)
        for member_id, places in target.items()
    }


def _is_assigned(members: Mapping[str, Member], assignment: Assignment) -> bool:
    return all(members[member_id].assigned == places for member_id, places in assignment.items())


def _entry(member_id: str, places: tuple[PartitionId, ...]) -> MemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic_id, []).append(place.partition)
    return MemberAssignment(
        member_id=member_id,
        topics=tuple(
            AssignedPartitions(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
    )


def _check_assignment(draft: Draft, group_id: str, members: Mapping[str, Member]) -> None:
    """Every partition of the subscribed topics is one member's, who subscribes to it or is about to give it up."""
    to_read = partitions_to_read(draft, members)
    topic_of = {place: name for name, places in to_read.items() for place in places}
    held: set[PartitionId] = set()
    for member_id, member in members.items():
        for place in (*member.assigned, *member.revoking):
            if place in held:
                raise InvalidEntry(f"group {group_id!r}: partition {place.partition} would be two members'")
            held.add(place)
        for place in member.assigned:
            if topic_of.get(place) not in member.topics:
                raise InvalidEntry(f"group {group_id!r}: {member_id!r} does not subscribe to what it is to read")
    if not topic_of.keys() <= held:
        raise InvalidEntry(f"group {group_id!r}: a partition would be nobody's")
