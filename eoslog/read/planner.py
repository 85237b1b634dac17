"""Planning a read: which rows of which files, decided over batch metadata, never row by row.

One planner serves all readers. What a reader task needs travels in the plan: it never reads the log.
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
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.read.batch_bounds import may_be_wanted, may_hold_wanted
from eoslog.read.isolation import IsolationLevel, is_visible, visible_end, visible_rows
from eoslog.read.predicate import Predicate
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Partition, SealedSegment, Verdict
from eoslog.state.sequences import sequence_after

_SLICES_AT_ONCE = 128


class RowOrigin(NamedTuple):
    """Who wrote rows, and the slot that settled them."""

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    """Of a control row: the epoch that its marker carries, one more than that of the rows."""
    base_sequence: int = NO_SEQUENCE
    """The producer's number of the row at the slice's base offset; ``NO_SEQUENCE`` of staged and control rows."""
    slot: int = NO_SLOT
    """The slot that ended the rows' transaction, or gave rows without one their offsets; ``NO_SLOT`` while open."""
    commit_time_ms: int = NO_TIME
    """The log's time at ``slot``; ``NO_TIME`` unless the rows are committed."""


NO_ORIGIN = RowOrigin()


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
    """How many rows; with gaps, not fewer than there are in the range of offsets."""
    base_offset: int
    """The first offset; without gaps that of ``first_row``."""
    timestamp: int
    """The batch's largest timestamp (ms)."""
    control: int | None = None
    """The type of a control row, as Kafka numbers it: 0 ABORT, 1 COMMIT."""
    gaps_end_offset: int | None = None
    """None if the rows' offsets follow each other. If compaction left gaps, the file holds the offsets, and the slice's
    end here (exclusive): rows outside of the range belong to the batch, but not to the slice."""
    origin: RowOrigin = NO_ORIGIN

    @property
    def has_gaps(self) -> bool:
        """Whether the offsets of the rows stand in the file."""
        return self.gaps_end_offset is not None

    def cut(self, rows: int) -> tuple[FileSlice, FileSlice]:
        """The first ``rows`` rows and those behind them. With gaps both keep the range: the file tells whose it is."""
        first = replace(self, record_count=rows)
        rest = replace(self, first_row=self.first_row + rows, record_count=self.record_count - rows)
        if self.has_gaps:
            return first, rest
        sequence = self.origin.base_sequence
        if sequence != NO_SEQUENCE:
            rest = replace(rest, origin=self.origin._replace(base_sequence=sequence_after(sequence, rows)))
        return first, replace(rest, base_offset=self.base_offset + rows)


def slices_by_file(slices: Iterable[FileSlice]) -> Iterator[list[FileSlice]]:
    """Neighbouring slices of one file together: who reads one fetches it. Control rows go with what is beside them."""
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
    """Slices of a sealed segment's batches. Each is made when it is asked for: a plan of many files costs little."""

    def __init__(self, columns: BatchColumns, rows: Numbers, start: int, end: int) -> None:
        """Cut batches to a range of offsets.

        Args:
            rows: the numbers of the batches in the columns. Each has rows, and offsets from ``start`` to ``end``
                (exclusive).
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
            for batch, whole in zip(self._columns.taken(rows), file_rows, strict=True):
                yield slice_of(batch, whole, self._start, self._end)

    @property
    def end_slots(self) -> Numbers:
        """Of each slice the slot that ended its transaction."""
        return self._columns.end_slot[self._rows]

    @property
    def record_count(self) -> int:
        """As that of all slices together."""
        columns, rows = self._columns, self._rows
        counts = columns.record_count[rows]
        spans = np.minimum(columns.end_offset[rows], self._end) - np.maximum(columns.base_offset[rows], self._start)
        has_gaps = counts <= columns.last_offset_delta[rows]
        return int(np.where(has_gaps, counts, spans).sum())

    def file_lengths(self) -> dict[str, int]:
        """The lengths of the files in which the slices lie, by their paths."""
        rows = self._rows[self._columns.length[self._rows] >= 0]
        return dict(
            zip(self._columns.path.take(pa.array(rows)).to_pylist(), self._columns.length[rows].tolist(), strict=True)
        )


class Slices(Sequence[FileSlice]):
    """The slices of a plan, one after the other: of sealed segments, and of what is not sealed yet."""

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

    @property
    def record_count(self) -> int:
        """The rows of all slices."""
        return sum(
            part.record_count if isinstance(part, SegmentSlices) else sum(piece.record_count for piece in part)
            for part in self._parts
        )

    @property
    def bytes(self) -> int:
        """The size of the files in which the slices lie, each counted once."""
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
        """Rows that the plan yields. Where it begins or ends within a compacted batch, at most so many: which rows are
        left there stands in the file. So too with a predicate."""
        return self.slices.record_count

    @property
    def bytes(self) -> int:
        """The size of the files that the plan reads, whole."""
        return self.slices.bytes


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
    time_ms: int | None = None,
    control_rows: bool = False,
    predicate: Predicate | None = None,
) -> PartitionPlan:
    """Plan the visible rows of a partition.

    Args:
        start_offset: inclusive; the log start if None.
        end_offset: exclusive; what the isolation level shows now if None, and never beyond that.
        after_slot, slot: for ``snapshot``, the slots in which the rows' transactions ended: (after_slot, slot].
        time_ms: for ``snapshot``, the log's time at these slots (ms, inclusive).
        control_rows: whether control rows are rows of the plan; they are visible as the rows that they end.
        predicate: leave out what cannot have wanted rows, by statistics and place; others may be left.

    Raises:
        OffsetOutOfRange: the start lies outside of [log start, high watermark].
    """
    if start_offset is None:
        start_offset = partition.log_start_offset
    check_offset(topic, partition, start_offset)
    last = visible_end(partition, isolation)
    end = max(start_offset, last if end_offset is None else min(end_offset, last))

    def may_hold(segment: SealedSegment) -> bool:
        return predicate is None or may_hold_wanted(predicate, topic, partition, segment)

    parts: list[Sequence[FileSlice]] = []
    for columns, between in sealed_between(indexes, partition, start_offset, end, after_slot, slot, may_hold):
        rows = np.arange(between.start, between.stop)
        wanted = visible_rows(columns, isolation, after_slot, slot, time_ms)[rows] & (columns.record_count[rows] > 0)
        if not control_rows:
            wanted &= columns.control[rows] == NO_CONTROL
        rows = rows[wanted]
        if predicate is not None:
            may_match = [
                may_be_wanted(predicate, topic, partition.id, batch, start_offset, end) for batch in columns.taken(rows)
            ]
            rows = rows[np.array(may_match, np.bool_)]
        if len(rows):
            parts.append(SegmentSlices(columns, rows, start_offset, end))
    parts.append(
        tuple(
            slice_of(batch, batch.record_count, start_offset, end)
            for batch in active_between(partition, start_offset, end)
            if batch.record_count
            and (control_rows or batch.control is None)
            and is_visible(batch, isolation, after_slot, slot, time_ms)
            and (predicate is None or may_be_wanted(predicate, topic, partition.id, batch, start_offset, end))
        )
    )
    return PartitionPlan(topic, partition.id.topic_id, partition.id.partition, start_offset, end, Slices(parts))


def check_offset(topic: str, partition: Partition, offset: int) -> None:
    """Raises: OffsetOutOfRange: the offset lies outside of [log start, high watermark]."""
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
    """The batches of sealed segments within a range of offsets: for each segment its columns and the rows of them.

    Segments of which nothing ended after ``after_slot``, or which ``may_hold`` denies, are passed over. With
    ``until_slot`` segments are read one after the other, as far as the caller iterates, and what came after this slot
    is not reached.
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
        # Rows get their offsets in the order of the slots, and end no earlier than that.
        later = columns.slot[rows.start : rows.stop] > until_slot
        if later.any():
            yield columns, rows[: int(later.argmax())]
            return
        yield columns, rows


def active_between(partition: Partition, start: int, end: int) -> Iterator[Batch]:
    """The batches of the active segment within a range of offsets."""
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
    """The batches of a range of offsets, each with the number of rows of its whole file.

    Segments are read one after the other, as far as the caller iterates.
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


def slice_of(batch: Batch, file_rows: int, start: int, end: int) -> FileSlice:
    first = max(start, batch.base_offset)
    last = min(end, batch.end_offset)
    origin = RowOrigin(
        batch.transactional_id,
        batch.producer_id,
        batch.producer_epoch,
        NO_SEQUENCE if batch.base_sequence < 0 else sequence_after(batch.base_sequence, first - batch.base_offset),
        batch.end_slot,
        batch.end_time_ms if batch.verdict is Verdict.COMMITTED else NO_TIME,
    )
    if batch.file is None:
        control = batch.control.value if batch.control is not None else None
        return FileSlice("", 0, 0, 1, 0, 1, batch.base_offset, batch.max_timestamp, control, None, origin)
    return FileSlice(
        batch.file.path,
        batch.file.length,
        batch.file.crc32c,
        file_rows,
        batch.first_row + (0 if batch.has_gaps else first - batch.base_offset),
        batch.record_count if batch.has_gaps else last - first,
        first,
        batch.max_timestamp,
        None,
        last if batch.has_gaps else None,
        origin,
    )
