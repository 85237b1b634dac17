"""The entries of producers: their ids, their batches, and the prepare and end of their transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

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
    Sequence,
    Statistics,
    Timestamp,
)
from eoslog.state.group_entries import GroupOffsets


class ProducerInitialized(Model):
    """A producer id and epoch were assigned (Kafka's InitProducerId)."""

    type: Literal["init"] = "init"
    transactional_id: Identifier | None = None
    """None for an idempotent producer without a transactional id."""
    kind: Literal["producer", "job"] = "producer"
    """The holder of the id: one producer, or a job whose tasks have ids derived from it."""
    owner: Identifier | None = None
    """The id of a job's run. It fences the earlier runs."""
    expected_producer_id: ProducerId | None = None
    """The producer id that the caller already has (KIP-360)."""
    expected_producer_epoch: ProducerEpoch | None = None
    """The epoch that the caller already has (KIP-360)."""
    timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    """Any process may abort a transaction that has been open for longer (ms)."""
    keep_prepared: bool = False
    """True if a prepared transaction stays open, so that the new holder can complete it (KIP-939)."""
    producer_id: ProducerId = 0
    """The producer id that this slot assigns. The rule fills it in when the entry is applied."""
    producer_epoch: ProducerEpoch = 0
    """The epoch that this slot assigns. The rule fills it in when the entry is applied."""
    time_ms: Milliseconds


class BatchAppended(Model):
    """The rows of a file get offsets at once. An eager or idempotent producer flushed them."""

    type: Literal["batch"] = "batch"
    topic_id: Hex
    partition: PartitionIndex
    base_offset: Offset
    """The offset of the first row."""
    record_count: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    """The number of rows in the file. Their offsets are consecutive."""
    file: FileReference
    upload_ms: Milliseconds
    """A lower bound of the time at which the file's upload began, by the store's clock."""
    transactional_id: Identifier | None = None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    """The producer's sequence number of the first row in this partition. It wraps to 0 after 2^31 - 1."""
    registers_producer: Literal[True] | None = None
    """True if sequence 0 registers a producer id that the store does not know, as in Kafka. Only for a producer without
    transactional id. Then a repeated first batch is appended twice if the id has expired in between."""
    min_timestamp: Timestamp
    """The smallest timestamp of the rows (ms since the epoch)."""
    max_timestamp: Timestamp
    """The largest timestamp of the rows (ms since the epoch)."""
    statistics: Statistics | None = None
    """By column ``[nulls, least, greatest]``, or ``[nulls]`` if all values are null. A null bound is unknown."""
    time_ms: Milliseconds


class PreparedBatch(Model):
    """A staged file of a prepared transaction. Its rows get offsets if the transaction commits."""

    topic_id: Hex
    partition: PartitionIndex
    record_count: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    file: FileReference
    min_timestamp: Timestamp
    max_timestamp: Timestamp
    statistics: Statistics | None = None


class StagedBatch(PreparedBatch):
    """A staged file. Its rows get offsets in the slot that commits their transaction."""

    base_offset: Offset
    task: Annotated[int, Field(strict=True, ge=0, lt=2**19 - 1)] | None = None
    """The index of the job's task that wrote the file."""


class Marker(Model):
    """The control row that ends a transaction in one partition."""

    topic_id: Hex
    partition: PartitionIndex
    offset: Offset


class QueryVersion(Model):
    """A version, and the streaming query that counted it."""

    query_id: Identifier | None = None
    version: Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class ApplicationVersion(Model):
    """The version of an application's work that a transaction commits. It lets the store recognize a replay."""

    application_id: Identifier
    sink: str
    """``<topic>:<topic id>``, or ``*`` for a write whose rows name their topics."""
    version: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """A version at or below the last committed one was committed before."""
    query_id: Identifier | None = None
    """The streaming query that counted the version; None outside of streams. Each query counts its own work."""
    starts_anew_after: QueryVersion | None = None
    """If exactly this version was committed last, it no longer counts, and the application's versions start again."""
    rows: Count | None = None
    """The number of rows of the work; None if it is not compared with a repetition."""
    content: Statistics | None = None
    """The bounds of the work's columns, as a JSON object of digests by column."""
    invocation: Identifier | None = None
    """The execution that did the work. Within one execution a repetition has the same bounds in each column."""


class WrittenRows(Model):
    """The amount of data that a commit wrote into one topic."""

    topic_id: Hex
    rows: Count = 0
    files: Count = 0
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)] = 0


class CommitSummary(Model):
    """Information about a commit for people. No rule depends on it."""

    rows: Count = 0
    files: Count = 0
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)] = 0
    duration_ms: Annotated[int, Field(strict=True, ge=0)] = 0
    topics: tuple[WrittenRows, ...] | None = None
    """The amounts by topic, if files that got their offsets before the commit belong to several topics."""
    operation: Annotated[str, Field(max_length=64)] | None = None
    """The writer's operation: ``append``, ``overwrite`` or ``complete``."""
    query_id: Annotated[str, Field(max_length=1024)] | None = None
    """The streaming query that wrote it, directly or in its ``foreachBatch``."""
    query_name: Annotated[str, Field(max_length=1024)] | None = None
    """The name that the user gave the query."""
    batch_id: Annotated[int, Field(strict=True, ge=0, lt=2**63)] | None = None
    """The number of the query's micro-batch."""
    engine: Annotated[str, Field(max_length=256)] | None = None
    """The engine that ran the job, with its version."""


class TransactionPartition(Model):
    """A partition of a transaction."""

    topic_id: Hex
    partition: PartitionIndex


class AddedToTransaction(Model):
    """Partitions and group offsets were added to a transaction. The first addition begins it.

    A client of Kafka's protocol adds them before its batches and before the end (AddPartitionsToTxn, AddOffsetsToTxn,
    TxnOffsetCommit). Partitions that have batches need no addition.
    """

    type: Literal["add_to_transaction"] = "add_to_transaction"
    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TransactionPartition, ...] = ()
    """Partitions for which the client has announced batches."""
    offsets: tuple[GroupOffsets, ...] = ()
    """Group offsets that take effect if the transaction commits. Their generation is checked here."""
    time_ms: Milliseconds


class TransactionPrepared(Model):
    """The first phase of a two-phase commit (KIP-939). The transaction takes no more rows; its commit cannot fail."""

    type: Literal["prepare"] = "prepare"
    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """The epoch of the transaction. It still names the transaction after an init gave its holder a later epoch."""
    batches: tuple[PreparedBatch, ...] = ()
    """The staged files. This entry names them, so vacuum keeps them from here on."""
    upload_ms: Milliseconds | None = None
    """A lower bound of the time at which the first staged file's upload began."""
    offsets: tuple[GroupOffsets, ...] = ()
    """Group offsets that take effect if the transaction commits. Their generation is checked here."""
    timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] | None = None
    """Any process may abort the transaction when it has been prepared for longer (ms); None for no limit."""
    summary: CommitSummary | None = None
    """The summary of its commit, as far as it is known at the prepare."""
    time_ms: Milliseconds


class TransactionEnded(Model):
    """The end of a transaction: outcome, markers, batches, group offsets and application version in one entry."""

    type: Literal["end"] = "end"
    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """The epoch of the transaction. Its markers carry the next one, except under transaction version 1."""
    transaction_version: Annotated[int, Field(strict=True, ge=1, le=1)] | None = None
    """1 if the end leaves the epoch as it is, for clients that know only Kafka's transaction version 1. Its markers
    carry the epoch of the rows, and the sequences go on. None stands for version 2 (KIP-890)."""
    owner: Identifier | None = None
    """The id of the job's run; None for a producer."""
    outcome: Literal["commit", "abort"]
    reason: Literal["client", "timeout", "fence", "admin"] = "client"
    """The cause: the client, a timeout, an init that fenced the client, or an administrator."""
    next_producer_id: ProducerId = 0
    """The producer id from here on. It is a new one if the epoch is exhausted."""
    next_producer_epoch: ProducerEpoch = 0
    """The producer's epoch from here on."""
    batches: tuple[StagedBatch, ...] = ()
    """The staged files. Their rows get offsets in this slot."""
    upload_ms: Milliseconds | None = None
    """A lower bound of the time at which the first staged file's upload began."""
    markers: tuple[Marker, ...] = ()
    """A control row for each partition that the transaction touched."""
    offsets: tuple[GroupOffsets, ...] = ()
    """Group offsets that take effect in this slot."""
    application_version: ApplicationVersion | None = None
    task_count: Annotated[int, Field(strict=True, ge=0, lt=2**19)] = 0
    """The number of the job's tasks. Their transactions end with this entry, too."""
    summary: CommitSummary | None = None
    time_ms: Milliseconds

    @property
    def keeps_epoch(self) -> bool:
        """True for an end of transaction version 1."""
        return self.transaction_version == 1
