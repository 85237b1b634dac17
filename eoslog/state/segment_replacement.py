"""Replacement of adjacent sealed segments by one: with the same rows in fewer files, or with the rows that are left.

The rules of compaction are those of Kafka's cleaner (``LogCleaner``, ``UnifiedLog.replaceSegments``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.state.draft import Draft
from eoslog.state.entries import LogCleaned, SegmentsReplaced, SkippedFile
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_TIME, Batch, Outcome, Partition, ProducerState, SealedSegment, SkippedRows
from eoslog.state.partitions import check_object, check_upload, partition_of, topic_of
from eoslog.state.store_state import PendingDeletion


class CleanedTransactions:
    """The transactions that compaction has met since the log's start (Kafka's ``CleanedTransactionMetadata``).

    The transactional id and the end slot name a transaction. The tasks of a job share the marker of the job.
    """

    def __init__(self) -> None:
        self._with_batches: set[tuple[str | None, int]] = set()

    def on_batch(self, batch: Batch) -> None:
        """Note a batch that stays, with or without rows."""
        if batch.transactional:
            self._with_batches.add((batch.transactional_id, batch.end_slot))
            job, separator, _ = (batch.transactional_id or "").rpartition("/")
            if separator:
                self._with_batches.add((job, batch.end_slot))

    def is_empty(self, marker: Batch) -> bool:
        """Return True if no batch of the marker's transaction is left before it, or the marker itself was emptied."""
        return marker.record_count == 0 or (marker.transactional_id, marker.end_slot) not in self._with_batches


def cleaned_marker(
    marker: Batch, transaction_is_empty: bool, producers: dict[int, ProducerState], *, now_ms: int, retention_ms: int
) -> Batch | None:
    """Return what compaction leaves of a control row; None if it removes the control row.

    Args:
        producers: the producer state of the partition.
        now_ms: the time of the store's clock (ms).
        retention_ms: how long the marker of an empty transaction is kept (ms).
    """
    if not transaction_is_empty:
        return marker
    if marker.record_count and marker.delete_horizon_ms == NO_TIME:
        return marker._replace(delete_horizon_ms=now_ms + retention_ms)
    if marker.record_count and now_ms < marker.delete_horizon_ms:
        return marker
    return without_rows(marker) if is_last_of_its_producer(marker, producers) else None


def without_rows(batch: Batch) -> Batch:
    """Return a batch or control row without its rows. Its offsets, sequence and epoch stay."""
    return batch._replace(record_count=0, file=None, first_row=0, delete_horizon_ms=NO_TIME, statistics=None)


def is_last_of_its_producer(batch: Batch, producers: dict[int, ProducerState]) -> bool:
    """Return True if a batch has the last sequence of a known producer, or a control row has its epoch.

    Compaction keeps it without rows, as Kafka's cleaner does. The log then still states the producer's last sequence
    and epoch.
    """
    producer = producers.get(batch.producer_id)
    if producer is None:
        return False
    if producer.batches:
        return batch.control is None and batch.end_offset - 1 == producer.batches[-1].last_offset
    return batch.control is not None and batch.producer_epoch == producer.producer_epoch


def is_aborted(batch: Batch) -> bool:
    """Return True if a batch belongs to an aborted transaction. Compaction removes its rows at once."""
    return batch.control is None and batch.outcome is Outcome.ABORTED


def may_drop_tombstones(batch: Batch, now_ms: int) -> bool:
    """Return True if the tombstones of a batch have been kept for long enough (KIP-534)."""
    return batch.delete_horizon_ms != NO_TIME and now_ms >= batch.delete_horizon_ms


def dirty_ratio(partition: Partition, uncleanable_offset: int) -> float:
    """Return the fraction of the sealed bytes below an offset that was never compacted."""
    cleanable = [segment for segment in partition.sealed if segment.base_offset < uncleanable_offset]
    dirty = sum(segment.bytes for segment in cleanable if segment.end_offset > partition.cleaned_offset)
    return dirty / max(1, sum(segment.bytes for segment in cleanable))


def replace_segments(draft: Draft, entry: SegmentsReplaced) -> None:
    """Replace adjacent sealed segments by one. Files that only the replaced ones named are pending deletion afterwards.

    Raises:
        OffsetOutOfRange: one of the segments was replaced or dropped since the entry was planned.
        StagedFilesExpired: the new files are older than the horizon.
        InvalidEntry: the new segment cannot have the content of the replaced ones.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    partition = partition_of(draft, partition_id)
    first = bisect_left(partition.sealed, entry.base_offset, key=lambda segment: segment.base_offset)
    replaced = partition.sealed[first : first + len(entry.replaced)]
    if [(segment.base_offset, segment.index.path) for segment in replaced] != [
        (segment.base_offset, segment.index) for segment in entry.replaced
    ]:
        raise OffsetOutOfRange(
            f"segments of partition {entry.partition} from offset {entry.base_offset} on were replaced or dropped "
            "by another process"
        )
    check_upload(draft, entry.upload_ms)
    _check_replacement(entry, replaced)
    topic = topic_of(draft, entry.topic_id)
    for file in (entry.index, entry.txnindex):
        if file is not None:
            check_object(topic, partition_id, file)
    partition = draft.edit_partition(partition_id)
    partition.sealed = (
        *partition.sealed[:first],
        SealedSegment(
            base_offset=entry.base_offset,
            end_offset=entry.end_offset,
            batch_count=entry.batch_count,
            bytes=entry.bytes,
            min_timestamp=entry.min_timestamp,
            max_timestamp=entry.max_timestamp,
            max_end_slot=max(segment.max_end_slot for segment in replaced),
            index=entry.index,
            txnindex=entry.txnindex,
            snapshot=entry.snapshot,
            slot=draft.slot,
            file_count=entry.file_count,
        ),
        *partition.sealed[first + len(replaced) :],
    )
    if entry.removed_end_slot is not None:
        note_removed_rows(draft, partition, entry.removed_end_slot)
    note_skipped_files(draft, partition, entry.skipped)
    kept = (entry.txnindex, entry.snapshot)
    derived = [file for segment in replaced for file in (segment.txnindex, segment.snapshot) if file is not None]
    draft.pending_deletions = (
        *draft.pending_deletions,
        PendingDeletion(
            draft.slot,
            "",
            tuple(file for file in derived if file not in kept),
            tuple(segment.index for segment in replaced),
        ),
    )


def _check_replacement(entry: SegmentsReplaced, replaced: tuple[SealedSegment, ...]) -> None:
    """Check that the numbers of the new segment fit the replaced ones.

    Raises:
        InvalidEntry: a number does not fit.
    """
    problems = {
        "begins or ends elsewhere": (entry.base_offset, entry.end_offset)
        != (replaced[0].base_offset, replaced[-1].end_offset),
        "names another snapshot": entry.snapshot != replaced[0].snapshot,
        "has more batches": entry.batch_count > sum(segment.batch_count for segment in replaced),
        "lacks rows of transactions that the replaced segments never held": entry.removed_end_slot is not None
        and entry.removed_end_slot > max(segment.max_end_slot for segment in replaced),
        "names an index that is in use": entry.index in [segment.index for segment in replaced],
        "skips files without reason": bool(entry.skipped) is not (entry.reason == "skip_files"),
        "skips rows outside of it": any(
            not entry.base_offset <= each.base_offset < each.end_offset <= entry.end_offset
            or each.rows > each.end_offset - each.base_offset
            for each in entry.skipped
        ),
    }
    if entry.reason != "compact_keys":
        dated = [segment for segment in replaced if segment.batch_count]
        problems |= {
            "lacks batches": entry.batch_count != sum(segment.batch_count for segment in replaced),
            "lacks rows": entry.reason == "compact_files" and entry.removed_end_slot is not None,
            "has other timestamps": (entry.min_timestamp, entry.max_timestamp)
            != (
                min((segment.min_timestamp for segment in dated), default=-1),
                max((segment.max_timestamp for segment in dated), default=-1),
            ),
            "forgets aborted transactions": entry.txnindex is None
            and any(segment.txnindex is not None for segment in replaced),
        }
    for problem, found in problems.items():
        if found:
            raise InvalidEntry(
                f"partition {entry.partition}: the segment that should replace the segments from offset "
                f"{entry.base_offset} on {problem}"
            )


def note_removed_rows(draft: Draft, partition: Partition, end_slot: int) -> None:
    """Note that committed rows were removed, the last of them of a transaction that ended at ``end_slot``."""
    partition.snapshot_floor = draft.slot
    partition.snapshot_floor_ms = draft.time_ms
    partition.removed_end_slot = max(partition.removed_end_slot, end_slot)


def note_skipped_files(draft: Draft, partition: Partition, skipped: Iterable[SkippedFile]) -> None:
    """Add the rows of files to those that readers skip."""
    rows = (SkippedRows(each.base_offset, each.end_offset, each.rows, draft.slot) for each in skipped)
    partition.skipped = (*partition.skipped, *rows)


def clean_log(draft: Draft, entry: LogCleaned) -> None:
    """Note the offset that compaction has reached.

    Raises:
        OffsetOutOfRange: another process has moved the start of the dirty part since the entry was planned.
        InvalidEntry: the start would not move forward, or would move beyond the sealed segments.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    partition = partition_of(draft, partition_id)
    if entry.dirty_offset != partition.cleaned_offset:
        raise OffsetOutOfRange(
            f"partition {entry.partition}: another process has compacted it up to offset {partition.cleaned_offset}"
        )
    if not entry.dirty_offset < entry.cleaned_offset <= partition.segment_base_offset:
        raise InvalidEntry(
            f"partition {entry.partition} cannot be compacted from offset {entry.dirty_offset} up to "
            f"{entry.cleaned_offset}: it is sealed up to {partition.segment_base_offset}"
        )
    draft.edit_partition(partition_id).cleaned_offset = entry.cleaned_offset
