"""The ``store`` part of a checkpoint: JSON that is not believed before every field is within its bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError

from eoslog.errors import CorruptRecord, InvalidTopic, first_problem
from eoslog.rules.entry_fields import FileReference, Hex, Identifier, Milliseconds, Model, Offset, PartitionIndex
from eoslog.rules.names import PartitionId, check_topic_name
from eoslog.rules.partition_state import NO_TIME
from eoslog.rules.state import CommittedOffset, Doomed, Group, Member, SchemaVersion, StoreState, Topic
from eoslog.rules.topic_entries import TopicConfig, TopicSchema

_Slot = Annotated[int, Field(strict=True, ge=0, lt=2**43)]
_Time = Annotated[int, Field(strict=True, ge=NO_TIME, lt=2**53)]
_Generation = Annotated[int, Field(strict=True, ge=-1)]
_LeaderEpoch = Annotated[int, Field(strict=True, ge=-1, lt=2**31)]
_Version = Annotated[int, Field(strict=True, ge=1, lt=2**53)]
_Place = tuple[Hex, PartitionIndex]
_GROUP_OFFSET = tuple[Hex, PartitionIndex, Offset, str, _LeaderEpoch, _Slot, _Time]


class _StoredTopic(Model):
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    topic_schema: TopicSchema
    config: TopicConfig
    created_slot: _Slot
    schema_versions: tuple[tuple[_Version, _Slot, Milliseconds, tuple[tuple[str, ...], ...]], ...] = ()


class _StoredMember(Model):
    topics: tuple[str, ...]
    group_instance_id: Identifier | None
    assigned: tuple[_Place, ...]
    revoking: tuple[_Place, ...]


class _StoredGroup(Model):
    group: Identifier
    generation: _Generation
    empty_since_ms: _Time
    members: dict[str, _StoredMember]
    offsets: tuple[_GROUP_OFFSET, ...]


class _StoredDoomed(Model):
    slot: _Slot
    prefix: Annotated[str, Field(pattern=r"^([a-zA-Z0-9_-][a-zA-Z0-9._-]*/[0-9a-f]{32}/)?$")]
    files: tuple[FileReference, ...]
    indexes: tuple[FileReference, ...]


class _StoredStore(Model):
    store_id: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    time_ms: Milliseconds
    horizon_ms: Milliseconds
    doomed: tuple[_StoredDoomed, ...]
    topics: tuple[_StoredTopic, ...]
    groups: tuple[_StoredGroup, ...]


def decode_store(body: bytes) -> StoreState:
    """What the ``store`` part says, a state without partitions, transactions, producers and tokens.

    Raises:
        CorruptRecord: it is not what a state is written as.
    """
    try:
        stored = _StoredStore.model_validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"a checkpoint's store part is malformed: {first_problem(error)}") from None
    state = StoreState(
        stored.store_id,
        stored.reader_features,
        stored.writer_features,
        stored.time_ms,
        stored.horizon_ms,
        tuple(Doomed(each.slot, each.prefix, each.files, each.indexes) for each in stored.doomed),
    )
    for each in stored.topics:
        topic = _topic(each)
        if topic.topic in state.topic_ids or topic.topic_id in state.topics:
            raise CorruptRecord(f"a checkpoint has two topics of the name {topic.topic} or the id {topic.topic_id}")
        state.topics[topic.topic_id] = topic
        state.topic_ids[topic.topic] = topic.topic_id
    for group in stored.groups:
        offsets = {PartitionId(*each[:2]): CommittedOffset(*each[2:]) for each in group.offsets}
        members = {member_id: _member(each) for member_id, each in group.members.items()}
        state.groups[group.group] = Group(group.generation, members, offsets, group.empty_since_ms)
    return state


def _topic(stored: _StoredTopic) -> Topic:
    try:
        check_topic_name(stored.topic)
    except InvalidTopic as error:
        raise CorruptRecord(f"a checkpoint has a topic that cannot be: {error}") from None
    # A checkpoint from before columns could be added tells of no versions, nor of the time of the first.
    versions = tuple(SchemaVersion(*each) for each in stored.schema_versions)
    return Topic(
        stored.topic,
        stored.topic_id,
        stored.partitions,
        stored.topic_schema,
        stored.config,
        stored.created_slot,
        versions or (SchemaVersion(1, stored.created_slot, 0),),
    )


def _member(stored: _StoredMember) -> Member:
    return Member(
        stored.topics,
        stored.group_instance_id,
        tuple(PartitionId(*place) for place in stored.assigned),
        tuple(PartitionId(*place) for place in stored.revoking),
    )
