"""Planning a read: which rows of which files, decided over batch metadata, never row by row.

One planner serves all readers. What a reader task needs travels in the plan: it never reads the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eoslog.errors import OffsetOutOfRange
from eoslog.read.isolation import IsolationLevel, is_visible, visible_end
from eoslog.rules.entries import FileReference
from eoslog.rules.state import NO_SLOT, Batch, Partition, SealedSegment
from eoslog.segment.segment_index import decode_segment_index
from eoslog.segment.stored_file import read_file
from eoslog.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Consecutive rows of one data file, or one control row (``path`` is empty then)."""

    path: str
    length: int
    """Bytes of the file."""
    crc32c: int
    file_rows: int
    """Rows of the file."""
    first_row: int
    """The first row of the slice, counted from 0 in the file."""
    record_count: int
    base_offset: int
    """The offset of ``first_row``."""
    timestamp: int
    """The batch's largest timestamp (ms)."""
    control: int | None = None
    """The type of a control row, as Kafka numbers it: 0 ABORT, 1 COMMIT."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The visible rows of one partition in [``start_offset``, ``end_offset``)."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    slices: tuple[FileSlice, ...]

    @property
    def record_count(self) -> int:
        """Rows that the plan yields, without control rows."""
        return sum(piece.record_count for piece in self.slices if piece.control is None)

    @property
    def bytes(self) -> int:
        """The size of the files that the plan reads, whole."""
        return sum(piece.length for piece in self.slices)


class SegmentIndexes:
    """The batches of sealed segments, read once per process: they never change."""

    def __init__(self, store: ObjectStore, capacity: int = 128) -> None:
        self._store = store
        self._load: Callable[[FileReference], tuple[Batch, ...]] = lru_cache(capacity)(self._read)

    def _read(self, file: FileReference) -> tuple[Batch, ...]:
        return tuple(decode_segment_index(read_file(self._store, file), file.path))

    def batches(self, segment: SealedSegment) -> tuple[Batch, ...]:
        """The batches and control rows of a segment, in the order of their offsets.

        Raises:
            CorruptRecord: the index file is missing, or not what its entry says.
        """
        return self._load(segment.index)


def plan_partition(
    indexes: SegmentIndexes,
    topic: str,
    partition: Partition,
    isolation: IsolationLevel,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    after_slot: int = NO_SLOT,
    slot: int | None = None,
    control_rows: bool = False,
) -> PartitionPlan:
    """Plan the visible rows of a partition.

    Args:
        start_offset: inclusive; the log start if None.
        end_offset: exclusive; what the isolation level shows now if None, and never beyond that.
        after_slot, slot: for ``snapshot``, the slots in which the rows' transactions ended: (after_slot, slot].
        control_rows: whether control rows are part of the plan.

    Raises:
        OffsetOutOfRange: the start lies outside of [log start, high watermark].
    """
    if start_offset is None:
        start_offset = partition.log_start_offset
    check_offset(topic, partition, start_offset)
    last = visible_end(partition, isolation)
    end = last if end_offset is None else min(end_offset, last)
    slices = tuple(
        _slice(batch, start_offset, end)
        for batch in _batches(indexes, partition, start_offset, end, after_slot)
        if (control_rows or batch.control is None) and is_visible(batch, isolation, after_slot, slot)
    )
    return PartitionPlan(
        topic, partition.id.topic_id, partition.id.partition, start_offset, max(start_offset, end), slices
    )


def check_snapshot(topic: str, partition: Partition, slot: int) -> None:
    """Raises: OffsetOutOfRange: rows that the snapshot of a slot would show have been removed since."""
    if slot < partition.snapshot_floor:
        raise OffsetOutOfRange(
            f"partition {topic}-{partition.id.partition} has dropped rows at slot {partition.snapshot_floor}; "
            f"a snapshot of the earlier slot {slot} would lack them"
        )


def check_offset(topic: str, partition: Partition, offset: int) -> None:
    """Raises: OffsetOutOfRange: the offset lies outside of [log start, high watermark]."""
    if not partition.log_start_offset <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {topic}-{partition.id.partition} holds offsets {partition.log_start_offset} to "
            f"{partition.high_watermark} (exclusive), not {offset}"
        )


def _batches(indexes: SegmentIndexes, partition: Partition, start: int, end: int, after_slot: int) -> Iterator[Batch]:
    for segment in partition.sealed:
        if segment.end_offset > start and segment.base_offset < end and segment.max_end_slot > after_slot:
            yield from _between(indexes.batches(segment), start, end)
    yield from _between(partition.active, start, end)


def _between(batches: Sequence[Batch], start: int, end: int) -> Iterator[Batch]:
    first = max(0, bisect_right(batches, start, key=lambda batch: batch.base_offset) - 1)
    for index in range(first, len(batches)):
        batch = batches[index]
        if batch.base_offset >= end:
            return
        if batch.end_offset > start:
            yield batch


def _slice(batch: Batch, start: int, end: int) -> FileSlice:
    first = max(start, batch.base_offset)
    count = min(end, batch.end_offset) - first
    if batch.file is None:
        control = batch.control.value if batch.control is not None else None
        return FileSlice("", 0, 0, 1, 0, 1, batch.base_offset, batch.max_timestamp, control)
    return FileSlice(
        batch.file.path,
        batch.file.length,
        batch.file.crc32c,
        batch.record_count,
        first - batch.base_offset,
        count,
        first,
        batch.max_timestamp,
    )
