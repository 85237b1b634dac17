"""The entries of the log: every change of a store's state, as it stands in a slot record.

An entry carries its result (base offset, producer id, epoch) beside its cause, and the fold checks it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

Offset = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Count = Annotated[int, Field(strict=True, ge=0, lt=2**40)]
Milliseconds = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
Timestamp = Annotated[int, Field(strict=True, ge=-1, lt=2**63)]
ProducerId = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
ProducerEpoch = Annotated[int, Field(strict=True, ge=0, le=32767)]
Sequence = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
PartitionIndex = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Identifier = Annotated[str, Field(min_length=1, max_length=1024)]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Model(BaseModel):
    """Part of a record: immutable, and blind to fields that a later minor version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class FileReference(Model):
    """An immutable object that an entry names, with what proves that it is the one."""

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    """Where it lies, from the store's root."""
    length: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """Bytes."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """CRC-32C of all its bytes."""

    @field_validator("path")
    @classmethod
    def _relative(cls, path: str) -> str:
        if path.startswith("/") or "://" in path or "\\" in path or "\x00" in path:
            raise ValueError("a referenced path is relative to the store")
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError("a referenced path has no empty, '.' or '..' parts")
        return path


class StoreCreated(Model):
    """The first entry of every log."""

    type: Literal["store"] = "store"
    store_id: Hex
    """The id that `eoslog.json` gives the store."""
    reader_features: tuple[str, ...] = ()
    """What a reader must know."""
    writer_features: tuple[str, ...] = ()
    """What a writer must know."""
    time_ms: Milliseconds
    """By the store's clock, as all times of entries (ms since the epoch)."""


class TopicSchema(Model):
    """What a topic's rows are: Kafka records, or columns of the user's own."""

    kind: Literal["records", "columns"]
    arrow: str | None = None
    """The columns, as a base64 Arrow IPC schema."""
    spark: str | None = None
    """The same as Spark's own JSON, if Spark made the topic."""
    key: tuple[str, ...] = ()
    """The columns whose values choose the partition."""


class TopicConfig(Model):
    """A topic's settings."""

    segment_bytes: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 1 << 30
    """An active segment of so many bytes is sealed."""
    segment_batches: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1000
    """An active segment of so many batches is sealed."""
    segment_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 7 * 24 * 3600 * 1000
    """An active segment whose oldest row was decided so long ago (ms) is sealed."""
    retention_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Segments whose latest row is older (ms) are dropped; -1, a table's default, keeps them for ever."""
    retention_bytes: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """The oldest segments of a partition are dropped while so many bytes are left without them; -1 for no limit."""
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """Whether old rows are deleted, or those that a newer row of the same key replaces, or both."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Compaction is due when more than this part of the sealed bytes was never compacted."""
    delete_retention_ms: Milliseconds = 24 * 3600 * 1000
    """How long compaction keeps tombstones, and markers of transactions without rows, after it met them first."""
    min_compaction_lag_ms: Milliseconds = 0
    """Rows that were decided less than this ago are not compacted."""
    max_compaction_lag_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Compaction is due when sealed rows that were never compacted were decided longer ago; -1 for never."""

    @field_validator("cleanup_policy", mode="before")
    @classmethod
    def _in_one_order(cls, policy: object) -> object:
        return "compact,delete" if policy == "delete,compact" else policy

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest row of each key is kept."""
        return self.cleanup_policy != "delete"

    @property
    def longest_segment_ms(self) -> int:
        """How old an active segment may become (ms): what waits for compaction must be sealed in time."""
        if self.is_compacted and self.max_compaction_lag_ms >= 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


class TopicCreated(Model):
    """A topic was made."""

    type: Literal["topic"] = "topic"
    topic: str
    topic_id: Hex
    """This incarnation's id: a topic that is deleted and made again has another."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """How many."""
    topic_schema: TopicSchema
    config: TopicConfig = TopicConfig()
    time_ms: Milliseconds


class TopicConfigChanged(Model):
    """A topic has other settings from here on (Kafka's AlterConfigs)."""

    type: Literal["topic_config"] = "topic_config"
    topic: str
    topic_id: Hex
    config: TopicConfig
    """All of them, not only those that change."""


class PartitionsCreated(Model):
    """A topic has more partitions from here on (Kafka's CreatePartitions). Rows stay where they are."""

    type: Literal["create_partitions"] = "create_partitions"
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """How many there are now."""


class TopicDeleted(Model):
    """A topic was deleted; its files go when vacuum runs."""

    type: Literal["delete_topic"] = "delete_topic"
    topic: str
    topic_id: Hex


class ProducerInitialized(Model):
    """A producer id and epoch were given out (Kafka's InitProducerId)."""

    type: Literal["init"] = "init"
    transactional_id: Identifier | None = None
    """None for an idempotent producer without one."""
    kind: Literal["producer", "job"] = "producer"
    """Who holds the id: one producer, or a job whose tasks have ids derived from it."""
    owner: Identifier | None = None
    """The run of a job, which fences the runs before it."""
    expected_producer_id: ProducerId | None = None
    """What the caller holds already (KIP-360)."""
    expected_producer_epoch: ProducerEpoch | None = None
    """As ``expected_producer_id``."""
    timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    """Anybody may abort a transaction that is open for longer."""
    keep_prepared: bool = False
    """Whether a prepared transaction stays as it is, for its new holder to complete (KIP-939)."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    time_ms: Milliseconds


class BatchAppended(Model):
    """A file's rows get offsets at once: an eager or idempotent producer's flush."""

    type: Literal["batch"] = "batch"
    topic_id: Hex
    partition: PartitionIndex
    base_offset: Offset
    """The offset of the first row."""
    record_count: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    """Rows of the file; their offsets follow each other."""
    file: FileReference
    upload_ms: Milliseconds
    """A lower bound of the time at which the file's upload began, by the store's clock."""
    transactional_id: Identifier | None = None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    """The producer's number of the first row in this partition; it wraps to 0 after 2^31 - 1."""
    min_timestamp: Timestamp
    """Of the rows (ms since the epoch)."""
    max_timestamp: Timestamp
    """Of the rows (ms since the epoch)."""
    time_ms: Milliseconds


class PreparedBatch(Model):
    """A staged file of a prepared transaction: its rows get offsets if that commits."""

    topic_id: Hex
    partition: PartitionIndex
    record_count: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    file: FileReference
    min_timestamp: Timestamp
    max_timestamp: Timestamp


class StagedBatch(PreparedBatch):
    """A file's rows get offsets in the slot that ends their transaction."""

    base_offset: Offset
    task: Annotated[int, Field(strict=True, ge=0, lt=2**20 - 1)] | None = None
    """The task of a job that wrote the file."""


class Marker(Model):
    """The control row that ends a transaction in one partition."""

    topic_id: Hex
    partition: PartitionIndex
    offset: Offset


class GroupOffset(Model):
    """A group's position in one partition."""

    topic_id: Hex
    partition: PartitionIndex
    offset: Offset
    """The next offset to read."""
    metadata: Annotated[str, Field(max_length=4096)] = ""
    """A note of the application's."""
    leader_epoch: Annotated[int, Field(strict=True, ge=-1, lt=2**31)] = -1
    """Kafka's leader epoch, kept for those who bring one; -1 else."""


class GroupOffsets(Model):
    """Offsets of a consumer group, with the generation of the consumer that read up to them."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=-1)] = -1
    """-1 for offsets that no member commits."""
    member_id: str = ""
    """Empty for offsets that no member commits."""
    group_instance_id: Identifier | None = None
    """Of a static member (KIP-345): a member id that another one has taken the place of is fenced."""
    offsets: tuple[GroupOffset, ...]


class ApplicationToken(Model):
    """What of an application's work a transaction holds, so that a replay is recognised."""

    application_id: Identifier
    sink: str
    """``<topic>:<topic id>``, or ``*`` for a write that chooses its topics by row."""
    version: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """A version at or below the largest committed one was done before."""


class CommitSummary(Model):
    """Numbers of a commit for people: they decide nothing."""

    rows: Count = 0
    files: Count = 0
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)] = 0
    duration_ms: Annotated[int, Field(strict=True, ge=0)] = 0


class TransactionPrepared(Model):
    """The first phase of a two-phase commit (KIP-939): the transaction takes no more, and its commit cannot fail."""

    type: Literal["prepare"] = "prepare"
    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """The epoch of the transaction. It names the transaction also when an init has given its holder a later one."""
    batches: tuple[PreparedBatch, ...] = ()
    """Staged files: named from here on, so that vacuum keeps them."""
    upload_ms: Milliseconds | None = None
    """A lower bound of the time at which the first staged file's upload began."""
    offsets: tuple[GroupOffsets, ...] = ()
    """Group offsets that count if the transaction commits. Their generation is checked here."""
    timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] | None = None
    """Anybody may abort the transaction when it has been prepared for longer; None: nobody ever."""
    time_ms: Milliseconds


class TransactionEnded(Model):
    """A transaction's end: verdict, markers, staged batches, group offsets and application token in one entry."""

    type: Literal["end"] = "end"
    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """The epoch that ends. Its markers carry the next one."""
    owner: Identifier | None = None
    verdict: Literal["commit", "abort"]
    reason: Literal["client", "timeout", "fence", "admin"] = "client"
    """Who ended it."""
    next_producer_id: ProducerId
    """The producer's id from here on: another one when the epoch is exhausted."""
    next_producer_epoch: ProducerEpoch
    """The producer's epoch from here on."""
    batches: tuple[StagedBatch, ...] = ()
    """Staged files, which get their offsets here."""
    upload_ms: Milliseconds | None = None
    """A lower bound of the time at which the first staged file's upload began."""
    markers: tuple[Marker, ...] = ()
    """A control row for each partition that the transaction touched."""
    offsets: tuple[GroupOffsets, ...] = ()
    """Group offsets that count from this slot on."""
    token: ApplicationToken | None = None
    task_count: Annotated[int, Field(strict=True, ge=0, lt=2**20)] = 0
    """How many tasks a job had; their transactions end with it."""
    summary: CommitSummary | None = None
    time_ms: Milliseconds


class OffsetsCommitted(Model):
    """Offsets of a group, committed outside of a transaction."""

    type: Literal["offsets"] = "offsets"
    committed: GroupOffsets
    time_ms: Milliseconds


class GroupMember(Model):
    """A consumer that joins a group, or changes what it subscribes to."""

    member_id: Identifier
    topics: tuple[str, ...]
    """The topics that it subscribes to."""
    group_instance_id: Identifier | None = None
    """Of a static member: whoever joins under the id of one that is there takes its place and its partitions."""


class AssignedPartitions(Model):
    """Partitions of one topic."""

    topic_id: Hex
    partitions: tuple[PartitionIndex, ...]


class MemberAssignment(Model):
    """The partitions that a member reads."""

    member_id: Identifier
    topics: tuple[AssignedPartitions, ...]


class GroupChanged(Model):
    """Members joined or left a group, or gave up partitions, and all are shared out anew.

    What a member is to give up stays its own until it says so, or leaves; only then is it another's.
    """

    type: Literal["group"] = "group"
    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """One more than before if members or subscriptions changed or one is to give up a partition, else the same."""
    joined: tuple[GroupMember, ...] = ()
    left: tuple[Identifier, ...] = ()
    """Member ids."""
    revoked: tuple[Identifier, ...] = ()
    """Member ids of those that have given up what they were to."""
    assigned: tuple[MemberAssignment, ...] = ()
    """What every member reads from here on."""
    time_ms: Milliseconds


class OffsetPlace(Model):
    """A partition for which a group has committed an offset."""

    topic_id: Hex
    partition: PartitionIndex


class GroupOffsetsDeleted(Model):
    """A group's offsets of some partitions are forgotten, as nobody reads these topics in the group."""

    type: Literal["delete_offsets"] = "delete_offsets"
    group: Identifier
    partitions: tuple[OffsetPlace, ...]


class GroupDeleted(Model):
    """A group without members is forgotten, with its offsets and its generation."""

    type: Literal["delete_group"] = "delete_group"
    group: Identifier


class SegmentSealed(Model):
    """The active segment up to ``end_offset`` (exclusive) is closed; its batches stand in index files now."""

    type: Literal["seal"] = "seal"
    topic_id: Hex
    partition: PartitionIndex
    base_offset: Offset
    """The segment's first offset."""
    end_offset: Offset
    """Where the segment ends (exclusive); the next one begins there."""
    index: FileReference
    """Its batches."""
    txnindex: FileReference | None = None
    """Its aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The producers' state at its start, in Kafka's format."""
    upload_ms: Milliseconds
    """A lower bound of the time at which its first file was written."""


class ReplacedSegment(Model):
    """A sealed segment as it stood when its replacement was written."""

    base_offset: Offset
    index: Annotated[str, Field(min_length=1, max_length=2048)]
    """The path of its index."""


class SegmentsReplaced(Model):
    """Adjacent sealed segments became one, with their rows in other files; compaction may have removed some of them."""

    type: Literal["replace"] = "replace"
    topic_id: Hex
    partition: PartitionIndex
    reason: Literal["merge", "compact"]
    """A merge removes no row, batch or control row."""
    replaced: Annotated[tuple[ReplacedSegment, ...], Field(min_length=1)]
    """In their order."""
    base_offset: Offset
    """That of the first segment replaced."""
    end_offset: Offset
    """That of the last segment replaced (exclusive)."""
    batch_count: Count
    """Batches and control rows of the index."""
    file_count: Count
    """Data files that the index names."""
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)]
    """Of these data files."""
    min_timestamp: Timestamp
    """Of the batches; -1 if there is none."""
    max_timestamp: Timestamp
    """Of the batches; -1 if there is none."""
    index: FileReference
    """Its batches. It may name data files that the indexes before it named."""
    txnindex: FileReference | None = None
    """Its aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The producers' state at its start: the file of the first segment replaced."""
    removed_end_slot: Offset | None = None
    """The last slot that ended a transaction of which committed rows were removed; None if none was."""
    upload_ms: Milliseconds
    """A lower bound of the time at which its first file was written."""
    time_ms: Milliseconds


class LogCleaned(Model):
    """Compaction is done with a partition up to an offset: below it, no committed row has a newer one of its key."""

    type: Literal["clean"] = "clean"
    topic_id: Hex
    partition: PartitionIndex
    dirty_offset: Offset
    """Where the part began that was never compacted."""
    cleaned_offset: Offset
    """Where it begins now."""
    time_ms: Milliseconds


class LogStartMoved(Model):
    """Rows below ``offset`` are gone for readers that plan from here on."""

    type: Literal["log_start"] = "log_start"
    topic_id: Hex
    partition: PartitionIndex
    offset: Offset
    """The new first offset (inclusive)."""
    reason: Literal["delete_records", "retention", "overwrite"]
    removed_end_slot: Annotated[int, Field(strict=True, ge=-1, lt=2**63)] | None = None
    """If the offset lies within a sealed segment: the last slot that ended a transaction of which the segment loses
    committed rows, -1 if it loses none. None stands for the segment's largest end slot."""


class HorizonMoved(Model):
    """Files uploaded at or before the horizon that no entry names may be deleted, and can no longer be named."""

    type: Literal["horizon"] = "horizon"
    horizon_ms: Milliseconds


class DoomedDeleted(Model):
    """Files that entries up to ``slot`` dropped have been deleted from the store."""

    type: Literal["doomed_deleted"] = "doomed_deleted"
    slot: Offset


class ExpiredTransactionalId(Model):
    """A transactional id as it stood when it was found to be unused."""

    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ExpiredProducer(Model):
    """A producer id without transactional id as it stood when it was found to be unused."""

    producer_id: ProducerId
    last_update_ms: Milliseconds


class ExpiredOffset(Model):
    """A committed offset as it stood when it was found to be old."""

    topic_id: Hex
    partition: PartitionIndex
    slot: Offset
    """The slot that committed it; of a prepared transaction's offset, that of the prepare."""


class ExpiredGroup(Model):
    """Offsets of a group that expire; without members and offsets left, the group is forgotten too."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """As it stood when the offsets were found to be old."""
    offsets: tuple[ExpiredOffset, ...] = ()


class Expired(Model):
    """What nobody used for long is forgotten; what moved meanwhile refuses the entry."""

    type: Literal["expire"] = "expire"
    transactional_ids: tuple[ExpiredTransactionalId, ...] = ()
    producers: tuple[ExpiredProducer, ...] = ()
    groups: tuple[ExpiredGroup, ...] = ()


Entry = Annotated[
    StoreCreated
    | TopicCreated
    | TopicConfigChanged
    | PartitionsCreated
    | TopicDeleted
    | ProducerInitialized
    | BatchAppended
    | TransactionPrepared
    | TransactionEnded
    | OffsetsCommitted
    | GroupChanged
    | GroupOffsetsDeleted
    | GroupDeleted
    | SegmentSealed
    | SegmentsReplaced
    | LogCleaned
    | LogStartMoved
    | HorizonMoved
    | DoomedDeleted
    | Expired,
    Field(discriminator="type"),
]

ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
