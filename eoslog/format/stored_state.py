"""The ``store`` and ``topics`` parts of a checkpoint. Each field is checked against its bounds before it is used."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError

from eoslog.errors import CorruptRecord, InvalidTopic, first_problem
from eoslog.state.entries import TopicConfig, TopicSchema
from eoslog.state.entry_fields import FileReference, Hex, Identifier, Milliseconds, Model, Offset, PartitionIndex
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import PartitionId, check_topic_name
from eoslog.state.partition_state import NO_TIME
from eoslog.state.store_state import CommittedOffset, Group, Member, PendingDeletion, SchemaVersion, StoreState, Topic

_Slot = Annotated[int, Field(strict=True, ge=0, lt=2**43)]
_Time = Annotated[int, Field(strict=True, ge=NO_TIME, lt=2**53)]
_Generation = Annotated[int, Field(strict=True, ge=-1)]
_LeaderEpoch = Annotated[int, Field(strict=True, ge=-1, lt=2**31)]
_Version = Annotated[int, Field(strict=True, ge=1, lt=2**53)]
_GROUP_OFFSETS: TypeAdapter[tuple[GroupOffsets, ...]] = TypeAdapter(tuple[GroupOffsets, ...])
_StoredPartitionId = tuple[Hex, PartitionIndex]
_GROUP_OFFSET = tuple[Hex, PartitionIndex, Offset, str, _LeaderEpoch, _Slot, _Time]


class _StoredVersion(Model):
    version: _Version
    slot: _Slot
    time_ms: Milliseconds
    added: tuple[tuple[str, ...], ...]


class _StoredTopic(Model):
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    topic_schema: TopicSchema
    config: TopicConfig
    created_slot: _Slot
    schema_versions: Annotated[tuple[_StoredVersion, ...], Field(min_length=1)]


class _StoredMember(Model):
    topics: tuple[str, ...]
    group_instance_id: Identifier | None
    assigned: tuple[_StoredPartitionId, ...]
    revoking: tuple[_StoredPartitionId, ...]


class _StoredGroup(Model):
    group: Identifier
    generation: _Generation
    empty_since_ms: _Time
    members: dict[str, _StoredMember]
    offsets: tuple[_GROUP_OFFSET, ...]


class _StoredPendingDeletion(Model):
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
    pending_deletions: tuple[_StoredPendingDeletion, ...]
    groups: tuple[_StoredGroup, ...]


def decode_store(body: bytes) -> StoreState:
    """Decode the ``store`` part to a state without the objects of other parts, such as topics and transactions.

    Raises:
        CorruptRecord: the part is malformed.
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
        tuple(PendingDeletion(each.slot, each.prefix, each.files, each.indexes) for each in stored.pending_deletions),
    )
    for group in stored.groups:
        offsets = {PartitionId(*each[:2]): CommittedOffset(*each[2:]) for each in group.offsets}
        members = {member_id: _member(each) for member_id, each in group.members.items()}
        state.groups[group.group] = Group(group.generation, members, offsets, group.empty_since_ms)
    return state


def decode_topics(state: StoreState, rows: pa.RecordBatch) -> None:
    """Add the topics of some rows of the ``topics`` part to a state.

    Raises:
        CorruptRecord: a topic is malformed or appears twice.
    """
    for row in rows.to_pylist():
        topic = _topic(row)
        if topic.topic in state.topic_ids or topic.topic_id in state.topics:
            raise CorruptRecord(f"a checkpoint has two topics of the name {topic.topic} or the id {topic.topic_id}")
        state.topics[topic.topic_id] = topic
        state.topic_ids[topic.topic] = topic.topic_id


def _topic(row: dict[str, Any]) -> Topic:
    try:
        stored = _StoredTopic.model_validate(
            row | {"topic_schema": _topic_schema(row["topic_schema"]), "config": _topic_config(row["config"])}
        )
        check_topic_name(stored.topic)
    except ValidationError as error:
        raise CorruptRecord(f"a topic of a checkpoint is malformed: {first_problem(error)}") from None
    except InvalidTopic as error:
        raise CorruptRecord(f"a checkpoint has a topic that cannot be: {error}") from None
    return Topic(
        stored.topic,
        stored.topic_id,
        stored.partitions,
        stored.topic_schema,
        stored.config,
        stored.created_slot,
        tuple(SchemaVersion(each.version, each.slot, each.time_ms, each.added) for each in stored.schema_versions),
    )


# Topics often have the same schema and settings.
_topic_schema = lru_cache(maxsize=128)(TopicSchema.model_validate_json)
_topic_config = lru_cache(maxsize=128)(TopicConfig.model_validate_json)


def encode_offsets(offsets: tuple[GroupOffsets, ...]) -> str:
    """Encode the offsets of a transaction's last commit as JSON."""
    return _GROUP_OFFSETS.dump_json(offsets).decode()


def decode_offsets(text: str) -> tuple[GroupOffsets, ...]:
    """Decode the offsets of a transaction's last commit.

    Raises:
        ValidationError: the text does not contain offsets.
    """
    return _GROUP_OFFSETS.validate_json(text)


def _member(stored: _StoredMember) -> Member:
    return Member(
        stored.topics,
        stored.group_instance_id,
        tuple(PartitionId(*partition_id) for partition_id in stored.assigned),
        tuple(PartitionId(*partition_id) for partition_id in stored.revoking),
    )
