"""The entries of a partition's segments: sealed, replaced by merges and compaction, dropped at the log's start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eoslog.state.entry_fields import Count, FileReference, Hex, Milliseconds, Model, Offset, PartitionIndex, Timestamp


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
