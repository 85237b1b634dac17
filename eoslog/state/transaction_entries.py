"""The entries of producers: their ids, batches and transactions, and what a transaction's end holds."""

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
    producer_id: ProducerId = 0
    """The id that this slot gives out, and its epoch. Filled in when the entry is applied."""
    producer_epoch: ProducerEpoch = 0
    """As ``producer_id``."""
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
    statistics: Statistics | None = None
    """By column ``[nulls, least, greatest]``, or ``[nulls]`` if all are null. No bound is told as null."""
    time_ms: Milliseconds


class PreparedBatch(Model):
    """A staged file of a prepared transaction: its rows get offsets if that commits."""

    topic_id: Hex
    partition: PartitionIndex
    record_count: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    file: FileReference
    min_timestamp: Timestamp
    max_timestamp: Timestamp
    statistics: Statistics | None = None


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


class QueryVersion(Model):
    """A version, and the streaming query that counted it."""

    query_id: Identifier | None = None
    version: Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class ApplicationToken(Model):
    """What of an application's work a transaction holds, so that a replay is recognised."""

    application_id: Identifier
    sink: str
    """``<topic>:<topic id>``, or ``*`` for a write that chooses its topics by row."""
    version: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """A version at or below the last committed one was done before."""
    query_id: Identifier | None = None
    """The streaming query whose micro-batch this is; None outside of streams. Another query counts other work."""
    starts_anew_after: QueryVersion | None = None
    """If exactly this was committed last, it does not count any more, and the application's versions begin again."""


class WrittenRows(Model):
    """What a commit wrote into one topic."""

    topic_id: Hex
    rows: Count = 0
    files: Count = 0
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)] = 0


class CommitSummary(Model):
    """Numbers and words of a commit for people: they decide nothing."""

    rows: Count = 0
    files: Count = 0
    bytes: Annotated[int, Field(strict=True, ge=0, lt=2**60)] = 0
    duration_ms: Annotated[int, Field(strict=True, ge=0)] = 0
    topics: tuple[WrittenRows, ...] | None = None
    """By topic, where files that got their offsets before the commit went to several."""
    operation: Annotated[str, Field(max_length=64)] | None = None
    """What the writer meant it to be: ``append``, ``overwrite`` or ``complete``."""
    query_id: Annotated[str, Field(max_length=1024)] | None = None
    """The streaming query that wrote it, also by its ``foreachBatch``."""
    query_name: Annotated[str, Field(max_length=1024)] | None = None
    """The name that its user gave the query."""
    batch_id: Annotated[int, Field(strict=True, ge=0, lt=2**63)] | None = None
    """The query's micro-batch."""
    engine: Annotated[str, Field(max_length=256)] | None = None
    """What ran the job, with its version."""


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
    summary: CommitSummary | None = None
    """That of its commit, as far as it is known here."""
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
    next_producer_id: ProducerId = 0
    """The producer's id from here on: another one when the epoch is exhausted."""
    next_producer_epoch: ProducerEpoch = 0
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
