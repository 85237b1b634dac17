"""A consumer group as producers and consumers name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eoslog.errors import InvalidRequest, UnknownTopicOrPartition, shortened
from eoslog.session.positions import OffsetAndMetadata
from eoslog.session.topic_lookup import partition_named
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.names import TopicPartition, check_id
from eoslog.state.store_state import StoreState


class GroupMetadata(NamedTuple):
    """Who commits offsets (KIP-447): a group, and the generation in which the consumer belongs to it."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: tuple[tuple[str, str], ...] = ()
    """Name and id of each topic that the consumer reads: offsets of one are not those of another of its name."""


def checked_group(group: str | GroupMetadata) -> GroupMetadata:
    """The group for which offsets are committed.

    Raises:
        InvalidRequest: it is none, or is at a generation without a member (``KafkaProducer``).
    """
    if isinstance(group, str):
        group = GroupMetadata(group)
    if not isinstance(group, GroupMetadata):
        raise InvalidRequest("the group is its id, or what consumer.group_metadata() returns")
    check_id("group id", group.group_id)
    if group.generation > 0 and not group.member_id:
        raise InvalidRequest(
            f"group {group.group_id!r} is given with generation {group.generation} and without a member of it; pass "
            "what consumer.group_metadata() returns"
        )
    return group


def group_offsets(
    state: StoreState | Draft, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
) -> GroupOffsets:
    """Offsets as the log holds them.

    Raises:
        UnknownTopicOrPartition: the store has no such partition, or the consumer has read another topic of this name.
        InvalidRequest: a negative offset, or what ``checked_group`` refuses.
    """
    group = checked_group(group)
    topic_ids = dict(group.topic_ids)
    found = []
    for place, position in offsets.items():
        topic, _ = partition_named(state, place)
        if topic_ids.get(topic.topic, topic.topic_id) != topic.topic_id:
            raise UnknownTopicOrPartition(
                f"topic {topic.topic} was deleted and created again since its records were read"
            )
        if not isinstance(position, OffsetAndMetadata):
            position = OffsetAndMetadata(position)
        if position.offset < 0:
            raise InvalidRequest(f"offset {position.offset} of {shortened(place[0])}-{place[1]} is negative")
        found.append(
            GroupOffset(
                topic_id=topic.topic_id,
                partition=place[1],
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
    """What a transaction commits after it was given more of a group: of each partition the newer offset.

    Whoever read in an earlier generation stands there still, also with no offset left: its rows are in the transaction,
    and the generation is checked when it ends.
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
