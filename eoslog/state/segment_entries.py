"""The entries of a partition's segments: sealing, replacement by compaction, and truncation at the log's start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eoslog.state.entry_fields import Count, FileReference, Hex, Milliseconds, Model, Offset, PartitionIndex, Timestamp


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
    """Its batches."""
    txnindex: FileReference | None = None
    """Its aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The producers' state at its start, in Kafka's format."""
    upload_ms: Milliseconds
    """A lower bound of the time at which its first file was written."""


class ReplacedSegment(Model):
    """A sealed segment, with its index when the replacement was written."""

    base_offset: Offset
    index: Annotated[str, Field(min_length=1, max_length=2048)]
    """The path of its index."""


class SegmentsReplaced(Model):
    """One segment replaced adjacent sealed ones. Its rows are in other files, and compaction may have removed some."""

    type: Literal["replace"] = "replace"
    topic_id: Hex
    partition: PartitionIndex
    reason: Literal["merge", "compact"]
    """``merge`` is compaction of files, ``compact`` compaction by key. A merge removes no row, batch or control row."""
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
    """Its batches. It may name data files of the replaced indexes."""
    txnindex: FileReference | None = None
    """Its aborted transactions, in Kafka's format; None if there are none."""
    snapshot: FileReference
    """The producers' state at its start. It is the file of the first replaced segment."""
    removed_end_slot: Offset | None = None
    """The last slot that ended a transaction whose committed rows were removed; None if no row was removed."""
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

    The last slot that ended a transaction of which the segment loses committed rows; -1 if it loses none. None stands
    for the segment's largest end slot.
    """
