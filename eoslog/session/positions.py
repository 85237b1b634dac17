"""Positions in partitions, as clients give and receive them, and as a group commits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eoslog.errors import InvalidRequest, UnknownTopicOrPartition, is_whole_number, quoted, shortened
from eoslog.session.session import partition_named
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.names import TopicPartition, check_id
from eoslog.state.store_state import StoreState


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the next offset to read, and metadata of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """The partition and offset of a sent record."""

    topic: str
    partition: int
    offset: int
    """-1 for a staged record, which has no offset before its commit, and for an old duplicate."""


class PartitionOffsets(NamedTuple):
    """The offsets that limit the visible rows of a partition."""

    partition: int
    earliest: int
    """The first offset (inclusive)."""
    last_stable_offset: int
    """The end of the rows that ``read_committed`` shows (exclusive)."""
    high_watermark: int
    """The end of the rows that ``read_uncommitted`` shows (exclusive)."""


class GroupMetadata(NamedTuple):
    """The group, generation and member that commit offsets (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: tuple[tuple[str, str], ...] = ()
    """The name and id of each topic that the consumer reads. A topic that was created again has another id."""


def checked_group(group: str | GroupMetadata) -> GroupMetadata:
    """Return the group for which offsets are committed.

    Raises:
        InvalidRequest: it is not a group, or it has a generation but no member (as in ``KafkaProducer``).
    """
    if isinstance(group, str):
        group = GroupMetadata(group)
    if not isinstance(group, GroupMetadata):
        raise InvalidRequest("the group must be a group id, or the result of consumer.group_metadata()")
    check_id("group id", group.group_id)
    if group.generation > 0 and not group.member_id:
        raise InvalidRequest(
            f"group {group.group_id!r} is given with generation {group.generation} but without a member; give the "
            "result of consumer.group_metadata()"
        )
    return group


def check_offsets_given(offsets: object) -> None:
    """Check offsets of a group as a user gives them.

    Raises:
        InvalidRequest: they are no mapping of partitions to offsets, or an offset is not a whole number of 0 or more.
    """
    if not isinstance(offsets, Mapping):
        raise InvalidRequest(
            f"offsets are given by partition, as {{TopicPartition('payments', 0): 42}}, not {quoted(offsets)}"
        )
    for partition, position in offsets.items():
        offset = position.offset if isinstance(position, OffsetAndMetadata) else position
        if not is_whole_number(offset) or offset < 0:
            raise InvalidRequest(
                f"the offset of {shortened(partition)} is {quoted(offset)}; it must be a whole number, 0 or more. "
                "Leave out a partition without an offset"
            )


def group_offsets(
    state: StoreState | Draft, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
) -> GroupOffsets:
    """Return offsets in the form of a log entry.

    Raises:
        UnknownTopicOrPartition: the partition does not exist, or the topic was created again since it was read.
        InvalidRequest: ``check_offsets_given`` refuses the offsets, or ``checked_group`` the group.
    """
    check_offsets_given(offsets)
    group = checked_group(group)
    topic_ids = dict(group.topic_ids)
    found = []
    for partition, position in offsets.items():
        topic, _ = partition_named(state, partition)
        if topic_ids.get(topic.topic, topic.topic_id) != topic.topic_id:
            raise UnknownTopicOrPartition(
                f"topic {topic.topic} was deleted and created again since its records were read"
            )
        if not isinstance(position, OffsetAndMetadata):
            position = OffsetAndMetadata(position)
        found.append(
            GroupOffset(
                topic_id=topic.topic_id,
                partition=partition[1],
                offset=position.offset,
                metadata=position.metadata,
                leader_epoch=position.leader_epoch,
            )
        )
    return GroupOffsets(
        group=group.group_id,
        generation=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        offsets=tuple(found),
    )


def with_added(offsets: Sequence[GroupOffsets], added: GroupOffsets) -> tuple[GroupOffsets, ...]:
    """Return a transaction's group offsets after ``added``. The newest offset of each partition counts.

    An item of an earlier generation stays, even if no offset is left in it. Its rows are in the transaction, so the end
    of the transaction must still check that generation.
    """
    newer = {(each.topic_id, each.partition) for each in added.offsets}
    same = added.offsets
    others = []
    for before in offsets:
        kept = before.offsets
        if before.group == added.group:
            kept = tuple(each for each in kept if (each.topic_id, each.partition) not in newer)
        if before.model_copy(update={"offsets": ()}) == added.model_copy(update={"offsets": ()}):
            same = kept + same
        else:
            others.append(before.model_copy(update={"offsets": kept}))
    return (*others, added.model_copy(update={"offsets": same}))
