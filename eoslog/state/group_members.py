"""The members of consumer groups: they join, leave, and hand partitions over to each other.

A handover has two steps (KIP-429, KIP-848). First a new generation tells a member which partitions to give up. When the
member has given them up or has left, they are assigned to others. No member therefore reads a partition for which
another may still commit. A member reads its other partitions without interruption.

A group of Kafka's clients has one member here: its coordinator, the gateway that all of them use. It has no partitions.
Its clients share them among themselves, and each of their rebalances is a new generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eoslog.errors import IllegalGeneration, InconsistentGroupProtocol, InvalidEntry, NotCoordinator
from eoslog.state.draft import Draft
from eoslog.state.features import GROUP_COORDINATORS, need_feature
from eoslog.state.group_entries import AssignedPartitions, GroupChanged, GroupMember, MemberAssignment
from eoslog.state.groups import EMPTY_GROUP, created_slot, emptied_ms, static_member
from eoslog.state.names import PartitionId
from eoslog.state.store_state import Group, Member, StoreState
from eoslog.wording import counted

Assignment = dict[str, tuple[PartitionId, ...]]


def partitions_to_read(state: StoreState | Draft, members: Mapping[str, Member]) -> dict[str, list[PartitionId]]:
    """Return the partitions of each existing topic to which a consumer subscribes, by the topic's name.

    The topics of a coordinator are left out: its clients share their partitions among themselves.
    """
    consumers = [member for member in members.values() if not member.is_coordinator]
    names = sorted({topic for consumer in consumers for topic in consumer.topics} & state.topic_ids.keys())
    return {name: state.topics[state.topic_ids[name]].partition_ids() for name in names}


def share_out(state: StoreState | Draft, members: Mapping[str, Member]) -> Assignment:
    """Return the target assignment: the partitions that each member should read.

    A member keeps its partitions as long as no other subscriber of the topic has two partitions fewer.
    Partitions that a member is about to give up count as free.
    """
    return _Assignor(partitions_to_read(state, members), members).assign()


class _Assignor:
    """Computes a balanced assignment that moves few partitions."""

    def __init__(self, topics: Mapping[str, list[PartitionId]], members: Mapping[str, Member]) -> None:
        self._topics = topics
        self._subscribers = {
            name: sorted(member_id for member_id, member in members.items() if name in member.topics) for name in topics
        }
        self._kept = {member_id: frozenset(member.assigned) for member_id, member in members.items()}
        self._holders = {
            partition_id: member_id for member_id, member in members.items() for partition_id in member.revoking
        }
        self._load = dict.fromkeys(members, 0)
        self._owned: dict[str, dict[str, list[PartitionId]]] = {
            name: {member_id: [] for member_id in subscribers} for name, subscribers in self._subscribers.items()
        }

    def assign(self) -> Assignment:
        self._keep()
        # Start with the topics that have few subscribers: their partitions have the fewest candidates.
        for name in sorted(self._topics, key=lambda name: (len(self._subscribers[name]), name)):
            self._assign_free(name)
        while any(self._balance(name) for name in self._topics):
            pass
        found: dict[str, list[PartitionId]] = {member_id: [] for member_id in self._load}
        for owners in self._owned.values():
            for member_id, partition_ids in owners.items():
                found[member_id] += partition_ids
        return {member_id: tuple(sorted(partition_ids)) for member_id, partition_ids in sorted(found.items())}

    def _keep(self) -> None:
        for name, partition_ids in self._topics.items():
            for member_id in self._subscribers[name]:
                kept = [partition_id for partition_id in partition_ids if partition_id in self._kept[member_id]]
                self._owned[name][member_id] = kept
                self._load[member_id] += len(kept)

    def _assign_free(self, name: str) -> None:
        taken = {partition_id for partition_ids in self._owned[name].values() for partition_id in partition_ids}
        for partition_id in self._topics[name]:
            if partition_id not in taken:
                self._assign(name, partition_id, self._least_loaded(name, self._holders.get(partition_id)))

    def _assign(self, name: str, partition_id: PartitionId, member_id: str) -> None:
        self._owned[name][member_id].append(partition_id)
        self._load[member_id] += 1

    def _least_loaded(self, name: str, preferred: str | None = None) -> str:
        return min(self._subscribers[name], key=lambda each: (self._load[each], each != preferred, each))

    def _balance(self, name: str) -> bool:
        """Move a topic's partitions from the subscriber with most to the one with fewest partitions.

        It stops when they differ by less than two. Returns True if a partition was moved.
        """
        moved = False
        owned = self._owned[name]
        while True:
            to = self._least_loaded(name)
            owners = [member_id for member_id in self._subscribers[name] if owned[member_id]]
            most = max(owners, key=lambda each: (self._load[each], each), default=to)
            if self._load[most] - self._load[to] < 2:
                return moved
            # Prefer a partition that the member does not read yet. To move it interrupts nobody.
            partition_id = max(
                owned[most], key=lambda partition_id: (partition_id not in self._kept[most], partition_id)
            )
            owned[most].remove(partition_id)
            self._load[most] -= 1
            self._assign(name, partition_id, to)
            moved = True


class _Changed(NamedTuple):
    members: dict[str, Member]
    """The members after the change, still with their old assignments."""
    is_new_generation: bool
    """True if the change needs a new generation even if no partition moves."""


def plan_group_change(
    state: StoreState | Draft,
    group_id: str,
    *,
    joined: Sequence[GroupMember] = (),
    left: Iterable[str] = (),
    revoked: Iterable[str] = (),
    time_ms: int,
) -> GroupChanged | None:
    """Return the entry that changes a group, with the assignment of all members; None if nothing changes.

    Args:
        joined: consumers that join, or change their subscription. A coordinator that is a member already begins a new
            generation.
        left: member ids that leave. Ids of non-members are ignored.
        revoked: member ids that have given up their partitions. Ids with nothing to give up are ignored.
        time_ms: the time of the store's clock (ms).

    Raises:
        InconsistentGroupProtocol: a consumer would join a coordinator, or a coordinator would join consumers.
        NotCoordinator: a coordinator would join another one.
    """
    group = state.groups.get(group_id, EMPTY_GROUP)
    joined = tuple(member for member in joined if not _is_joined(group, member))
    left = tuple(sorted(set(left) & group.members.keys()))
    revoked = tuple(sorted(each for each in set(revoked) if each in group.members and group.members[each].revoking))
    changed = _changed(group_id, group, joined, left, revoked)
    assignment = _without_others(share_out(state, changed.members), changed.members)
    if not (joined or left or revoked) and _is_assigned(changed.members, assignment):
        return None
    return GroupChanged(
        group=group_id,
        generation=_next_generation(group, changed, assignment),
        joined=joined,
        left=left,
        revoked=revoked,
        assigned=tuple(_member_assignment(member_id, partition_ids) for member_id, partition_ids in assignment.items()),
        time_ms=time_ms,
    )


@dataclass(frozen=True)
class ChangeGroup:
    """Let members join, leave and give up partitions. The answer lists the members that left.

    A coordinator joins again for each rebalance of its clients. A gateway takes over a group if the old coordinator
    leaves with the same request.
    """

    group_id: str
    time_ms: int
    joined: GroupMember | None = None
    only_if_member: bool = False
    """Ignore ``joined`` if it is no longer a member. An evicted member must join under another id."""
    left: Collection[str] = ()
    revoked: str | None = None
    """A member that has given up partitions."""
    still_read: Collection[PartitionId] = ()
    """The partitions that ``revoked`` still reads."""

    def apply(self, draft: Draft) -> Sequence[str]:
        """Raises: InconsistentGroupProtocol, NotCoordinator"""
        members = draft.groups.get(self.group_id, EMPTY_GROUP).members
        joins = self.joined is not None and (not self.only_if_member or self.joined.member_id in members)
        member = None if self.revoked is None else members.get(self.revoked)
        # A newer generation may have told the member to give up a partition that it still reads.
        has_given_up = member is not None and not set(member.revoking) & set(self.still_read)
        entry = plan_group_change(
            draft,
            self.group_id,
            joined=(self.joined,) if self.joined is not None and joins else (),
            left=self.left,
            revoked=(self.revoked,) if self.revoked is not None and has_given_up else (),
            time_ms=self.time_ms,
        )
        if entry is None:
            return ()
        if any(member.is_coordinator for member in entry.joined):
            need_feature(draft, GROUP_COORDINATORS)
        return draft.append(entry).left


def change_group(draft: Draft, entry: GroupChanged) -> None:
    """Apply a change of members, and the assignment that the entry states.

    Raises:
        IllegalGeneration: the group has changed since the entry was planned.
        InconsistentGroupProtocol: a consumer would join a coordinator, or a coordinator would join consumers.
        NotCoordinator: a coordinator would join another one.
        InvalidEntry: nothing changes, or a partition would be assigned to no member or to two.
    """
    group = draft.groups.get(entry.group, EMPTY_GROUP)
    if entry.generation not in (group.generation, group.generation + 1):
        raise IllegalGeneration(f"group {entry.group!r} is at generation {group.generation} already")
    changed = _changed(entry.group, group, entry.joined, entry.left, entry.revoked)
    assignment = {
        each.member_id: tuple(
            PartitionId(topic.topic_id, partition) for topic in each.topics for partition in topic.partitions
        )
        for each in entry.assigned
    }
    if assignment.keys() != changed.members.keys():
        raise InvalidEntry(f"group {entry.group!r}: the assignment does not list exactly the members")
    members = {
        member_id: _assigned(member, assignment[member_id], entry.generation)
        for member_id, member in changed.members.items()
    }
    _check_assignment(draft, entry.group, members)
    expected = _next_generation(group, changed, assignment)
    if entry.generation < expected:
        raise IllegalGeneration(f"group {entry.group!r} is at generation {group.generation} already")
    # A coordinator that joins again changes no member: it begins a generation for its clients.
    rebalances = any(member.is_coordinator for member in entry.joined)
    if entry.generation > expected or (members == dict(group.members) and not rebalances):
        raise InvalidEntry(f"group {entry.group!r}: the entry changes nothing, or raises the generation without need")
    draft.groups[entry.group] = Group(
        generation=entry.generation,
        members=members,
        offsets=group.offsets,
        empty_since_ms=emptied_ms(group, members, draft.time_ms),
        created_slot=created_slot(group, draft),
        subscribed=_subscribed(group, members, draft.slot),
    )


def _next_generation(group: Group, changed: _Changed, assignment: Assignment) -> int:
    """Return the group's generation after a change. A member that must give up a partition ends the present one."""
    gives_up = any(set(member.assigned) - set(assignment[name]) for name, member in changed.members.items())
    return group.generation + (changed.is_new_generation or gives_up)


def _subscribed(group: Group, members: Mapping[str, Member], slot: int) -> Mapping[str, int]:
    """Return the slot since which the group has subscribed to each topic. Without members it keeps its topics."""
    if not members:
        return group.subscribed
    return {topic: group.subscribed.get(topic, slot) for member in members.values() for topic in member.topics}


def _assigned(member: Member, assigned: tuple[PartitionId, ...], generation: int) -> Member:
    """Return the member with a new assignment. It gives up the other partitions that it holds."""
    revoking = tuple(sorted(set(member.held) - set(assigned)))
    # A partition that it has held without interruption keeps its generation, so that the member may still commit what
    # it read in that generation.
    since = {partition_id: member.since.get(partition_id, generation) for partition_id in (*assigned, *revoking)}
    return replace(member, assigned=assigned, revoking=revoking, since=since)


def _is_joined(group: Group, member: GroupMember) -> bool:
    """Return whether a consumer is a member with this subscription already. A coordinator begins a new generation."""
    known = group.members.get(member.member_id)
    if known is None or member.is_coordinator:
        return False
    return (known.topics, known.group_instance_id, known.address) == (member.topics, member.group_instance_id, None)


def _changed(
    group_id: str, group: Group, joined: Sequence[GroupMember], left: Sequence[str], revoked: Sequence[str]
) -> _Changed:
    members = dict(group.members)
    is_new_generation = bool(left)
    for member_id in left:
        if members.pop(member_id, None) is None:
            raise InvalidEntry(f"{member_id!r} cannot leave the group: it is not a member")
    for member_id in revoked:
        if member_id not in members or not members[member_id].revoking:
            raise InvalidEntry(f"{member_id!r} has nothing to give up")
        members[member_id] = _without_revoking(members[member_id])
    for member in joined:
        _check_protocol(group_id, members, member)
        before = members.get(member.member_id)
        if before is None and member.group_instance_id is not None:
            before = _replaced(members, member.group_instance_id)
        if before is None or before.topics != member.topics or member.is_coordinator:
            is_new_generation = True
        if before is None:
            before = Member(())
        members[member.member_id] = replace(
            before,
            topics=member.topics,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            host=member.host,
            address=member.address,
        )
    return _Changed(members, is_new_generation)


def _check_protocol(group_id: str, members: Mapping[str, Member], joined: GroupMember) -> None:
    """Check that a member may join the members of a group: a coordinator is the only member of its group.

    Raises:
        InconsistentGroupProtocol: a consumer would join a coordinator, or a coordinator would join consumers.
        NotCoordinator: a coordinator would join another one.
    """
    coordinator_id = next((member_id for member_id, member in members.items() if member.is_coordinator), None)
    if coordinator_id is None:
        if joined.is_coordinator and members:
            raise InconsistentGroupProtocol(
                f"group {group_id!r} has {counted(len(members), 'consumer')} of eoslog, so clients of Kafka's protocol "
                "cannot join it. Use another group id, or stop the other consumers"
            )
        return
    address = members[coordinator_id].address
    if not joined.is_coordinator:
        raise InconsistentGroupProtocol(
            f"group {group_id!r} has clients of Kafka's protocol, which the gateway at {address} coordinates. Use "
            "another group id, or stop these clients"
        )
    if joined.member_id != coordinator_id:
        raise NotCoordinator(
            f"the gateway at {address} coordinates group {group_id!r}, so the one at {joined.address} cannot. Send "
            "the request to that gateway"
        )


def _replaced(members: dict[str, Member], group_instance_id: str) -> Member | None:
    """Remove the static member that a new one replaces (KIP-345), and return it; None if there is none.

    The old member is fenced and can no longer commit. The partitions that it was about to give up are therefore free.
    """
    holder = static_member(Group(0, members, {}), group_instance_id)
    return None if holder is None else _without_revoking(members.pop(holder))


def _without_revoking(member: Member) -> Member:
    since = {partition_id: member.since[partition_id] for partition_id in member.assigned}
    return replace(member, revoking=(), since=since)


def _without_others(target: Assignment, members: Mapping[str, Member]) -> Assignment:
    """Return the part of each member's target that it may read now: no other member still holds these partitions."""
    holders = {partition_id: member_id for member_id, member in members.items() for partition_id in member.held}
    return {
        member_id: tuple(
            partition_id for partition_id in partition_ids if holders.get(partition_id, member_id) == member_id
        )
        for member_id, partition_ids in target.items()
    }


def _is_assigned(members: Mapping[str, Member], assignment: Assignment) -> bool:
    return all(members[member_id].assigned == partition_ids for member_id, partition_ids in assignment.items())


def _member_assignment(member_id: str, partition_ids: tuple[PartitionId, ...]) -> MemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for partition_id in partition_ids:
        by_topic.setdefault(partition_id.topic_id, []).append(partition_id.partition)
    return MemberAssignment(
        member_id=member_id,
        topics=tuple(
            AssignedPartitions(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
    )


def _check_assignment(draft: Draft, group_id: str, members: Mapping[str, Member]) -> None:
    """Check that each partition of the subscribed topics belongs to exactly one member.

    The member subscribes to the topic, or is about to give the partition up.

    Raises:
        InvalidEntry: a partition belongs to no member, to several, or to a member that does not subscribe.
    """
    to_read = partitions_to_read(draft, members)
    topic_of = {partition_id: name for name, partition_ids in to_read.items() for partition_id in partition_ids}
    held: set[PartitionId] = set()
    for member_id, member in members.items():
        for partition_id in member.held:
            if partition_id in held:
                raise InvalidEntry(
                    f"group {group_id!r}: partition {partition_id.partition} would be assigned to two members"
                )
            held.add(partition_id)
        for partition_id in member.assigned:
            if topic_of.get(partition_id) not in member.topics:
                raise InvalidEntry(
                    f"group {group_id!r}: {member_id!r} is assigned a partition to which it does not subscribe"
                )
    if not topic_of.keys() <= held:
        raise InvalidEntry(f"group {group_id!r}: a partition would be assigned to no member")
