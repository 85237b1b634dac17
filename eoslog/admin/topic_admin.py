"""Administration of topics: settings, columns and schemas, descriptions of partitions, and deletion of records.

Settings have Kafka's spelling on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from eoslog.arguments import is_whole_number
from eoslog.errors import CorruptRecord, InvalidRequest, InvalidTopic, OffsetOutOfRange
from eoslog.format.segment_index import SegmentIndexes
from eoslog.format.topic_schemas import stored_schema, without_columns
from eoslog.maintenance.table_formats import check_publishable
from eoslog.producer.new_columns import append_columns
from eoslog.session.session import partition_named
from eoslog.state.draft import Draft
from eoslog.state.entries import LogStartMoved, TopicConfig, TopicConfigChanged
from eoslog.state.features import MAX_MESSAGE_BYTES, STATISTICS_COLUMNS, need_feature
from eoslog.state.log_start import last_end_slot_below, segment_cut_at
from eoslog.state.names import TopicPartition, topic_partition
from eoslog.state.partition_state import Partition, SealedSegment
from eoslog.state.store_state import ColumnPath, StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.wording import quoted, shortened, unknown

ALL_DECIDED = -1
"""All records up to the last stable offset (Kafka's -1: up to the high watermark)."""
_FEATURES = {"statistics_columns": STATISTICS_COLUMNS, "max_message_bytes": MAX_MESSAGE_BYTES}
"""The features of settings that not each version of eoslog knows."""
_TIMESTAMP_TYPE = "message_timestamp_type"
"""A setting of Kafka's topics that topics of eoslog do not have."""


def changed_config(topic: str, config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """Return the settings with these changes. A value of None resets a setting to its default.

    Raises:
        InvalidTopic: a setting is unknown, or its value is not allowed.
    """
    values = config.model_dump()
    for name, value in changes.items():
        field = TopicConfig.model_fields.get(name)
        if field is None:
            raise _unknown(topic, name, TopicConfig.model_fields)
        values[name] = field.default if value is None else value
    try:
        return TopicConfig.model_validate(values)
    except ValidationError as error:
        raise InvalidTopic(f"topic {topic}: {TopicConfig.problem(error)}") from None


@dataclass(frozen=True)
class AlterTopic:
    """Change settings of a topic. The answer is the changed topic."""

    topic: str
    settings: Mapping[str, Any]

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, InvalidTopic, UnsupportedSchema"""
        found = topic_named(draft, self.topic)
        config = changed_config(self.topic, found.config, self.settings)
        check_publishable(self.topic, config.formats, stored_schema(found))
        if config.iceberg_format_version < found.config.iceberg_format_version:
            raise InvalidTopic(
                f"topic {self.topic}: iceberg_format_version cannot decrease from "
                f"{found.config.iceberg_format_version} to {config.iceberg_format_version}, because Iceberg has no way "
                "back. Leave it, or write the rows to another topic"
            )
        if config != found.config:
            changed = tuple(
                name for name in TopicConfig.model_fields if getattr(config, name) != getattr(found.config, name)
            )
            if _FEATURES.keys() >= set(changed):
                # A version that knows none of the settings would see an entry without a change.
                for name in changed:
                    need_feature(draft, _FEATURES[name])
            draft.append(TopicConfigChanged(topic=self.topic, topic_id=found.topic_id, config=config, changed=changed))
        return draft.topics[found.topic_id]


def parsed_settings(topic: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parse settings such as ``retention.ms=86400000``, in Kafka's spelling or that of ``TopicConfig``.

    Raises:
        InvalidTopic: a text is not NAME=VALUE, a setting is unknown, or its value is not allowed.
    """
    given: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidTopic(
                f"topic {topic}: setting {quoted(text)} is not NAME=VALUE, such as retention.ms=86400000"
            )
        if "=" in value:
            raise InvalidTopic(f"topic {topic}: {quoted(text)} is more than one setting: give each by itself")
        # Kafka's tool encloses values with commas in brackets: cleanup.policy=[compact,delete].
        field = setting_named(topic, name.strip())
        spelled[field] = name.strip()
        given[field] = value.strip().removeprefix("[").removesuffix("]")
    try:
        config = TopicConfig.model_validate_strings(given)
    except ValidationError as error:
        raise InvalidTopic(f"topic {topic}: {TopicConfig.problem(error, spelled)}") from None
    return {name: getattr(config, name) for name in given}


def settings_given(topic: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a mapping, such as ``{"retention.ms": "86400000"}``.

    Raises:
        InvalidTopic: a setting is unknown, or its value is not allowed.
    """
    return parsed_settings(topic, (f"{shortened(name)}={shortened(value)}" for name, value in given.items()))


def setting_named(topic: str, name: str) -> str:
    """Return the field of ``TopicConfig`` for the name of a setting, such as ``retention.ms``.

    Raises:
        InvalidTopic: the setting is unknown.
    """
    field = name.replace(".", "_")
    if field not in TopicConfig.model_fields:
        raise _unknown(topic, name, map(kafka_spelling, TopicConfig.model_fields))
    return field


def kafka_spelling(field: str) -> str:
    """Return a setting's name in Kafka's spelling, such as ``retention.ms``."""
    return field.replace("_", ".")


def _unknown(topic: str, name: str, known: Iterable[str]) -> InvalidTopic:
    if name.replace(".", "_") == _TIMESTAMP_TYPE:
        return InvalidTopic(
            f"topic {topic}: setting {quoted(name)} is not offered, because each row keeps the time that its producer "
            "gives it. Leave the setting out, and read the log's time of a row in the column _commit_timestamp"
        )
    return InvalidTopic(unknown(f"topic {topic}: setting {quoted(name)}", name, known))


@dataclass(frozen=True, slots=True)
class TopicSchemaVersion:
    """One version of a topic's schema."""

    version: int
    """Version 1 is the schema with which the topic was created."""
    slot: int
    """The slot from which the topic had this schema."""
    timestamp: int
    """The log's time at the slot (ms)."""
    schema: pa.Schema
    added: tuple[ColumnPath, ...]
    """The paths of its new columns: names from the outside in, ``element`` for lists, ``value`` for maps."""


@dataclass(frozen=True)
class AddColumns:
    """Add columns to a topic. The answer is the changed topic."""

    topic: str
    columns: pa.Schema
    spark_schema: str | None
    """The columns as Spark's JSON, for Spark types that Arrow does not have."""
    time_ms: int

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, and the errors of ``append_columns``"""
        return append_columns(
            draft, topic_named(draft, self.topic), self.columns, spark_schema=self.spark_schema, time_ms=self.time_ms
        )


def schema_history(topic: Topic) -> list[TopicSchemaVersion]:
    """Return all schemas of a topic, from the first to the current one."""
    versions = []
    schema = stored_schema(topic)
    for each in reversed(topic.schema_versions):
        versions.append(TopicSchemaVersion(each.version, each.slot, each.time_ms, schema, each.added))
        schema = without_columns(schema, each.added)
    return versions[::-1]


class PartitionDescription(NamedTuple):
    """The current state of one partition."""

    partition: int
    log_start_offset: int
    """The first offset (inclusive)."""
    last_stable_offset: int
    """The end of the rows that ``read_committed`` shows (exclusive)."""
    high_watermark: int
    """The end of the rows that ``read_uncommitted`` shows (exclusive)."""
    open_transactions: int
    """The number of open transactions with rows in the partition. The first one holds the last stable offset back."""
    segments: int
    """The number of sealed segments, plus the active one unless it is empty."""
    files: int
    """The number of data files that are objects of their own. Compaction rewrites small files of sealed segments into
    large ones."""
    bytes: int
    """The total size of the data files, including aborted rows."""
    cleaned_offset: int
    """Compaction is done up to here (exclusive)."""
    snapshot_floor: int
    """The slot of the last entry that removed rows; -1 if there is none. No earlier snapshot can be read."""


def describe_partition(partition: Partition) -> PartitionDescription:
    """Describe a partition from its state. No file is read."""
    active_files = {batch.file.path for batch in partition.active if batch.file is not None and batch.file.is_object}
    return PartitionDescription(
        partition=partition.id.partition,
        log_start_offset=partition.log_start_offset,
        last_stable_offset=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        open_transactions=len(partition.open_transactions),
        segments=len(partition.sealed) + bool(partition.active),
        files=sum(segment.file_count for segment in partition.sealed) + len(active_files),
        bytes=sum(segment.bytes for segment in partition.sealed) + partition.active_bytes,
        cleaned_offset=partition.cleaned_offset,
        snapshot_floor=partition.snapshot_floor,
    )


class SegmentCut(NamedTuple):
    """A log start within a sealed segment."""

    segment: SealedSegment
    offset: int


def segments_cut(state: StoreState, offsets: Mapping[TopicPartition, int]) -> list[SegmentCut]:
    """Return the sealed segments that log starts at these offsets would split.

    Raises:
        UnknownTopicOrPartition
    """
    found = []
    for given, offset in offsets.items():
        _, partition = partition_named(state, topic_partition(given))
        segment = segment_cut_at(partition, offset) if isinstance(offset, int) else None
        if segment is not None:
            found.append(SegmentCut(segment, offset))
    return found


def end_slots_of_cuts(indexes: SegmentIndexes, cuts: Iterable[SegmentCut]) -> dict[SegmentCut, int]:
    """Return the last slot that ended a transaction whose committed rows each cut deletes; -1 if there is none.

    A segment whose index cannot be read is left out: the damage may be the reason for the deletion.
    """
    found = {}
    for cut in cuts:
        with suppress(CorruptRecord):
            found[cut] = last_end_slot_below(indexes.batches(cut.segment), cut.offset)
    return found


@dataclass(frozen=True)
class DeleteRecords:
    """Delete records (Kafka's ``Admin.deleteRecords``): move the log starts to these offsets, all or none.

    The answer has the new log starts.
    """

    offsets: Mapping[TopicPartition, int]
    end_slots: Mapping[SegmentCut, int]
    """The result of ``end_slots_of_cuts``. A segment that was sealed or rewritten since counts as lost completely."""

    def apply(self, draft: Draft) -> dict[TopicPartition, int]:
        """
        Raises:
            UnknownTopicOrPartition
            OffsetOutOfRange: an offset lies beyond the last stable offset.
            InvalidRequest: an offset is not an integer, or the topic is compacted and does not delete.
        """
        found = {}
        for given, offset in self.offsets.items():
            named = topic_partition(given)
            topic, partition = partition_named(draft, named)
            wanted = _wanted_offset(topic, partition, offset)
            if wanted > partition.log_start_offset:
                segment = segment_cut_at(partition, wanted)
                end_slot = self.end_slots.get(SegmentCut(segment, wanted)) if segment is not None else None
                draft.append(
                    LogStartMoved(
                        topic_id=topic.topic_id,
                        partition=named.partition,
                        offset=wanted,
                        reason="delete_records",
                        removed_end_slot=end_slot,
                    )
                )
            found[named] = max(wanted, partition.log_start_offset)
        return found


def _wanted_offset(topic: Topic, partition: Partition, offset: object) -> int:
    named = f"{topic.topic}-{partition.id.partition}"
    if not is_whole_number(offset):
        raise InvalidRequest(f"partition {named}: the offset must be an integer, not {quoted(offset)}")
    if "delete" not in topic.config.cleanup_policy:
        raise InvalidRequest(
            f"topic {topic.topic} is compacted, so its records are deleted by tombstones. Set its cleanup_policy to "
            "'compact,delete' to delete records by offset"
        )
    if offset == ALL_DECIDED:
        return partition.last_stable_offset
    if not 0 <= offset <= partition.last_stable_offset:
        raise OffsetOutOfRange(
            f"records of {named} can be deleted up to its last stable offset {partition.last_stable_offset}, not "
            f"{offset}"
            + (
                f": its high watermark is {partition.high_watermark}, and a transaction is open in between"
                if partition.last_stable_offset < offset <= partition.high_watermark
                else ""
            )
        )
    return offset
