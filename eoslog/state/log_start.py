"""The start of a partition's log: its truncation, and retention by age and size.

Retention follows Kafka's ``UnifiedLog.deleteOldSegments``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.state.draft import Draft
from eoslog.state.entries import LogStartMoved, TopicConfig
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Batch, Outcome, Partition, SealedSegment
from eoslog.state.partitions import add_pending_deletion, oldest_record_of, oldest_shared_ms_of, partition_of
from eoslog.state.sequences import move_segment_start
from eoslog.state.store_state import PendingDeletion


def move_log_start(draft: Draft, entry: LogStartMoved) -> None:
    """Drop the rows below an offset (Kafka's ``deleteRecords``).

    Whole segments and whole batches are dropped. A segment or batch that contains the offset stays. Producer state
    outlives the rows.

    Raises:
        OffsetOutOfRange: the offset is beyond the last stable offset, so an open transaction would lose rows.
        InvalidEntry: the log start would not move forward, or ``removed_end_slot`` does not fit the truncated segment.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    before = partition_of(draft, partition_id)
    if entry.offset <= before.log_start_offset:
        raise InvalidEntry(f"the log of partition {entry.partition} already starts at {before.log_start_offset}")
    if entry.offset > before.last_stable_offset:
        raise OffsetOutOfRange(
            f"the log of partition {entry.partition} cannot start at {entry.offset}, beyond the last stable offset "
            f"{before.last_stable_offset}. Give a lower offset, or wait until the open transactions have ended"
        )
    removed_end_slot = _removed_end_slot(before, entry)
    partition = draft.edit_partition(partition_id)
    partition.log_start_offset = entry.offset
    partition.snapshot_floor = draft.slot
    partition.snapshot_floor_ms = draft.time_ms
    partition.removed_end_slot = max(partition.removed_end_slot, removed_end_slot)
    partition.skipped = tuple(each for each in partition.skipped if each.end_offset > entry.offset)
    dropped = [segment for segment in partition.sealed if segment.end_offset <= entry.offset]
    partition.sealed = partition.sealed[len(dropped) :]
    dropped_batches = [batch for batch in partition.active if batch.end_offset <= entry.offset]
    files: list[FileReference] = []
    if dropped_batches:
        move_segment_start(draft, partition, dropped_batches)
        del partition.active[: len(dropped_batches)]
        partition.segment_base_offset = dropped_batches[-1].end_offset
        partition.aborted = [txn for txn in partition.aborted if txn.last_offset >= partition.segment_base_offset]
        partition.active_bytes -= sum(batch.file.length for batch in dropped_batches if batch.file is not None)
        named = {batch.file.path for batch in partition.active if batch.file is not None}
        # Batches may share a file. It stays as long as a remaining batch names it.
        files += {
            batch.file.path: batch.file
            for batch in dropped_batches
            if batch.file and batch.file.is_object and batch.file.path not in named
        }.values()
    for segment in dropped:
        files += [file for file in (segment.txnindex, segment.snapshot) if file is not None]
    deletion = PendingDeletion(
        draft.slot,
        files=tuple(files),
        indexes=tuple(segment.index for segment in dropped),
        oldest_record=oldest_record_of(dropped_batches),
        oldest_shared_ms=oldest_shared_ms_of(dropped_batches),
    )
    add_pending_deletion(draft, deletion)


def _removed_end_slot(partition: Partition, entry: LogStartMoved) -> int:
    """Return the last slot that ended a transaction whose committed rows a new log start removes, or a higher bound.

    Index files list the batches of sealed segments, and this rule reads no files. For a segment that contains the new
    start the entry may state the slot. Otherwise the segment's largest end slot counts.

    Raises:
        InvalidEntry: the entry states a slot that the segment cannot have.
    """
    removed = [last_end_slot_below(partition.active, entry.offset)]
    removed += [segment.max_end_slot for segment in partition.sealed if segment.end_offset <= entry.offset]
    cut = segment_cut_at(partition, entry.offset)
    if entry.removed_end_slot is None:
        removed += [cut.max_end_slot] if cut is not None else []
    elif cut is None or entry.removed_end_slot > cut.max_end_slot:
        raise InvalidEntry(
            f"partition {entry.partition}: no sealed segment at offset {entry.offset} holds a transaction that ended "
            f"at slot {entry.removed_end_slot}"
        )
    else:
        removed.append(entry.removed_end_slot)
    return max(removed)


def segment_cut_at(partition: Partition, offset: int) -> SealedSegment | None:
    """Return the sealed segment that a log start at ``offset`` truncates; None if it truncates none."""
    return next((each for each in partition.sealed if each.base_offset < offset < each.end_offset), None)


def last_end_slot_below(batches: Iterable[Batch], offset: int) -> int:
    """Return the last slot that ended a transaction with committed rows below ``offset``; ``NO_SLOT`` if none did."""
    return max(
        (each.end_slot for each in batches if each.base_offset < offset and _is_committed(each)), default=NO_SLOT
    )


def _is_committed(batch: Batch) -> bool:
    return batch.control is None and batch.outcome is Outcome.COMMITTED


class _SegmentSize(NamedTuple):
    """The end, age and size of a sealed or active segment."""

    end_offset: int
    max_timestamp: int
    bytes: int


def retention_offset(partition: Partition, config: TopicConfig, now_ms: int) -> int | None:
    """Return where the log should start at ``now_ms`` of the store's clock; None if retention drops nothing.

    The oldest segment is dropped first. A segment is dropped if its latest row or control row is older than
    ``retention_ms``, or if the partition holds ``retention_bytes`` without it. The active segment is dropped only as a
    whole, and only if all its transactions have ended. The result is therefore never beyond the last stable offset.
    """
    if "delete" not in config.cleanup_policy:
        return None
    segments = list(_segment_sizes(partition))
    size = partition.active_bytes + sum(segment.bytes for segment in partition.sealed)
    offset = None
    for segment in segments:
        is_old = config.retention_ms >= 0 and now_ms - segment.max_timestamp > config.retention_ms
        is_surplus = config.retention_bytes >= 0 and size - segment.bytes >= config.retention_bytes
        if not is_old and not is_surplus:
            break
        size -= segment.bytes
        offset = segment.end_offset
    return offset


def _segment_sizes(partition: Partition) -> Iterator[_SegmentSize]:
    for segment in partition.sealed:
        yield _SegmentSize(segment.end_offset, segment.max_timestamp, segment.bytes)
    if partition.active and partition.last_stable_offset == partition.next_offset:
        latest = max(batch.max_timestamp for batch in partition.active)
        yield _SegmentSize(partition.next_offset, latest, partition.active_bytes)
