"""The entries of the log. Each one is a change of a store's state, and is part of a slot record.

An entry has its results (base offset, producer id, epoch) beside the values of its request. Readers compute the results
again and compare. The entries here are those of the store, its topics, their segments, and expiry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from eoslog.errors import InvalidTopic
from eoslog.state.entry_fields import (
    Count,
    FileReference,
    Hex,
    Identifier,
    Milliseconds,
    Model,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
)
from eoslog.state.group_entries import GroupChanged, GroupDeleted, GroupOffsetsDeleted, OffsetsCommitted
from eoslog.state.transaction_entries import (
    AddedToTransaction,
    BatchAppended,
    ProducerInitialized,
    TransactionEnded,
    TransactionPrepared,
)
from eoslog.wording import quoted, unknown


class StoreCreated(Model):
    """The first entry of every log."""

    type: Literal["store"] = "store"
    store_id: Hex
    """The id that `eoslog.json` gives the store."""
    reader_features: tuple[str, ...] = ()
    """The features that a reader must know."""
    writer_features: tuple[str, ...] = ()
    """The features that a writer must know."""
    time_ms: Milliseconds
    """The time of the store's clock (ms since the epoch). All entries use this clock."""


class FeaturesAdded(Model):
    """The store needs more features from here on, because a later entry uses them."""

    type: Literal["features"] = "features"
    reader_features: tuple[str, ...] = ()
    """The further features that a reader must know."""
    writer_features: tuple[str, ...] = ()
    """The further features that a writer must know."""


DEFAULT_MAX_TRANSACTION_TIMEOUT_MS = 900_000


class StoreConfigChanged(Model):
    """The store has other settings from here on."""

    type: Literal["store_config"] = "store_config"
    max_transaction_timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    """The longest timeout with which a producer may be initialized (ms; Kafka's ``transaction.max.timeout.ms``)."""


class TopicSchema(Model):
    """The kind of a topic's rows: Kafka records, or columns that the user defines."""

    kind: Literal["records", "columns"]
    arrow: str | None = None
    """The columns, as a base64 Arrow IPC schema."""
    spark: str | None = None
    """The same columns as Spark's JSON, if Spark created the topic."""
    key: tuple[str, ...] = ()
    """The columns whose values determine the partition."""


TableFormat = Literal["delta", "iceberg"]
"""The format of a table as which a topic is published."""

TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)

_UNITS = {"_ms": " of ms", "_bytes": " of bytes"}


class TopicConfig(Model):
    """A topic's settings."""

    def __new__(cls, **settings: object) -> TopicConfig:
        # Only a direct call passes settings here. Unknown fields of stored settings are of a newer version and ignored.
        for name in settings:
            if name not in cls.model_fields:
                raise InvalidTopic(unknown(f"setting {quoted(name)}", name, cls.model_fields))
        try:
            if settings:
                cls.model_validate(settings)
        except ValidationError as error:
            raise InvalidTopic(cls.problem(error)) from None
        return super().__new__(cls)

    @classmethod
    def problem(cls, error: ValidationError, spelled: Mapping[str, str] | None = None) -> str:
        """Return a message about the first wrong setting: its name, its value, and the valid values.

        Args:
            spelled: the names as the user gave them, by field; the fields themselves if None.
        """
        first = error.errors()[0]
        field = str(first["loc"][0])
        form = cls.model_json_schema()["properties"][field]
        # A setting that may be unset has the form of its values first.
        form = form.get("anyOf", [form])[0]
        least, most = form.get("minimum"), form.get("maximum")
        if "enum" in form:
            valid = f"one of {', '.join(form['enum'])}"
        else:
            unit = next((of for end, of in _UNITS.items() if field.endswith(end)), "")
            kind = "a number" if form["type"] == "number" else f"a whole number{unit}"
            valid = f"{kind}, {least} or more" if most is None else f"{kind} from {least} to {most}"
        name = (spelled or {}).get(field, field)
        return f"setting {name} cannot be {quoted(first['input'])}. It must be {valid}"

    segment_bytes: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 1 << 30
    """The size at which an active segment is sealed (bytes)."""
    segment_batches: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1000
    """The number of batches at which an active segment is sealed."""
    segment_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 7 * 24 * 3600 * 1000
    """The age at which an active segment is sealed (ms). It counts from the outcome of its oldest row."""
    retention_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Segments are dropped when their latest row is older than this (ms). -1, the default, keeps them for ever."""
    retention_bytes: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """A partition's oldest segment is dropped as long as the others have this many bytes; -1 for no limit."""
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """The rows that are removed: old rows, rows with a newer row of the same key, or both."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Compaction is due when more than this fraction of the sealed bytes was never compacted."""
    delete_retention_ms: Milliseconds = 24 * 3600 * 1000
    """How long compaction keeps tombstones, and markers of transactions without rows, after it first met them (ms)."""
    min_compaction_lag_ms: Milliseconds = 0
    """Rows are not compacted until this time after their outcome (ms)."""
    max_compaction_lag_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Compaction is due when sealed rows that were never compacted got their outcome this long ago (ms); -1: never."""
    statistics_columns: Annotated[int, Field(strict=True, ge=0, le=1000)] = 16
    """The number of columns with statistics in the log, for each new file of a topic of columns.

    The first columns whose values can be compared get statistics.
    """
    iceberg_format_version: Annotated[int, Field(strict=True, ge=2, le=3)] = 2
    """The format version of the topic's Iceberg table. It never decreases."""
    publish: Literal["none", "delta", "iceberg", "delta,iceberg"] = "none"
    """The formats of the tables as which the topic is published, for other engines."""
    max_message_bytes: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    """The largest record batch that a gateway takes from a client, compressed as the client sends it (bytes).

    None, the default, leaves the limit to the gateway.
    """

    @field_validator("cleanup_policy", "publish", mode="before")
    @classmethod
    def _in_one_order(cls, given: object) -> object:
        return ",".join(sorted(given.split(","))) if isinstance(given, str) else given

    @property
    def is_compacted(self) -> bool:
        """True if compaction keeps only the newest row of each key."""
        return self.cleanup_policy != "delete"

    @property
    def formats(self) -> tuple[TableFormat, ...]:
        """The formats of the topic's tables; none if the topic is not published."""
        return tuple(each for each in TABLE_FORMATS if each in self.publish.split(","))

    @property
    def is_published(self) -> bool:
        """True if the topic is published as a table."""
        return self.publish != "none"

    @property
    def longest_segment_ms(self) -> int:
        """The age at which an active segment is sealed (ms). Only sealed rows are compacted, so
        ``max_compaction_lag_ms`` limits it, too.
        """
        if self.is_compacted and self.max_compaction_lag_ms >= 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


class TopicCreated(Model):
    """A topic was created."""

    type: Literal["topic"] = "topic"
    topic: str
    topic_id: Hex
    """The id of this incarnation. A topic that is deleted and created again gets another id."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """The number of partitions."""
    topic_schema: TopicSchema
    config: TopicConfig = TopicConfig()
    time_ms: Milliseconds


class TopicConfigChanged(Model):
    """A topic has other settings from here on (Kafka's AlterConfigs)."""

    type: Literal["topic_config"] = "topic_config"
    topic: str
    topic_id: Hex
    config: TopicConfig
    """All settings, not only the changed ones."""
    changed: tuple[str, ...] = ()
    """The names of the settings that changed. Only the history uses them: a setting may be at its default again."""


class TopicSchemaChanged(Model):
    """A topic got more columns. Existing files do not change: readers return null for the columns that they lack."""

    type: Literal["topic_schema"] = "topic_schema"
    topic: str
    topic_id: Hex
    topic_schema: TopicSchema
    """The whole schema: the earlier columns unchanged, and the new ones after them."""
    schema_version: Annotated[int, Field(strict=True, ge=2, lt=2**53)]
    """The version before plus 1. The schema with which the topic was created has version 1."""
    time_ms: Milliseconds


class PartitionsCreated(Model):
    """A topic has more partitions from here on (Kafka's CreatePartitions). Rows stay where they are."""

    type: Literal["create_partitions"] = "create_partitions"
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """The new number of partitions."""


class TopicDeleted(Model):
    """A topic was deleted. Vacuum deletes its files later."""

    type: Literal["delete_topic"] = "delete_topic"
    topic: str
    topic_id: Hex


class SegmentSealed(Model):
    """The active segment was closed up to ``end_offset`` (exclusive). Index files list its batches from here on."""

    type: Literal["seal"] = "seal"
    topic_id: Hex
    partition: PartitionIndex
    base_offset: Offset
    """The segment's first offset."""
    end_offset: Offset
    """The end of the segment (exclusive). The next segment begins there."""
    index: FileReference
    """The index file: it lists the segment's batches."""
    txnindex: FileReference | None = None
    """The file of the segment's aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The file of the producers' state at the segment's start, in Kafka's format."""
    data: tuple[FileReference, ...] = ()
    """The new data files with the rows that were in records and shared objects, in the order of the rows. Adjacent
    batches of this kind share files. A batch between them whose file is an object of its own separates the files."""
    upload_ms: Milliseconds
    """A lower bound of the time at which its first file was written."""


class ReplacedSegment(Model):
    """A sealed segment, with its index when the replacement was written."""

    base_offset: Offset
    index: Annotated[str, Field(min_length=1, max_length=2048)]
    """The path of its index."""


class SkippedFile(Model):
    """A data file that is missing or damaged. Readers skip its rows."""

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    base_offset: Offset
    """The first offset of its rows."""
    end_offset: Offset
    """The end of their offsets (exclusive)."""
    rows: Annotated[int, Field(strict=True, ge=1, lt=2**40)]


class FilesSkipped(Model):
    """Data files of the active segment are missing or damaged. Their batches lose their rows and keep their offsets."""

    type: Literal["skip"] = "skip"
    topic_id: Hex
    partition: PartitionIndex
    skipped: Annotated[tuple[SkippedFile, ...], Field(min_length=1)]
    time_ms: Milliseconds


class SegmentsReplaced(Model):
    """One segment replaced adjacent sealed ones. Its rows are in other files, and some may have been removed."""

    type: Literal["replace"] = "replace"
    topic_id: Hex
    partition: PartitionIndex
    reason: Literal["compact_files", "compact_keys", "skip_files"]
    """Compaction of files removes no row, batch or control row. A skip removes the rows of ``skipped``."""
    replaced: Annotated[tuple[ReplacedSegment, ...], Field(min_length=1)]
    """The replaced segments, in order."""
    base_offset: Offset
    """The base offset of the first replaced segment."""
    end_offset: Offset
    """The end offset of the last replaced segment (exclusive)."""
    batch_count: Count
    """The number of batches and control rows in the index."""
    file_count: Count
    """The number of data files that the index names."""
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)]
    """The size of these data files."""
    min_timestamp: Timestamp
    """The smallest timestamp of the batches (ms); -1 if there is none."""
    max_timestamp: Timestamp
    """The largest timestamp of the batches (ms); -1 if there is none."""
    index: FileReference
    """The index file of the new segment. It may name data files of the replaced indexes."""
    txnindex: FileReference | None = None
    """The file of the new segment's aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The file of the producers' state at the segment's start: the snapshot of the first replaced segment."""
    removed_end_slot: Offset | None = None
    """The last slot that ended a transaction whose committed rows were removed; None if no row was removed."""
    skipped: tuple[SkippedFile, ...] = ()
    """The missing or damaged data files whose rows were removed."""
    upload_ms: Milliseconds
    """A lower bound of the time at which its first file was written."""
    time_ms: Milliseconds


class LogCleaned(Model):
    """Compaction has reached an offset of a partition. Below it no committed row has a newer one with the same key."""

    type: Literal["clean"] = "clean"
    topic_id: Hex
    partition: PartitionIndex
    dirty_offset: Offset
    """The old start of the part that was never compacted."""
    cleaned_offset: Offset
    """The new start of this part."""
    time_ms: Milliseconds


class LogStartMoved(Model):
    """The rows below ``offset`` were dropped, for readers that plan from here on."""

    type: Literal["log_start"] = "log_start"
    topic_id: Hex
    partition: PartitionIndex
    offset: Offset
    """The new first offset (inclusive)."""
    reason: Literal["delete_records", "retention", "overwrite"]
    removed_end_slot: Annotated[int, Field(strict=True, ge=-1, lt=2**63)] | None = None
    """Set only if the offset is within a sealed segment.

    The last slot that ended a transaction whose committed rows the segment loses; -1 if it loses none. None stands for
    the segment's largest end slot.
    """


class HorizonMoved(Model):
    """Vacuum's horizon moved. Unnamed files uploaded at or before it may be deleted, and can no longer be named."""

    type: Literal["horizon"] = "horizon"
    horizon_ms: Milliseconds


class PendingDeletionsDone(Model):
    """The files that entries up to ``slot`` dropped were deleted from the object store."""

    type: Literal["pending_deletions_done"] = "pending_deletions_done"
    slot: Offset


class ExpiredTransactionalId(Model):
    """A transactional id, with its identity when the expiry was planned."""

    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ExpiredProducer(Model):
    """A producer id without transactional id, with its last use when the expiry was planned."""

    producer_id: ProducerId
    last_update_ms: Milliseconds


class ExpiredOffset(Model):
    """A committed offset, with its slot when the expiry was planned."""

    topic_id: Hex
    partition: PartitionIndex
    slot: Offset
    """The slot that committed it; for a prepared transaction, the slot of the prepare."""


class ExpiredGroup(Model):
    """Expired offsets of a group. If no member and no offset is left, the group expires, too."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """The group's generation when the expiry was planned."""
    offsets: tuple[ExpiredOffset, ...] = ()


class Expired(Model):
    """Unused ids, offsets and groups expire. If one of them was used since the planning, the entry is refused."""

    type: Literal["expire"] = "expire"
    transactional_ids: tuple[ExpiredTransactionalId, ...] = ()
    producers: tuple[ExpiredProducer, ...] = ()
    groups: tuple[ExpiredGroup, ...] = ()


Entry = Annotated[
    StoreCreated
    | FeaturesAdded
    | StoreConfigChanged
    | TopicCreated
    | TopicConfigChanged
    | TopicSchemaChanged
    | PartitionsCreated
    | TopicDeleted
    | ProducerInitialized
    | BatchAppended
    | AddedToTransaction
    | TransactionPrepared
    | TransactionEnded
    | OffsetsCommitted
    | GroupChanged
    | GroupOffsetsDeleted
    | GroupDeleted
    | SegmentSealed
    | SegmentsReplaced
    | FilesSkipped
    | LogCleaned
    | LogStartMoved
    | HorizonMoved
    | PendingDeletionsDone
    | Expired,
    Field(discriminator="type"),
]

ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
