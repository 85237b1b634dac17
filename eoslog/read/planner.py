"""The plan of a read: the slices of data files that hold a partition's visible rows.

The planner decides by the metadata of batches and never looks at single rows. All readers use this planner. A plan
contains everything that a reader task needs, so the task never reads the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from eoslog.errors import OffsetOutOfRange
from eoslog.format.batch_columns import NO_CONTROL, BatchColumns, Numbers
from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.batch_bounds import may_be_wanted, may_hold_wanted
from eoslog.read.isolation import IsolationLevel, is_visible, visible_end, visible_rows
from eoslog.read.predicate import Predicate
from eoslog.read.time_travel import AsOf, check_as_of
from eoslog.state.entry_fields import FileReference, SharedPosition
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Outcome, Partition, SealedSegment
from eoslog.state.sequences import sequence_after

_SLICES_AT_ONCE = 128


class RowOrigin(NamedTuple):
    """The producer that wrote the rows, and the slot that ended their transaction."""

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    """The producer's epoch. A control row has the epoch of its marker: one more than the rows' epoch (KIP-890)."""
    base_sequence: int = NO_SEQUENCE
    """The sequence of the row at the slice's base offset; ``NO_SEQUENCE`` for staged rows and control rows."""
    slot: int = NO_SLOT
    """The slot that ended the transaction; ``NO_SLOT`` while it is open. For rows without a transaction, the slot that
    gave them their offsets."""
    commit_time_ms: int = NO_TIME
    """The log's time at ``slot``; ``NO_TIME`` unless the rows are committed."""


NO_ORIGIN = RowOrigin()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """Consecutive rows of one data file, or one control row. A control row has an empty ``path``."""

    path: str
    length: int
    """Size of the file in bytes."""
    crc32c: int
    footer_crc32c: int | None = None
    record_slot: int | None = None
    """The slot whose record has the content of the file; None if no record has it."""
    shared: SharedPosition | None = None
    """Where the content of the file is in a shared object; None if it is elsewhere."""
    file_rows: int
    """Number of rows of the file."""
    file_base_offset: int = 0
    """The offset from which the file's stored offset deltas count: the base offset of its first batch."""
    first_row: int
    """Number of the slice's first row in the file, counted from 0."""
    record_count: int
    """Number of rows. With gaps it is an upper bound: the slice has all rows of its batch, not only those in range."""
    base_offset: int
    """The first offset of the range. Without gaps it is the offset of ``first_row``."""
    timestamp: int
    """The batch's largest timestamp (ms)."""
    control: int | None = None
    """The type of a control row by Kafka's numbers: 0 ABORT, 1 COMMIT."""
    gaps_end_offset: int | None = None
    """The end of the range of offsets (exclusive) if compaction left gaps; None if the offsets are consecutive. With
    gaps the file contains the offsets. Rows outside of the range belong to the batch, but not to the slice."""
    origin: RowOrigin = NO_ORIGIN

    @property
    def has_gaps(self) -> bool:
        """Return True if compaction left gaps, so that the file contains the rows' offsets."""
        return self.gaps_end_offset is not None

    @property
    def file(self) -> FileReference:
        """The reference to the file."""
        return FileReference(
            path=self.path,
            length=self.length,
            crc32c=self.crc32c,
            footer_crc32c=self.footer_crc32c,
            in_record=None if self.record_slot is None else True,
            shared=self.shared,
        )

    def cut(self, rows: int) -> tuple[FileSlice, FileSlice]:
        """Split the slice after its first ``rows`` rows.

        With gaps both parts keep the whole range of offsets, because only the file knows the offset at the split.
        """
        first = replace(self, record_count=rows)
        rest = replace(self, first_row=self.first_row + rows, record_count=self.record_count - rows)
        if self.has_gaps:
            return first, rest
        sequence = self.origin.base_sequence
        if sequence != NO_SEQUENCE:
            rest = replace(rest, origin=self.origin._replace(base_sequence=sequence_after(sequence, rows)))
        return first, replace(rest, base_offset=self.base_offset + rows)


def slices_by_file(slices: Iterable[FileSlice]) -> Iterator[list[FileSlice]]:
    """Group neighboring slices of one file, so that a reader fetches the file once.

    Control rows lie in no file. They join the group before them, or the first group.
    """
    together: list[FileSlice] = []
    path = ""
    for piece in slices:
        if piece.control is None and piece.path != path:
            if path:
                yield together
                together = []
            path = piece.path
        together.append(piece)
    if together:
        yield together


class SegmentSlices(Sequence[FileSlice]):
    """Slices of a sealed segment's batches. It creates each slice on access, so a plan of many files is cheap."""

    def __init__(self, columns: BatchColumns, rows: Numbers, start: int, end: int) -> None:
        """Cut batches to a range of offsets.

        Args:
            columns: the batches of the segment.
            rows: the row numbers of the batches in ``columns``. Each batch has rows and overlaps the range.
            start: the first offset of the range (inclusive).
            end: the end of the range (exclusive).
        """
        self._columns = columns
        self._rows = rows
        self._start = start
        self._end = end

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> FileSlice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FileSlice]: ...
    def __getitem__(self, index: int | slice) -> FileSlice | Sequence[FileSlice]:
        if isinstance(index, slice):
            return SegmentSlices(self._columns, self._rows[index], self._start, self._end)
        return next(iter(SegmentSlices(self._columns, self._rows[index : index + 1 or None], self._start, self._end)))

    def __iter__(self) -> Iterator[FileSlice]:
        for first in range(0, len(self._rows), _SLICES_AT_ONCE):
            rows = self._rows[first : first + _SLICES_AT_ONCE]
            file_rows = self._columns.file_rows[rows].tolist()
            bases = self._columns.file_base_offset[rows].tolist()
            for batch, whole, base_offset in zip(self._columns.taken(rows), file_rows, bases, strict=True):
                yield slice_of(batch, self._start, self._end, file_rows=whole, file_base_offset=base_offset)

    @property
    def end_slots(self) -> Numbers:
        """For each slice, the slot that ended its transaction."""
        return self._columns.end_slot[self._rows]

    @property
    def record_count(self) -> int:
        """The sum of ``record_count`` over all slices."""
        columns, rows = self._columns, self._rows
        counts = columns.record_count[rows]
        spans = np.minimum(columns.end_offset[rows], self._end) - np.maximum(columns.base_offset[rows], self._start)
        has_gaps = counts <= columns.last_offset_delta[rows]
        return int(np.where(has_gaps, counts, spans).sum())

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each slice's file, and the statistics of its batch. The path of a control row is empty."""
        for first in range(0, len(self._rows), _SLICES_AT_ONCE):
            rows = pa.array(self._rows[first : first + _SLICES_AT_ONCE])
            paths, statistics = (each.take(rows).to_pylist() for each in (self._columns.path, self._columns.statistics))
            yield from zip((path or "" for path in paths), statistics, strict=True)

    def file_lengths(self) -> dict[str, int]:
        """Return the sizes in bytes of the slices' files, by path."""
        rows = self._rows[self._columns.length[self._rows] >= 0]
        return dict(
            zip(self._columns.path.take(pa.array(rows)).to_pylist(), self._columns.length[rows].tolist(), strict=True)
        )


class ActiveSlices(Sequence[FileSlice]):
    """Slices of the active segment's batches. Those batches are in memory, and few."""

    def __init__(self, batches: Iterable[Batch], start: int, end: int) -> None:
        """Cut batches to a range of offsets, from ``start`` to ``end`` (exclusive)."""
        self._batches = tuple(batches)
        self._slices = tuple(slice_of(batch, start, end) for batch in self._batches)

    def __len__(self) -> int:
        return len(self._slices)

    @overload
    def __getitem__(self, index: int) -> FileSlice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FileSlice]: ...
    def __getitem__(self, index: int | slice) -> FileSlice | Sequence[FileSlice]:
        return self._slices[index]

    def __iter__(self) -> Iterator[FileSlice]:
        return iter(self._slices)

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each slice's file, and the statistics of its batch."""
        return ((piece.path, batch.statistics) for piece, batch in zip(self._slices, self._batches, strict=True))


class Slices(Sequence[FileSlice]):
    """The slices of a plan in the order of their offsets: first sealed segments, then the active segment."""

    def __init__(self, parts: Iterable[Sequence[FileSlice]]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = list(accumulate(len(part) for part in self._parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> FileSlice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FileSlice]: ...
    def __getitem__(self, index: int | slice) -> FileSlice | Sequence[FileSlice]:
        if isinstance(index, slice):
            return tuple(self)[index]
        number = range(len(self))[index]
        part = bisect_right(self._ends, number)
        return self._parts[part][number - self._ends[part]]

    def __iter__(self) -> Iterator[FileSlice]:
        return chain.from_iterable(self._parts)

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each slice's file, and the statistics of its batch: None if they are unknown."""
        for part in self._parts:
            if isinstance(part, SegmentSlices | ActiveSlices):
                yield from part.statistics()
            else:
                yield from ((piece.path, None) for piece in part)

    @property
    def record_count(self) -> int:
        """The number of rows of all slices."""
        return sum(
            part.record_count if isinstance(part, SegmentSlices) else sum(piece.record_count for piece in part)
            for part in self._parts
        )

    @property
    def bytes(self) -> int:
        """The total size of the slices' files in bytes. Each file counts once."""
        lengths: dict[str, int] = {}
        for part in self._parts:
            if isinstance(part, SegmentSlices):
                lengths |= part.file_lengths()
            else:
                lengths |= {piece.path: piece.length for piece in part}
        return sum(lengths.values())


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The visible rows of one partition in [``start_offset``, ``end_offset``)."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    slices: Slices

    @property
    def record_count(self) -> int:
        """The number of rows that the plan yields. It is an upper bound if the plan has a predicate, or if it begins or
        ends within a compacted batch: only the file shows which rows of such a batch are left."""
        return self.slices.record_count

    @property
    def bytes(self) -> int:
        """The total size in bytes of the files that the plan reads."""
        return self.slices.bytes


@dataclass(frozen=True, slots=True)
class ReadPlanner:
    """Plans the reads of one topic's partitions, all at the same snapshot."""

    indexes: SegmentIndexes
    topic: str
    isolation: IsolationLevel
    as_of: AsOf | None = None
    """For ``snapshot``, its end; None for the newest state."""
    control_rows: bool = False
    """True if plans include control rows. A control row is visible if the rows of its transaction are visible."""
    predicate: Predicate | None = None
    """Plans leave out batches that cannot match, by their statistics, offsets and producer. They may still include rows
    that do not match."""

    def plan(self, partition: Partition, start: int | None = None, end: int | None = None) -> PartitionPlan:
        """Plan the visible rows of a partition.

        Args:
            start: the first offset (inclusive); None starts at the log start.
            end: the end (exclusive); None ends where the isolation level ends now. A later end has no effect.

        Raises:
            OffsetOutOfRange: the start is outside of [log start, high watermark], or rows of the snapshot have been
                removed since.
        """
        if self.as_of is not None:
            check_as_of(self.topic, partition, self.as_of)
        start = partition.log_start_offset if start is None else start
        check_offset(self.topic, partition, start)
        last = visible_end(partition, self.isolation)
        end = max(start, last if end is None else min(end, last))
        slot, time_ms = self.as_of or (None, None)
        return self._plan(partition, start, end, NO_SLOT, slot, time_ms)

    def plan_commits(self, partition: Partition, after_slot: int, slot: int | None = None) -> PartitionPlan:
        """Plan the rows of the transactions that ended in the slots (after_slot, slot]; None sets no end.

        Rows that have been removed since are left out. The isolation level must be ``snapshot``.
        """
        return self._plan(partition, partition.log_start_offset, partition.high_watermark, after_slot, slot, None)

    def _plan(
        self, partition: Partition, start: int, end: int, after_slot: int, slot: int | None, time_ms: int | None
    ) -> PartitionPlan:
        topic, predicate, parts = self.topic, self.predicate, list[Sequence[FileSlice]]()

        def may_hold(segment: SealedSegment) -> bool:
            return predicate is None or may_hold_wanted(predicate, topic, partition, segment)

        def may_match(batch: Batch) -> bool:
            return predicate is None or may_be_wanted(predicate, topic, partition.id, batch, start, end)

        for columns, between in sealed_between(self.indexes, partition, start, end, after_slot, slot, may_hold):
            rows = np.arange(between.start, between.stop)
            visible = visible_rows(columns, self.isolation, after_slot, slot, time_ms)[rows]
            wanted = visible & (columns.record_count[rows] > 0)
            if not self.control_rows:
                wanted &= columns.control[rows] == NO_CONTROL
            rows = rows[wanted]
            if predicate is not None:
                rows = rows[np.array([may_match(batch) for batch in columns.taken(rows)], np.bool_)]
            if len(rows):
                parts.append(SegmentSlices(columns, rows, start, end))
        active = (
            batch
            for batch in active_between(partition, start, end)
            if batch.record_count
            and (self.control_rows or batch.control is None)
            and is_visible(batch, self.isolation, after_slot, slot, time_ms)
            and may_match(batch)
        )
        parts.append(ActiveSlices(active, start, end))
        return PartitionPlan(topic, partition.id.topic_id, partition.id.partition, start, end, Slices(parts))


def check_offset(topic: str, partition: Partition, offset: int) -> None:
    """Check that an offset of the partition exists.

    Raises:
        OffsetOutOfRange: the offset is outside of [log start, high watermark].
    """
    if not partition.log_start_offset <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {topic}-{partition.id.partition} holds offsets {partition.log_start_offset} to "
            f"{partition.high_watermark} (exclusive), not {offset}"
        )


def sealed_between(
    indexes: SegmentIndexes,
    partition: Partition,
    start: int,
    end: int,
    after_slot: int = NO_SLOT,
    until_slot: int | None = None,
    may_hold: Callable[[SealedSegment], bool] = lambda segment: True,
) -> Iterator[tuple[BatchColumns, range]]:
    """Yield the batches of sealed segments within a range of offsets: per segment its columns and row numbers.

    Args:
        after_slot: skip segments whose transactions all ended at or before this slot.
        until_slot: stop at the first batch that got its offsets after this slot. The function then reads segments one
            by one, only as far as the caller iterates.
        may_hold: skip segments for which this function returns False.
    """
    if start >= end:
        return
    first = bisect_right(partition.sealed, start, key=lambda segment: segment.end_offset)
    last = bisect_left(partition.sealed, end, lo=first, key=lambda segment: segment.base_offset)
    segments = [each for each in partition.sealed[first:last] if each.max_end_slot > after_slot and may_hold(each)]
    if until_slot is None:
        for columns in indexes.columns_of_each(segments):
            yield columns, columns.between(start, end)
        return
    for columns in map(indexes.columns, segments):
        rows = columns.between(start, end)
        # Slots assign offsets in ascending order, and a transaction ends no earlier than it writes. So no later batch
        # can have ended at or before until_slot.
        later = columns.slot[rows.start : rows.stop] > until_slot
        if later.any():
            yield columns, rows[: int(later.argmax())]
            return
        yield columns, rows


def active_between(partition: Partition, start: int, end: int) -> Iterator[Batch]:
    """Yield the batches of the active segment within a range of offsets."""
    if start >= end:
        return
    batches = partition.active
    first = max(0, bisect_right(batches, start, key=lambda batch: batch.base_offset) - 1)
    for index in range(first, len(batches)):
        batch = batches[index]
        if batch.base_offset >= end:
            return
        if batch.end_offset > start:
            yield batch


def batches_between(indexes: SegmentIndexes, partition: Partition, start: int, end: int) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of a range of offsets, each with the number of rows of its whole file.

    The function reads segments one by one, only as far as the caller iterates.
    """
    if start >= end:
        return
    first = bisect_right(partition.sealed, start, key=lambda segment: segment.end_offset)
    for segment in partition.sealed[first:]:
        if segment.base_offset >= end:
            return
        columns = indexes.columns(segment)
        rows = columns.between(start, end)
        yield from zip(columns.batches(rows), columns.file_rows[rows.start : rows.stop].tolist(), strict=True)
    for batch in active_between(partition, start, end):
        yield batch, batch.record_count


def slice_of(
    batch: Batch, start: int, end: int, *, file_rows: int | None = None, file_base_offset: int | None = None
) -> FileSlice:
    """Return the part of a batch within the offsets from ``start`` to ``end`` (exclusive).

    Args:
        file_rows: the number of rows of the batch's file; None if the file has no other batch.
        file_base_offset: the base offset of the file's first batch; None if the file has no other batch.
    """
    first = max(start, batch.base_offset)
    last = min(end, batch.end_offset)
    origin = RowOrigin(
        batch.transactional_id,
        batch.producer_id,
        batch.producer_epoch,
        NO_SEQUENCE if batch.base_sequence < 0 else sequence_after(batch.base_sequence, first - batch.base_offset),
        batch.end_slot,
        batch.end_time_ms if batch.outcome is Outcome.COMMITTED else NO_TIME,
    )
    if batch.file is None:
        return FileSlice(
            path="",
            length=0,
            crc32c=0,
            file_rows=1,
            first_row=0,
            record_count=1,
            base_offset=batch.base_offset,
            timestamp=batch.max_timestamp,
            control=batch.control.value if batch.control is not None else None,
            origin=origin,
        )
    return FileSlice(
        path=batch.file.path,
        length=batch.file.length,
        crc32c=batch.file.crc32c,
        footer_crc32c=batch.file.footer_crc32c,
        record_slot=batch.slot if batch.file.in_record else None,
        shared=batch.file.shared,
        file_rows=batch.record_count if file_rows is None else file_rows,
        file_base_offset=batch.base_offset if file_base_offset is None else file_base_offset,
        first_row=batch.first_row + (0 if batch.has_gaps else first - batch.base_offset),
        record_count=batch.record_count if batch.has_gaps else last - first,
        base_offset=first,
        timestamp=batch.max_timestamp,
        gaps_end_offset=last if batch.has_gaps else None,
        origin=origin,
    )
