"""What an administrator sees of consumer groups: states, members, lags (``kafka-consumer-groups.sh``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eoslog.errors import InvalidRequest, quoted
from eoslog.session.positions import OffsetAndMetadata
from eoslog.state.groups import group_named
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import Group, StoreState

EMPTY, RECONCILING, STABLE = "Empty", "Reconciling", "Stable"
GROUP_STATES = (EMPTY, RECONCILING, STABLE)


class GroupListing(NamedTuple):
    """A consumer group in short."""

    group_id: str
    state: str
    """``Empty`` without members, ``Reconciling`` while one has partitions to give up, else ``Stable``."""


class MemberDescription(NamedTuple):
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """Of a static member."""
    topics: tuple[str, ...]
    """What it subscribes to."""
    partitions: tuple[TopicPartition, ...]
    """What it reads."""
    revoking: tuple[TopicPartition, ...]
    """What it is to give up."""


class GroupPartition(NamedTuple):
    """How far a group has come in a partition."""

    topic_partition: TopicPartition
    committed_offset: int | None
    """The next offset to read; None if the group has committed none."""
    last_stable_offset: int
    """What read_committed shows ends here (exclusive)."""
    high_watermark: int
    """The partition's end (exclusive)."""
    lag: int | None
    """From the committed offset to the high watermark, as Kafka's tool counts it; None without a committed offset."""
    member_id: str | None
    """Who reads the partition; None if nobody does."""


class GroupDescription(NamedTuple):
    """A consumer group."""

    group_id: str
    state: str
    generation: int
    """It rises when members come or go, or partitions move."""
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    """Those with a committed offset or a reader."""


def list_groups(state: StoreState, states: Iterable[str] | None) -> list[GroupListing]:
    """Raises: InvalidRequest: an unknown state."""
    wanted = None if states is None else {_state_named(each) for each in states}
    listed = [GroupListing(group_id, state_of(group)) for group_id, group in sorted(state.groups.items())]
    return [each for each in listed if wanted is None or each.state in wanted]


def _state_named(name: str) -> str:
    for known in GROUP_STATES:
        if name.lower() == known.lower():
            return known
    raise InvalidRequest(f"no group is ever in state {quoted(name)}; the states are: {', '.join(GROUP_STATES)}")


def state_of(group: Group) -> str:
    """The group's state, as ``GroupListing`` has it."""
    if not group.members:
        return EMPTY
    return RECONCILING if any(member.revoking for member in group.members.values()) else STABLE


def describe_group(state: StoreState, group_id: str) -> GroupDescription:
    """Raises: GroupIdNotFound"""
    group = group_named(state, group_id)
    readers = {place: member_id for member_id, member in group.members.items() for place in member.revoking}
    readers |= {place: member_id for member_id, member in group.members.items() for place in member.assigned}
    return GroupDescription(
        group_id,
        state_of(group),
        group.generation,
        tuple(
            MemberDescription(
                member_id,
                member.group_instance_id,
                member.topics,
                _named(state, member.assigned),
                _named(state, member.revoking),
            )
            for member_id, member in sorted(group.members.items())
        ),
        tuple(sorted(_partition(state, group, place, readers.get(place)) for place in {*group.offsets, *readers})),
    )


def _named(state: StoreState, places: Iterable[PartitionId]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(state.topics[place.topic_id].topic, place.partition) for place in places))


def _partition(state: StoreState, group: Group, place: PartitionId, member_id: str | None) -> GroupPartition:
    partition = partition_of(state, place)
    committed = group.offsets.get(place)
    return GroupPartition(
        _named(state, [place])[0],
        committed.offset if committed is not None else None,
        partition.last_stable_offset,
        partition.high_watermark,
        max(0, partition.high_watermark - committed.offset) if committed is not None else None,
        member_id,
    )


def group_offsets_of(state: StoreState, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed. Raises: GroupIdNotFound"""
    offsets = group_named(state, group_id).offsets
    return {
        _named(state, [place])[0]: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for place, offset in sorted(offsets.items())
    }
