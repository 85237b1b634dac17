"""Sealed segments are replaced by one with the same rows in fewer files, or with those that compaction left.

Kafka replaces segments as its cleaner does (``LogCleaner``, ``UnifiedLog.replaceSegments``).
"""

from __future__ import annotations

from bisect import bisect_left

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.rules.draft import Draft
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Partition, SealedSegment
from eoslog.rules.partitions import check_file_place, check_upload, partition_of, topic_of
from eoslog.rules.segment_entries import LogCleaned, SegmentsReplaced
from eoslog.rules.state import Doomed


def replace_segments(draft: Draft, entry: SegmentsReplaced) -> None:
    """Put one segment in the place of some. Files that only the replaced ones named are doomed.

    Raises:
        OffsetOutOfRange: one of the segments was replaced or dropped meanwhile.
        StagedFilesExpired: the new files are older than the horizon.
        InvalidEntry: the new segment cannot hold what the replaced ones held.
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
            "meanwhile"
        )
    check_upload(draft, entry.upload_ms)
    _check_replacement(entry, replaced)
    topic = topic_of(draft, entry.topic_id)
    for file in (entry.index, entry.txnindex):
        if file is not None:
            check_file_place(topic, partition_id, file)
    partition = draft.edit_partition(partition_id)
    partition.sealed = (
        *partition.sealed[:first],
        SealedSegment(
            entry.base_offset,
            entry.end_offset,
            entry.batch_count,
            entry.bytes,
            entry.min_timestamp,
            entry.max_timestamp,
            max(segment.max_end_slot for segment in replaced),
            entry.index,
            entry.txnindex,
            entry.snapshot,
            draft.slot,
            entry.file_count,
        ),
        *partition.sealed[first + len(replaced) :],
    )
    if entry.removed_end_slot is not None:
        _note_removed_rows(draft, partition, entry.removed_end_slot)
    kept = (entry.txnindex, entry.snapshot)
    derived = [file for segment in replaced for file in (segment.txnindex, segment.snapshot) if file is not None]
    draft.doomed = (
        *draft.doomed,
        Doomed(
            draft.slot,
            "",
            tuple(file for file in derived if file not in kept),
            tuple(segment.index for segment in replaced),
        ),
    )


def _check_replacement(entry: SegmentsReplaced, replaced: tuple[SealedSegment, ...]) -> None:
    problems = {
        "begins or ends elsewhere": (entry.base_offset, entry.end_offset)
        != (replaced[0].base_offset, replaced[-1].end_offset),
        "names another snapshot": entry.snapshot != replaced[0].snapshot,
        "has more batches": entry.batch_count > sum(segment.batch_count for segment in replaced),
        "lacks rows of transactions that they do not hold": entry.removed_end_slot is not None
        and entry.removed_end_slot > max(segment.max_end_slot for segment in replaced),
        "names an index that is in use": entry.index in [segment.index for segment in replaced],
    }
    if entry.reason == "merge":
        dated = [segment for segment in replaced if segment.batch_count]
        problems |= {
            "lacks batches": entry.batch_count != sum(segment.batch_count for segment in replaced),
            "lacks rows": entry.removed_end_slot is not None,
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
                f"partition {entry.partition}: the segment that would replace those from offset {entry.base_offset} on "
                f"{problem}"
            )


def _note_removed_rows(draft: Draft, partition: Partition, end_slot: int) -> None:
    partition.snapshot_floor = draft.slot
    partition.snapshot_floor_ms = draft.time_ms
    partition.removed_end_slot = max(partition.removed_end_slot, end_slot)


def clean_log(draft: Draft, entry: LogCleaned) -> None:
    """Note how far compaction has come.

    Raises:
        OffsetOutOfRange: somebody else moved the dirty part's beginning meanwhile.
        InvalidEntry: it would move back, or into what is not sealed.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    partition = partition_of(draft, partition_id)
    if entry.dirty_offset != partition.cleaned_offset:
        raise OffsetOutOfRange(f"partition {entry.partition} is compacted up to offset {partition.cleaned_offset}")
    if not entry.dirty_offset < entry.cleaned_offset <= partition.segment_base_offset:
        raise InvalidEntry(
            f"partition {entry.partition} cannot be compacted from offset {entry.dirty_offset} up to "
            f"{entry.cleaned_offset}: it is sealed up to {partition.segment_base_offset}"
        )
    draft.edit_partition(partition_id).cleaned_offset = entry.cleaned_offset
