"""Descriptions of partitions: offsets, segments, files and bytes, taken from the store's state."""

from __future__ import annotations

from typing import NamedTuple

from eoslog.state.partition_state import Partition


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
    """The number of data files. Compaction rewrites small files of sealed segments into large ones."""
    bytes: int
    """The total size of the data files, including aborted rows."""
    cleaned_offset: int
    """Compaction is done up to here (exclusive)."""
    snapshot_floor: int
    """The slot of the last entry that removed rows; -1 if there is none. No earlier snapshot can be read."""


def describe_partition(partition: Partition) -> PartitionDescription:
    """Describe a partition from its state. No file is read."""
    active_files = {batch.file.path for batch in partition.active if batch.file is not None}
    return PartitionDescription(
        partition.id.partition,
        partition.log_start_offset,
        partition.last_stable_offset,
        partition.high_watermark,
        len(partition.open_transactions),
        len(partition.sealed) + bool(partition.active),
        sum(segment.file_count for segment in partition.sealed) + len(active_files),
        sum(segment.bytes for segment in partition.sealed) + partition.active_bytes,
        partition.cleaned_offset,
        partition.snapshot_floor,
    )
