"""Positions in partitions, as clients give and receive them, and as a group commits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidRequest, UnknownTopicOrPartition
from eoslog.session.session import partition_named
from eoslog.state.draft import Draft
from eoslog.state.group_entries import LONGEST_METADATA, GroupOffset, GroupOffsets
from eoslog.state.names import TopicPartition, check_id, is_text, topic_partition
from eoslog.state.store_state import StoreState
from eoslog.state.topics import topic_named
from eoslog.wording import quoted, shortened


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the next offset to read, and metadata of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """-1: unknown."""


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
    if not isinstance(group, GroupMetadata) or not _is_complete(group):
        raise InvalidRequest(
            f"the group must be a group id, or the result of consumer.group_metadata(), not {quoted(group)}"
        )
    check_id("group id", group.group_id)
    if group.member_id:
        check_id("member id", group.member_id)
    if group.group_instance_id is not None:
        check_id("group instance id", group.group_instance_id)
    if group.generation > 0 and not group.member_id:
        raise InvalidRequest(
            f"group {group.group_id!r} is given with generation {group.generation} but without a member. Give the "
            "result of consumer.group_metadata()"
        )
    return group


def _is_complete(group: GroupMetadata) -> bool:
    """Return True if a group has the values that ``consumer.group_metadata()`` gives it, apart from its ids."""
    return (
        is_whole_number(group.generation)
        and group.generation >= -1
        and isinstance(group.member_id, str)
        and isinstance(group.topic_ids, tuple)
        and all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in group.topic_ids)
    )


def offsets_given(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets of a group that a user gives. They may be numbers, or tuples like Kafka's ``OffsetAndMetadata``.

    As in Kafka's clients, metadata of None is empty, and a leader epoch of None is unknown.

    Raises:
        InvalidRequest: they are not a mapping of partitions to offsets, or an offset or its metadata cannot be stored.
    """
    if not isinstance(offsets, Mapping):
        raise InvalidRequest(
            f"offsets are given by partition, such as {{TopicPartition('payments', 0): 42}}, not {quoted(offsets)}"
        )
    return {topic_partition(partition): _position(partition, position) for partition, position in offsets.items()}


def _position(partition: object, given: object) -> OffsetAndMetadata:
    fields: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    where = f"of the offset of {shortened(partition)}"
    try:
        offset, metadata, epoch = OffsetAndMetadata(*fields)
    except TypeError:
        raise InvalidRequest(
            f"the offset of {shortened(partition)} is {quoted(given)}. Give a number or "
            "OffsetAndMetadata(offset, metadata)"
        ) from None
    if not is_whole_number(offset) or offset < 0:
        raise InvalidRequest(
            f"the offset of {shortened(partition)} is {quoted(offset)}; it must be a whole number, 0 or more. "
            "Leave out a partition without an offset"
        )
    metadata = "" if metadata is None else metadata
    if not isinstance(metadata, str) or len(metadata) > LONGEST_METADATA or not is_text(metadata):
        raise InvalidRequest(
            f"the metadata {where} is {quoted(metadata)}; it must be None or a string of at most {LONGEST_METADATA} "
            "characters that UTF-8 can encode"
        )
    epoch = -1 if epoch is None else epoch
    if not is_whole_number(epoch) or not -1 <= epoch < 2**31:
        raise InvalidRequest(
            f"the leader epoch {where} is {quoted(epoch)}; it must be a whole number of 31 bits, or None"
        )
    return OffsetAndMetadata(offset, metadata, epoch)


def group_offsets(
    state: StoreState | Draft, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
) -> GroupOffsets:
    """Return offsets in the form of a log entry.

    Raises:
        UnknownTopicOrPartition: the partition does not exist, or the topic was created again since it was read.
        InvalidRequest: ``offsets_given`` refuses the offsets, or ``checked_group`` the group.
    """
    group = checked_group(group)
    topic_ids = dict(group.topic_ids)
    found = []
    for partition, position in offsets_given(offsets).items():
        topic = topic_named(state, partition.topic)
        # Before the partition is looked up: the new topic may have fewer of them.
        if topic_ids.get(topic.topic, topic.topic_id) != topic.topic_id:
            raise UnknownTopicOrPartition(
                f"topic {topic.topic} was deleted and created again since its records were read. Their offsets are not "
                "those of the new topic. The next poll, or the next run of a processor, reads the new topic"
            )
        partition_named(state, partition)
        found.append(
            GroupOffset(
                topic_id=topic.topic_id,
                partition=partition.partition,
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

    An item of an earlier generation keeps its partitions, and gets their newest offsets. Its rows are in the
    transaction, so the end of the transaction must still check that its member has kept these partitions since.
    """
    newest = {(each.topic_id, each.partition): each for each in added.offsets}
    same = added.offsets
    others = []
    for before in offsets:
        kept = before.offsets
        if before.group == added.group:
            kept = tuple(newest.get((each.topic_id, each.partition), each) for each in kept)
        if before.model_copy(update={"offsets": ()}) == added.model_copy(update={"offsets": ()}):
            same = tuple(each for each in kept if (each.topic_id, each.partition) not in newest) + same
        else:
            others.append(before.model_copy(update={"offsets": kept}))
    return (*others, added.model_copy(update={"offsets": same}))
