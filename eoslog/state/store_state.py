"""The state of a store: the result of applying all records of its log.

Records replace the values of its maps and never change them, so a copy of the maps is a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, NamedTuple

from eoslog.state.entries import DEFAULT_MAX_TRANSACTION_TIMEOUT_MS, TopicConfig, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.group_entries import GroupOffset, GroupOffsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, NO_TIME, Partition
from eoslog.state.transaction_entries import ApplicationVersion, QueryVersion, TransactionPrepared

ColumnPath = tuple[str, ...]
"""A column or a field within it: the names from the outside in, with ``element`` for lists and ``value`` for maps."""


class LogPosition(NamedTuple):
    """The position of an entry in the log."""

    slot: int
    time_ms: int
    """The log's time at the slot (ms). It never runs backwards."""


class TransactionState(IntEnum):
    """Kafka's states (``TransactionState.java``).

    A slot passes through PREPARE_* and never ends in it. DEAD is never stored.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class SchemaVersion(NamedTuple):
    """One version of a topic's schema: when it began, and the columns that it added."""

    version: int
    """The number of the version. The schema with which the topic was created is 1."""
    slot: int
    time_ms: int
    """The log's time at the slot (ms)."""
    added: tuple[ColumnPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """One incarnation of a topic. A topic that is deleted and created again has another id."""

    topic: str
    topic_id: str
    partitions: int
    topic_schema: TopicSchema
    config: TopicConfig
    created_slot: int
    schema_versions: tuple[SchemaVersion, ...]
    """All versions in order. Each one after the first adds a column, so the columns limit their number."""

    def __repr__(self) -> str:
        # Without the schema and the settings, which are long.
        kind = self.topic_schema.kind
        return f"Topic({self.topic!r}, partitions={self.partitions}, kind={kind!r}, topic_id={self.topic_id!r})"

    @property
    def schema_version(self) -> int:
        """The version of ``topic_schema``."""
        return self.schema_versions[-1].version

    def partition_ids(self) -> list[PartitionId]:
        return [PartitionId(self.topic_id, partition) for partition in range(self.partitions)]

    @property
    def prefix(self) -> str:
        """The directory of this incarnation's files, with a slash at its end."""
        return f"{self.topic}/{self.topic_id}/"


class TopicRows(NamedTuple):
    """The number of rows that a transaction wrote into a topic."""

    topic_id: str
    rows: int


class LastCommit(NamedTuple):
    """The content of the last commit of a transactional id. A new run reads it to continue from there."""

    slot: int
    time_ms: int
    """The log's time at the slot."""
    producer_id: int
    producer_epoch: int
    """The producer id and the epoch together name the transaction, except under transaction version 1."""
    application_version: ApplicationVersion | None = None
    offsets: tuple[GroupOffsets, ...] = ()
    rows: tuple[TopicRows, ...] = ()


class GroupPartition(NamedTuple):
    """A partition that a consumer group reads."""

    group: str
    topic_id: str
    partition: int


class PendingOffset(NamedTuple):
    """A group's position in one partition, which takes effect if its transaction commits."""

    group: str
    topic_id: str
    partition: int
    offset: int
    """The next offset to read."""
    metadata: str
    leader_epoch: int
    slot: int
    """The slot that added it to the transaction."""

    @property
    def group_partition(self) -> GroupPartition:
        return GroupPartition(self.group, self.topic_id, self.partition)

    @property
    def group_offset(self) -> GroupOffset:
        """The offset as entries of the log have it."""
        return GroupOffset(
            topic_id=self.topic_id,
            partition=self.partition,
            offset=self.offset,
            metadata=self.metadata,
            leader_epoch=self.leader_epoch,
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id (Kafka's ``TransactionMetadata``)."""

    transactional_id: str
    kind: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    """The producer id before the last roll-over; -1 if there was none."""
    last_producer_epoch: int
    """The epoch before the last change; -1 if there was none."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[PartitionId]
    start_ms: int
    """When the first partition of the open or last transaction was added; -1 after an init."""
    last_update_ms: int
    start_slot: int
    last_slot: int
    last_end_reason: str
    owner: str | None
    fenced_owners: tuple[str, ...]
    task_count: int
    prepared: TransactionPrepared | None = None
    """The entry that prepared the open transaction (KIP-939). The transaction takes no more rows, and the timeout of
    this entry applies.
    """
    prepared_slot: int = NO_SLOT
    deleted_offsets: frozenset[GroupPartition] = frozenset()
    """The prepared group offsets that were deleted since the prepare."""
    added_partitions: frozenset[PartitionId] = frozenset()
    """The partitions for which the open transaction has announced batches, whether they have arrived or not."""
    added_offsets: tuple[PendingOffset, ...] = ()
    """The group offsets of the open transaction that were added before its end, one for each partition of a group."""
    last_commit: LastCommit | None = None
    """It outlives later inits and aborts. It expires with the transactional id."""

    @property
    def open_producer_id(self) -> int:
        """The producer id of the open transaction's rows.

        A prepared transaction keeps it, even if its holder gets another id.
        """
        return self.producer_id if self.prepared is None else self.prepared.producer_id


@dataclass(frozen=True, slots=True)
class IdempotentProducer:
    """A producer id without transactional id. It is registered for the whole store."""

    producer_id: int
    last_update_ms: int


class CommittedOffset(NamedTuple):
    """A group's committed position in one partition."""

    offset: int
    """The next offset to read."""
    metadata: str
    leader_epoch: int
    slot: int
    """The slot that put it into the log: the slot of its commit, or of the prepare of its transaction."""
    commit_ms: int
    """The log's time when it took effect (ms)."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group, or its coordinator."""

    topics: tuple[str, ...]
    """The names of the topics to which it subscribes."""
    group_instance_id: str | None = None
    """The instance id of a static member (KIP-345); None for a dynamic one."""
    assigned: tuple[PartitionId, ...] = ()
    """The partitions that it reads, in order."""
    revoking: tuple[PartitionId, ...] = ()
    """The partitions that it must give up. No other member reads them until it has done so."""
    since: Mapping[PartitionId, int] = field(default_factory=dict)
    """The generation in which it got each partition of ``assigned`` and ``revoking`` (KIP-1251)."""
    client_id: str = ""
    """The name that the application gave the consumer. Empty: it gave none."""
    host: str = ""
    """The host name of the consumer's process. Empty: it is unknown."""
    address: str | None = None
    """The address of a coordinator, which is a gateway that stands for all clients of Kafka's protocol; None for a
    consumer.
    """

    @property
    def is_coordinator(self) -> bool:
        """True for a gateway that coordinates the group's clients of Kafka's protocol; False for a consumer."""
        return self.address is not None

    @property
    def held(self) -> tuple[PartitionId, ...]:
        """The partitions for which it may commit: those that it reads and those that it must give up."""
        return (*self.assigned, *self.revoking)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group."""

    generation: int
    members: Mapping[str, Member]
    """By member id."""
    offsets: Mapping[PartitionId, CommittedOffset]
    empty_since_ms: int = NO_TIME
    """The log's time when the last member left (ms); ``NO_TIME`` if it has members or never had one."""
    created_slot: int = NO_SLOT
    """The slot in which the first member joined, or the first offset was committed."""
    subscribed: Mapping[str, int] = field(default_factory=dict)
    """The slot since which the group has subscribed to each topic, by the topic's name. A group whose members have all
    left keeps its topics, so that it misses no partition that is created while its consumers restart.
    """


class ApplicationVersionKey(NamedTuple):
    """The key of an application's versions: each application has its own versions per transactional id and sink."""

    transactional_id: str
    application_id: str
    sink: str


class LastVersion(NamedTuple):
    """The last version that an application committed to a sink."""

    version: int
    query_id: str | None = None
    """The streaming query that counted the version; None outside of streams."""
    starts_anew_after: QueryVersion | None = None
    """The version after which its commit restarted the count. A restart after the same version is done only once."""
    rows: int | None = None
    """The number of rows of the work; None if unknown."""
    content: str | None = None
    """The bounds of the work's columns, as in its entry."""
    invocation: str | None = None
    """The execution that did the work."""


class PendingDeletion(NamedTuple):
    """Files that are pending deletion, because the entry of a slot dropped them.

    Vacuum deletes them when no reader that planned before the slot can still need them.
    """

    slot: int
    prefix: str = ""
    """If not empty, all files below this directory are dropped."""
    files: tuple[FileReference, ...] = ()
    indexes: tuple[FileReference, ...] = ()
    """Index files of sealed segments. All files that they name are dropped with them."""
    oldest_record: int | None = None
    """The oldest slot whose record has rows that are dropped; None if no record has any."""
    oldest_shared_ms: int | None = None
    """The time of the oldest shared object with rows that are dropped (``SharedPosition.time_ms``); None if no shared
    object has any."""

    @property
    def has_files(self) -> bool:
        """True if the entry dropped whole objects, and not only rows in records and shared objects."""
        return bool(self.prefix or self.files or self.indexes)


@dataclass(slots=True)
class StoreState:
    """The state of a store after one slot."""

    store_id: str = ""
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    time_ms: int = 0
    """The log's time: the latest time of any entry so far (ms since the epoch). It never runs backwards."""
    horizon_ms: int = 0
    """Vacuum may have deleted unnamed files uploaded at or before this time (ms since the epoch)."""
    max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
    """The longest timeout with which a producer may be initialized (ms)."""
    pending_deletions: tuple[PendingDeletion, ...] = ()
    """The files that are pending deletion, in the order of their slots."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """The id of each topic by name."""
    topics: dict[str, Topic] = field(default_factory=dict)
    """The topics by id."""
    partitions: dict[PartitionId, Partition] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    ongoing: dict[str, int] = field(default_factory=dict)
    """The start (ms) of each open transaction by transactional id."""
    producers: dict[int, IdempotentProducer] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    application_versions: dict[ApplicationVersionKey, LastVersion] = field(default_factory=dict)
    """The last version of each application. It outlives the transactional id, so that a late replay is recognized."""
    query_versions: dict[str, tuple[ApplicationVersionKey, ...]] = field(default_factory=dict)
    """The keys of each streaming query's application versions, sorted."""

    def frozen_copy(self) -> StoreState:
        """Return a copy that later records do not change. It costs O(number of keys) and shares the values."""
        copies: dict[str, Any] = {name: dict(getattr(self, name)) for name in STATE_MAPS}
        return replace(self, **copies)


STATE_MAPS = tuple(each.name for each in fields(StoreState) if each.default_factory is dict)
"""The fields of a state that a record changes key by key."""
STATE_VALUES = tuple(each.name for each in fields(StoreState) if each.name not in STATE_MAPS)
"""The fields of a state that a record replaces as a whole."""
