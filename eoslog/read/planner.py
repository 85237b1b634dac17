"""Planning a read: which rows of which files, decided over batch metadata, never row by row.

One planner serves all readers. What a reader task needs travels in the plan: it never reads the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from eoslog.errors import CorruptRecord, OffsetOutOfRange
from eoslog.read.batch_bounds import may_be_wanted, may_hold_wanted
from eoslog.read.isolation import IsolationLevel, is_visible, visible_end
from eoslog.read.predicate import Predicate
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Partition, SealedSegment, Verdict
from eoslog.rules.sequences import sequence_after
from eoslog.segment.segment_index import read_segment_index, rows_of_files
from eoslog.store.object_store import ObjectStore


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
        """Rows that the plan yields. Where it begins or ends within a compacted batch, at most so many: which rows are
        left there stands in the file. So too with a predicate."""
        return sum(piece.record_count for piece in self.slices)

    @property
    def bytes(self) -> int:
        """The size of the files that the plan reads, whole."""
        return sum({piece.path: piece.length for piece in self.slices}.values())


class _Index(NamedTuple):
    batches: tuple[Batch, ...]
    file_rows: Mapping[str, int]


class SegmentIndexes:
    """The batches of sealed segments, read once per process: they never change."""

    def __init__(self, store: ObjectStore, capacity: int = 128) -> None:
        self._store = store
        self._load: Callable[[FileReference], _Index] = lru_cache(capacity)(self._read)

    def _read(self, file: FileReference) -> _Index:
        batches = tuple(read_segment_index(self._store, file))
        return _Index(batches, rows_of_files(batches))

    def batches(self, segment: SealedSegment) -> tuple[Batch, ...]:
        """The batches and control rows of a segment, in the order of their offsets.

        Raises:
            CorruptRecord: the index file is missing, or not what its entry says.
        """
        batches = self._load(segment.index).batches
        if batches and not (
            segment.base_offset <= batches[0].base_offset and batches[-1].end_offset <= segment.end_offset
        ):
            raise CorruptRecord(
                f"segment index {segment.index.path} holds offsets {batches[0].base_offset} to "
                f"{batches[-1].end_offset} (exclusive), but its segment has {segment.base_offset} to "
                f"{segment.end_offset}"
            )
        return batches

    def file_rows(self, segment: SealedSegment) -> Mapping[str, int]:
        """How many rows each data file of a segment has, by its path.

        Raises:
            CorruptRecord: as ``batches``.
        """
        return self._load(segment.index).file_rows


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

    slices = tuple(
        slice_of(batch, file_rows, start_offset, end)
        for batch, file_rows in batches_between(indexes, partition, start_offset, end, after_slot, slot, may_hold)
        if batch.record_count
        and (control_rows or batch.control is None)
        and is_visible(batch, isolation, after_slot, slot, time_ms)
        and (predicate is None or may_be_wanted(predicate, topic, partition.id, batch, start_offset, end))
    )
    return PartitionPlan(topic, partition.id.topic_id, partition.id.partition, start_offset, end, slices)


def check_offset(topic: str, partition: Partition, offset: int) -> None:
    """Raises: OffsetOutOfRange: the offset lies outside of [log start, high watermark]."""
    if not partition.log_start_offset <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {topic}-{partition.id.partition} holds offsets {partition.log_start_offset} to "
            f"{partition.high_watermark} (exclusive), not {offset}"
        )


def batches_between(
    indexes: SegmentIndexes,
    partition: Partition,
    start: int,
    end: int,
    after_slot: int = NO_SLOT,
    until_slot: int | None = None,
    may_hold: Callable[[SealedSegment], bool] = lambda segment: True,
) -> Iterator[tuple[Batch, int]]:
    """The batches of a range of offsets, each with the number of rows of its whole file.

    Segments are read one after the other, as far as the caller iterates; those of which nothing ended after
    ``after_slot``, or which ``may_hold`` denies, are passed over, and what came after ``until_slot`` is not
    reached.
    """
    if start >= end:
        return
    for index in range(
        bisect_right(partition.sealed, start, key=lambda segment: segment.end_offset), len(partition.sealed)
    ):
        segment = partition.sealed[index]
        if segment.base_offset >= end:
            return
        if segment.max_end_slot <= after_slot or not may_hold(segment):
            continue
        file_rows = indexes.file_rows(segment)
        for batch in _between(indexes.batches(segment), start, end):
            if until_slot is not None and batch.slot > until_slot:
                return  # Rows get their offsets in the order of the slots, and end no earlier than that.
            yield batch, file_rows[batch.file.path] if batch.file is not None else 0
    for batch in _between(partition.active, start, end):
        yield batch, batch.record_count


def _between(batches: Sequence[Batch], start: int, end: int) -> Iterator[Batch]:
    first = max(0, bisect_right(batches, start, key=lambda batch: batch.base_offset) - 1)
    for index in range(first, len(batches)):
        batch = batches[index]
        if batch.base_offset >= end:
            return
        if batch.end_offset > start:
            yield batch


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
