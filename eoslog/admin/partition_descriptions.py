"""What the partitions of a topic hold: offsets, segments, files and bytes, read off the store's state."""

from __future__ import annotations

from typing import NamedTuple

from eoslog.state.partition_state import Partition


class PartitionDescription(NamedTuple):
    """One partition as of now."""

    partition: int
    log_start_offset: int
    """The first offset there is (inclusive)."""
    last_stable_offset: int
    """What read_committed shows ends here (exclusive)."""
    high_watermark: int
    """What read_uncommitted shows ends here (exclusive)."""
    open_transactions: int
    """How many hold the last stable offset back, or would."""
    segments: int
    """Sealed ones, and the active one if it holds anything."""
    files: int
    """Data files. Small ones of sealed segments are merged."""
    bytes: int
    """Of the data files, those of aborted rows among them."""
    cleaned_offset: int
    """Compaction is done up to here (exclusive)."""
    snapshot_floor: int
    """The slot of the last entry that removed rows: no earlier snapshot can be read. -1 if none did."""


def describe_partition(partition: Partition) -> PartitionDescription:
    """Read the numbers off a partition's state; no file is read."""
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
