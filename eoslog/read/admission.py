"""Admission: the size of a micro-batch, by limits of offsets, bytes and files, alone or together.

The end is found from metadata, read only from the start of the micro-batch to its end. So the cost does not grow with
the backlog.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.committed_rows import rows_by_commit
from eoslog.read.file_rows import FileRows
from eoslog.read.isolation import IsolationLevel, is_visible
from eoslog.read.planner import batches_between
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.partition_state import NO_OFFSET, NO_SLOT, Partition


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of a micro-batch. None means no limit.

    The first file (with ``snapshot``: the first commit) is always taken, so that a stream never stops. Later files and
    commits are taken only if they fit.
    """

    max_offsets: int | None = None
    """Kafka's ``maxOffsetsPerTrigger``: offsets over all partitions; with ``snapshot``: rows."""
    max_bytes: int | None = None
    """Delta's ``maxBytesPerTrigger``: bytes of files. A file counts in proportion to the rows that are taken of it."""
    max_files: int | None = None
    """Delta's ``maxFilesPerTrigger``: data files."""

    @property
    def are_none(self) -> bool:
        return self.max_offsets is None and not self.count_files

    @property
    def count_files(self) -> bool:
        """True if a limit counts bytes or files, so that file metadata is needed."""
        return self.max_bytes is not None or self.max_files is not None

    def times(self, factor: int) -> ReadLimits:
        """Return these limits, multiplied by a factor."""
        limits = (self.max_offsets, self.max_bytes, self.max_files)
        return ReadLimits(*(None if each is None else each * factor for each in limits))


class _Budget:
    """The remaining limits while a micro-batch is filled."""

    def __init__(self, max_rows: int | None, max_bytes: int | None, max_files: int | None) -> None:
        self._rows_left: float = math.inf if max_rows is None else max_rows
        self._bytes_left: float = math.inf if max_bytes is None else max_bytes
        self._files_left: float = math.inf if max_files is None else max_files
        self._paths: set[str] = set()
        self._is_empty = True

    @property
    def is_spent(self) -> bool:
        return not self._is_empty and min(self._rows_left, self._bytes_left, self._files_left) <= 0

    def take(self, rows: int, size: int, paths: set[str]) -> bool:
        """Take rows of these files if they fit, or if they are the first. Return True if they were taken."""
        new = paths - self._paths
        fits = rows <= self._rows_left and size <= self._bytes_left and len(new) <= self._files_left
        if not fits and not self._is_empty:
            return False
        self._rows_left -= rows
        self._bytes_left -= size
        self._files_left -= len(new)
        self._paths |= new
        self._is_empty = self._is_empty and not rows
        return True


class _Unit(NamedTuple):
    """Adjacent batches of one file, with the control rows and invisible batches that follow and cost nothing."""

    slot: int
    """The slot of the first batch. Units are taken in the order of the log."""
    end_offset: int
    path: str
    """The path of the file; empty if the unit costs nothing."""
    rows: int
    bytes: int


class Admission:
    """Finds the ends of the micro-batches of one stream."""

    def __init__(self, isolation: IsolationLevel, *, control_rows: bool = False) -> None:
        self._isolation = isolation
        self._control_rows = control_rows
        self._next_slots: dict[PartitionId, tuple[int, int]] = {}
        """The offset and slot of a partition's next unit, if it did not fit. So its index is not read again."""

    def ends(
        self,
        indexes: SegmentIndexes,
        partitions: Mapping[TopicPartition, Partition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        limits: ReadLimits,
    ) -> dict[TopicPartition, int]:
        """Return the end of a micro-batch in each partition, at or below ``ends``. It moves if there is a new row.

        Files are taken in the order of the log, over all partitions.

        Raises:
            CorruptRecord, StoreUnavailable: an index cannot be read.
        """
        ends = dict(ends) if limits.max_offsets is None else limit_offsets(starts, ends, limits.max_offsets)
        if not limits.count_files:
            return ends
        budget = _Budget(None, limits.max_bytes, limits.max_files)
        caps = dict(ends)
        units: dict[TopicPartition, Iterator[_Unit]] = {}
        heads: list[tuple[int, TopicPartition, _Unit | None]] = []

        def push_next(key: TopicPartition) -> None:
            unit = next(units[key], None)
            if unit is None:
                caps[key] = ends[key]
            else:
                heapq.heappush(heads, (unit.slot, key, unit))

        for key, end in ends.items():
            if starts[key] >= end:
                continue
            caps[key] = starts[key]
            units[key] = _units(indexes, partitions[key], self._isolation, start=starts[key], end=end)
            offset, slot = self._next_slots.get(partitions[key].id, (NO_OFFSET, NO_SLOT))
            if offset == starts[key]:
                heapq.heappush(heads, (slot, key, None))
            else:
                push_next(key)
        while heads and not budget.is_spent:
            _, key, unit = heapq.heappop(heads)
            if unit is None:
                push_next(key)
            elif budget.take(unit.rows, unit.bytes, {unit.path} if unit.path else set()):
                caps[key] = unit.end_offset
                if not budget.is_spent:
                    push_next(key)
            else:
                heapq.heappush(heads, (unit.slot, key, unit))
                break
        self._next_slots = {partitions[key].id: (caps[key], slot) for slot, key, _ in heads}
        return caps

    def last_slot(
        self,
        indexes: SegmentIndexes,
        partitions: Sequence[Partition],
        after_slot: int,
        *,
        newest_slot: int,
        limits: ReadLimits,
    ) -> int:
        """Return the slot that ends a micro-batch of whole commits; ``after_slot`` if there is no later commit.

        Raises:
            CorruptRecord, StoreUnavailable: an index cannot be read.
        """
        budget = _Budget(limits.max_offsets, limits.max_bytes, limits.max_files)
        last = after_slot
        for slot, files in self._commits(indexes, partitions, after_slot, newest_slot):
            if limits.are_none:
                return newest_slot
            parts = [(each.file, each.in_file_count, each.file_rows) for each in files if each.file is not None]
            size = sum(_share(file.length, rows, file_rows) for file, rows, file_rows in parts if rows)
            if not budget.take(_rows(files), size, {file.path for file, rows, _ in parts if rows}):
                return last
            last = slot
            if budget.is_spent:
                return last
        return last if last == after_slot else newest_slot

    def committed_rows(
        self, indexes: SegmentIndexes, partitions: Sequence[Partition], after_slot: int, newest_slot: int, enough: int
    ) -> int:
        """Count the rows that were committed in (after_slot, newest_slot]. Stop at ``enough``."""
        rows = 0
        for _, files in self._commits(indexes, partitions, after_slot, newest_slot):
            rows += _rows(files)
            if rows >= enough:
                break
        return rows

    def _commits(
        self, indexes: SegmentIndexes, partitions: Sequence[Partition], after_slot: int, newest_slot: int
    ) -> Iterator[tuple[int, list[FileRows]]]:
        changed = {each.id: each for each in partitions if each.changed_slot > after_slot}
        commits = rows_by_commit(indexes, changed, after_slot, newest_slot, control_rows=self._control_rows)
        for slot, _, rows in commits:
            yield slot, [file for each in rows.values() for file in each]


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """Limit the ends to about ``max_offsets`` offsets, in proportion to the size of each partition, as in Kafka.

    Every partition with new rows and a share moves by at least one offset.
    """
    sizes = {key: max(0, end[key] - start.get(key, 0)) for key in end}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    limited = {}
    for key, size in sizes.items():
        share = max_offsets * size / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[key] = min(start.get(key, 0) + step, end[key])
    return limited


def _rows(files: Sequence[FileRows]) -> int:
    return sum(each.record_count for each in files)


def _share(length: int, rows: int, file_rows: int) -> int:
    """Return about how many bytes of a file belong to some of its rows."""
    return -(-length * min(rows, file_rows) // file_rows)


def _units(
    indexes: SegmentIndexes, partition: Partition, isolation: IsolationLevel, *, start: int, end: int
) -> Iterator[_Unit]:
    unit: _Unit | None = None
    segment_end: float = start
    for batch, file_rows in batches_between(indexes, partition, start, end):
        if batch.base_offset >= segment_end:
            segment_end = _segment_end(partition, batch.base_offset)
        last = min(end, batch.end_offset)
        if batch.file is None or not batch.record_count or not is_visible(batch, isolation):
            unit = unit._replace(end_offset=last) if unit else _Unit(batch.slot, last, "", 0, 0)
        else:
            rows = batch.record_count if batch.has_gaps else last - max(start, batch.base_offset)
            if unit is not None and unit.path == batch.file.path:
                rows += unit.rows
            elif unit is not None:
                yield unit
                unit = None
            slot = batch.slot if unit is None else unit.slot
            unit = _Unit(slot, last, batch.file.path, rows, _share(batch.file.length, rows, file_rows))
        if last >= segment_end:
            # A file never continues in the next segment. So end the unit here, and do not read the next index for it.
            yield unit
            unit = None
    if unit is not None:
        yield unit._replace(end_offset=end)


def _segment_end(partition: Partition, offset: int) -> float:
    """Return the end of the sealed segment that holds an offset; infinite for the active segment."""
    index = bisect_right(partition.sealed, offset, key=lambda segment: segment.end_offset)
    return partition.sealed[index].end_offset if index < len(partition.sealed) else math.inf
