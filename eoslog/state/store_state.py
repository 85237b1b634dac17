"""The state of a store: the fold of its log. Values are immutable once a record is applied; only the maps change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from eoslog.state.entry_fields import FileReference
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, NO_TIME, Partition
from eoslog.state.topic_entries import TopicConfig, TopicSchema
from eoslog.state.topic_schemas import ColumnPath
from eoslog.state.transaction_entries import ApplicationToken, QueryVersion, TransactionPrepared


class Moment(NamedTuple):
    """Where an entry stands in the log."""

    slot: int
    time_ms: int
    """The log's time there (ms), which never runs backwards."""


class TransactionState(IntEnum):
    """Kafka's states (``TransactionState.java``). PREPARE_* are passed through within a slot; DEAD is never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class SchemaVersion(NamedTuple):
    """When a topic was given its schema, and what that added to the one before."""

    version: int
    """Counted from 1, the schema with which the topic was made."""
    slot: int
    time_ms: int
    """The log's time at the slot (ms)."""
    added: tuple[ColumnPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    topic: str
    topic_id: str
    partitions: int
    topic_schema: TopicSchema
    config: TopicConfig
    created_slot: int
    schema_versions: tuple[SchemaVersion, ...]
    """All there were, in their order. Each but the first adds a column, so they are no more than the columns."""

    @property
    def schema_version(self) -> int:
        """The version of ``topic_schema``."""
        return self.schema_versions[-1].version

    def partition_ids(self) -> list[PartitionId]:
        return [PartitionId(self.topic_id, partition) for partition in range(self.partitions)]

    @property
    def prefix(self) -> str:
        """The directory of this incarnation's files."""
        return f"{self.topic}/{self.topic_id}/"


class TopicRows(NamedTuple):
    """How many rows a transaction wrote into a topic."""

    topic_id: str
    rows: int


class LastCommit(NamedTuple):
    """What the last commit of a transactional id held, for those who go on from there."""

    slot: int
    time_ms: int
    """The log's time at the slot."""
    producer_id: int
    producer_epoch: int
    """With the producer id it names the transaction."""
    token: ApplicationToken | None = None
    offsets: tuple[GroupOffsets, ...] = ()
    rows: tuple[TopicRows, ...] = ()


class GroupPartition(NamedTuple):
    """A partition as a consumer group reads it."""

    group: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id (Kafka's ``TransactionMetadata``)."""

    transactional_id: str
    kind: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    """The id before the last roll-over, -1 if there was none."""
    last_producer_epoch: int
    """The epoch before the last change, -1 if there was none."""
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
    """What was prepared (KIP-939): then the open transaction takes no more, and its own time-out counts."""
    prepared_slot: int = NO_SLOT
    deleted_offsets: frozenset[GroupPartition] = frozenset()
    """What was prepared of a group's offsets and was deleted since."""
    last_commit: LastCommit | None = None
    """It outlives later inits and aborts; with the id it expires."""

    @property
    def open_producer_id(self) -> int:
        """The producer id of the open transaction's rows. A prepared one keeps it when its holder gets another."""
        return self.producer_id if self.prepared is None else self.prepared.producer_id


@dataclass(frozen=True, slots=True)
class IdempotentProducer:
    """A producer id without transactional id, registered for the whole store."""

    producer_id: int
    last_update_ms: int


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str
    leader_epoch: int
    slot: int
    """Since when the log has it: the slot of its commit, or that of the prepare of its transaction."""
    commit_ms: int
    """The log's time when it began to count (ms)."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group."""

    topics: tuple[str, ...]
    """What it subscribes to."""
    group_instance_id: str | None = None
    """Of a static member (KIP-345)."""
    assigned: tuple[PartitionId, ...] = ()
    """What it reads, in order."""
    revoking: tuple[PartitionId, ...] = ()
    """What it is to give up. Nobody else reads it until it does."""


@dataclass(frozen=True, slots=True)
class Group:
    generation: int
    members: Mapping[str, Member]
    """By member id."""
    offsets: Mapping[PartitionId, CommittedOffset]
    empty_since_ms: int = NO_TIME
    """The log's time when the last member left (ms); ``NO_TIME`` while there are members, or if there never were."""


class TokenKey(NamedTuple):
    transactional_id: str
    application_id: str
    sink: str


class LastVersion(NamedTuple):
    """What an application committed last to a sink."""

    version: int
    query_id: str | None = None
    """The streaming query that counted it; None outside of streams."""
    starts_anew_after: QueryVersion | None = None
    """What its commit was told not to count: that has had its effect."""


class Doomed(NamedTuple):
    """Files that the entry of a slot dropped. They are deleted when no reader that planned before can need them."""

    slot: int
    prefix: str = ""
    """Everything below this directory, if it is not empty."""
    files: tuple[FileReference, ...] = ()
    indexes: tuple[FileReference, ...] = ()
    """Indexes of sealed segments; all files that they name are dropped with them."""


@dataclass(slots=True)
class StoreState:
    """Everything that the log says, after one slot."""

    store_id: str = ""
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    time_ms: int = 0
    """The latest time of any entry so far (ms since the epoch): the log's time, which never runs backwards."""
    horizon_ms: int = 0
    doomed: tuple[Doomed, ...] = ()
    topic_ids: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    partitions: dict[PartitionId, Partition] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    ongoing: dict[str, int] = field(default_factory=dict)
    """Start (ms) of each open transaction by transactional id."""
    producers: dict[int, IdempotentProducer] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    tokens: dict[TokenKey, LastVersion] = field(default_factory=dict)
    """They outlive the transactional id."""
    query_tokens: dict[str, tuple[TokenKey, ...]] = field(default_factory=dict)
    """The keys of each streaming query's tokens, sorted."""

    def frozen_copy(self) -> StoreState:
        """The same state, untouched by records that are applied later. O(number of keys), values are shared."""
        return StoreState(
            self.store_id,
            self.reader_features,
            self.writer_features,
            self.time_ms,
            self.horizon_ms,
            self.doomed,
            dict(self.topic_ids),
            dict(self.topics),
            dict(self.partitions),
            dict(self.transactions),
            dict(self.ongoing),
            dict(self.producers),
            dict(self.groups),
            dict(self.tokens),
            dict(self.query_tokens),
        )
