"""Descriptions of consumer groups: states, members and lags (``kafka-consumer-groups.sh``)."""

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
    """One line of the list of consumer groups."""

    group_id: str
    state: str
    """``Empty`` without members, ``Reconciling`` while a member has partitions to give up, otherwise ``Stable``."""


class MemberDescription(NamedTuple):
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """The instance id of a static member; otherwise None."""
    topics: tuple[str, ...]
    """The topics to which it subscribes."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that it reads."""
    revoking: tuple[TopicPartition, ...]
    """The partitions that it must give up."""


class GroupPartition(NamedTuple):
    """The progress of a group in one partition."""

    topic_partition: TopicPartition
    committed_offset: int | None
    """The next offset to read; None if the group has committed none."""
    last_stable_offset: int
    """The end of the rows that ``read_committed`` shows (exclusive)."""
    high_watermark: int
    """The partition's end (exclusive)."""
    lag: int | None
    """From the committed offset to the high watermark, as Kafka's tool counts it; None without a committed offset."""
    member_id: str | None
    """The member that reads the partition; None if no member does."""


class GroupDescription(NamedTuple):
    """A consumer group."""

    group_id: str
    state: str
    generation: int
    """It rises when members join or leave, or when partitions move."""
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    """The partitions with a committed offset or a member that reads them."""


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
    """Return the group's state, as in ``GroupListing``."""
    if not group.members:
        return EMPTY
    return RECONCILING if any(member.revoking for member in group.members.values()) else STABLE


def describe_group(state: StoreState, group_id: str) -> GroupDescription:
    """Raises: GroupIdNotFound"""
    group = group_named(state, group_id)
    readers = {
        partition_id: member_id for member_id, member in group.members.items() for partition_id in member.revoking
    }
    readers |= {
        partition_id: member_id for member_id, member in group.members.items() for partition_id in member.assigned
    }
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
        tuple(
            sorted(
                _partition(state, group, partition_id, readers.get(partition_id))
                for partition_id in {*group.offsets, *readers}
            )
        ),
    )


def _named(state: StoreState, partition_ids: Iterable[PartitionId]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(state.topics[partition_id.topic_id].topic, partition_id.partition)
            for partition_id in partition_ids
        )
    )


def _partition(state: StoreState, group: Group, partition_id: PartitionId, member_id: str | None) -> GroupPartition:
    partition = partition_of(state, partition_id)
    committed = group.offsets.get(partition_id)
    return GroupPartition(
        _named(state, [partition_id])[0],
        committed.offset if committed is not None else None,
        partition.last_stable_offset,
        partition.high_watermark,
        max(0, partition.high_watermark - committed.offset) if committed is not None else None,
        member_id,
    )


def group_offsets_of(state: StoreState, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group. Raises: GroupIdNotFound"""
    offsets = group_named(state, group_id).offsets
    return {
        _named(state, [partition_id])[0]: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for partition_id, offset in sorted(offsets.items())
    }
