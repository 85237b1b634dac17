"""The rows that a read wants of one data file, and the rows of a whole plan, file by file.

A file of a sealed segment may hold many batches. So the batches of a file are columns, and no batch is an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.format.batch_columns import NO_CONTROL, BatchColumns, Numbers
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import NO_SEQUENCE, NO_TIME, Batch, Outcome
from eoslog.state.sequences import SEQUENCES

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BatchRows:
    """Batches and control rows as columns, in the order of their offsets. Each has one value in every column."""

    first_row: Numbers
    """Number of the batch's first row in the file, counted from 0."""
    record_count: Numbers
    """Number of rows. With gaps it is an upper bound: all rows of the batch count, not only the rows in range."""
    base_offset: Numbers
    """The first offset of the range. Without gaps it is the offset of ``first_row``."""
    end_offset: Numbers
    """The end of the range (exclusive)."""
    has_gaps: Flags
    """True if compaction left gaps. Then the file contains the offsets, and it may have rows outside of the range."""
    control: Numbers
    """The type of a control row by Kafka's numbers: 0 ABORT, 1 COMMIT; ``NO_CONTROL`` for a batch."""
    timestamp: Numbers
    """The batch's largest timestamp (ms)."""
    transactional_id: npt.NDArray[np.object_]
    producer_id: Numbers
    producer_epoch: Numbers
    """The producer's epoch. A control row has the epoch of its marker: one more than the rows' epoch (KIP-890)."""
    base_sequence: Numbers
    """The sequence of the row at ``base_offset``; ``NO_SEQUENCE`` for staged rows and control rows."""
    slot: Numbers
    """The slot that ended the transaction; ``NO_SLOT`` while it is open. For rows without a transaction, the slot that
    gave them their offsets."""
    commit_time_ms: Numbers
    """The log's time at ``slot``; ``NO_TIME`` unless the rows are committed."""

    def __len__(self) -> int:
        return len(self.first_row)

    def taken(self, rows: slice | Numbers | Flags) -> BatchRows:
        """Return some of the batches: a range, the batches with these numbers, or the batches whose flag is set."""
        return BatchRows(**{name: getattr(self, name)[rows] for name in self.__slots__})

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark passes plans of many small files to tasks. One array is smaller and faster to pickle than thirteen.
        numbers = np.array([getattr(self, name) for name in _NUMBERS], np.int64)
        return _unpickled_batches, (numbers.tobytes(), self.transactional_id.tolist())

    @property
    def is_in_file(self) -> Flags:
        """True for each batch, and False for each control row."""
        is_in_file: Flags = self.control == NO_CONTROL
        return is_in_file


_NUMBERS = tuple(field.name for field in fields(BatchRows) if field.name != "transactional_id")


def _unpickled_batches(numbers: bytes, transactional_ids: list[str | None]) -> BatchRows:
    columns: dict[str, Any] = dict(
        zip(_NUMBERS, np.frombuffer(numbers, np.int64).reshape(len(_NUMBERS), -1), strict=True)
    )
    columns["has_gaps"] = columns["has_gaps"].astype(np.bool_)
    return BatchRows(transactional_id=np.array(transactional_ids, np.object_), **columns)


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """The rows that a read wants of one data file, with the control rows among them.

    Control rows lie in no file. They belong to the file before them, or to the first one.
    """

    batches: BatchRows
    file: FileReference | None = None
    """The file; None if there are only control rows."""
    record_slot: int | None = None
    """The slot whose record has the content of the file; None if no record has it."""
    file_rows: int = 0
    """Number of rows of the whole file."""
    file_base_offset: int = 0
    """The offset from which the file's stored offset deltas count: the base offset of its first batch."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain values: a pickled model also has its own bookkeeping, which is larger than the values of a small file.
        file = None if self.file is None else {name: value for name, value in self.file if value is not None}
        return _unpickled_rows, (self.batches, file, self.record_slot, self.file_rows, self.file_base_offset)

    @property
    def record_count(self) -> int:
        """Number of rows, with control rows. With gaps it is an upper bound."""
        return int(self.batches.record_count.sum())

    @property
    def has_gaps(self) -> bool:
        """True if compaction left gaps in a batch, so that the file contains the rows' offsets."""
        return bool(self.batches.has_gaps.any())

    @property
    def in_file(self) -> BatchRows:
        """The batches, without control rows."""
        is_in_file = self.batches.is_in_file
        return self.batches if is_in_file.all() else self.batches.taken(is_in_file)

    @property
    def in_file_count(self) -> int:
        """Number of rows, without control rows. With gaps it is an upper bound."""
        return int(self.in_file.record_count.sum())

    @property
    def paths(self) -> Iterator[str]:
        """For each batch, the path of its file; empty for a control row."""
        path = "" if self.file is None else self.file.path
        return (path if control == NO_CONTROL else "" for control in self.batches.control.tolist())

    def only(self, batches: BatchRows) -> FileRows:
        """Return the same file with only these batches."""
        return FileRows(batches, self.file, self.record_slot, self.file_rows, self.file_base_offset)

    def by_slot(self) -> Iterator[tuple[int, FileRows]]:
        """Divide the rows by the slot that ended their transaction. Yield the slots in their order, with their rows."""
        if len(self.batches) == 1:
            yield int(self.batches.slot[0]), self
            return
        batches = self.batches.taken(np.argsort(self.batches.slot, kind="stable"))
        slots, firsts = np.unique(batches.slot, return_index=True)
        for slot, first, end in zip(slots.tolist(), firsts, [*firsts[1:], len(batches)], strict=True):
            yield slot, self.only(batches.taken(slice(first, end)))

    def cut(self, rows: int) -> tuple[FileRows, FileRows]:
        """Split after the first ``rows`` rows.

        Both parts of a batch with gaps keep its whole range of offsets, because only the file knows the offset at the
        split.
        """
        ends = np.cumsum(self.batches.record_count)
        index = int(np.searchsorted(ends, rows, side="right"))
        inside = rows - (int(ends[index - 1]) if index else 0)
        if not inside:
            return self.only(self.batches.taken(slice(index))), self.only(self.batches.taken(slice(index, None)))
        begun = self.batches.taken(np.arange(index + 1))
        rest = self.batches.taken(np.arange(index, len(self.batches)))
        begun.record_count[-1] = inside
        rest.record_count[0] -= inside
        rest.first_row[0] += inside
        if not rest.has_gaps[0]:
            begun.end_offset[-1] = rest.base_offset[0] = rest.base_offset[0] + inside
            rest.base_sequence[:1] = _sequence_after(rest.base_sequence[:1], inside)
        return self.only(begun), self.only(rest)

    def first(self, rows: int) -> tuple[FileRows, int]:
        """Return at most the first ``rows`` rows, and the number of rows that are still missing.

        Batches with gaps before the last row are included, but not counted: only the file tells how many rows they
        have.
        """
        counted = np.cumsum(np.where(self.batches.has_gaps, 0, self.batches.record_count))
        if not len(counted) or counted[-1] < rows:
            return self, rows - (int(counted[-1]) if len(counted) else 0)
        index = int(np.searchsorted(counted, rows))
        surplus = int(counted[index]) - rows
        return self.cut(int(self.batches.record_count[: index + 1].sum()) - surplus)[0], 0


def _unpickled_rows(batches: BatchRows, file: dict[str, Any] | None, *others: Any) -> FileRows:
    return FileRows(batches, None if file is None else FileReference.model_construct(**file), *others)


def _in_range(whole: BatchRows, start: int, end: int) -> BatchRows:
    """Cut whole batches to the offsets from ``start`` to ``end`` (exclusive). Each batch overlaps this range."""
    base_offset, end_offset = np.maximum(whole.base_offset, start), np.minimum(whole.end_offset, end)
    skipped = base_offset - whole.base_offset
    return replace(
        whole,
        first_row=np.where(whole.has_gaps, whole.first_row, whole.first_row + skipped),
        record_count=np.where(whole.has_gaps, whole.record_count, end_offset - base_offset),
        base_offset=base_offset,
        end_offset=end_offset,
        base_sequence=_sequence_after(whole.base_sequence, skipped),
    )


def _sequence_after(base_sequence: Numbers, offsets: Any) -> Numbers:
    """Return the sequences that follow after some offsets. An unknown sequence stays unknown."""
    return np.where(base_sequence < 0, NO_SEQUENCE, (base_sequence + offsets) % SEQUENCES)


class SegmentRows:
    """Rows of a sealed segment. It makes the arrays of its files on iteration, so a plan of many segments is cheap."""

    def __init__(self, columns: BatchColumns, rows: Numbers, start: int, end: int) -> None:
        """
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

    def __bool__(self) -> bool:
        return len(self._rows) > 0

    def __iter__(self) -> Iterator[FileRows]:
        if not self:
            return
        columns, rows = self._columns, self._rows
        batches = _in_range(self._batches(), self._start, self._end)
        in_file = np.flatnonzero(columns.length[rows] >= 0)
        if not len(in_file):
            yield FileRows(batches)
            return
        numbers = columns.file_number(rows[in_file])
        firsts = in_file[np.append(True, numbers[1:] != numbers[:-1])]
        files = rows[firsts]
        counts, base_offsets = columns.file_rows[files].tolist(), columns.file_base_offset[files].tolist()
        bounds = [0, *firsts[1:].tolist(), len(rows)]
        for number, file in enumerate(columns.files(files)):
            of_file = batches.taken(slice(bounds[number], bounds[number + 1]))
            yield FileRows(of_file, file, None, counts[number], base_offsets[number])

    def _batches(self) -> BatchRows:
        columns, rows = self._columns, self._rows
        is_committed = columns.is_committed[rows]
        return BatchRows(
            first_row=columns.first_row[rows],
            record_count=columns.record_count[rows],
            base_offset=columns.base_offset[rows],
            end_offset=columns.end_offset[rows],
            has_gaps=columns.record_count[rows] <= columns.last_offset_delta[rows],
            control=columns.control[rows],
            timestamp=columns.max_timestamp[rows],
            transactional_id=columns.transactional_id.take(pa.array(rows)).to_numpy(zero_copy_only=False),
            producer_id=columns.producer_id[rows],
            producer_epoch=columns.producer_epoch[rows],
            base_sequence=columns.base_sequence[rows],
            slot=columns.end_slot[rows],
            commit_time_ms=np.where(is_committed, columns.end_time_ms[rows], NO_TIME),
        )

    @property
    def record_count(self) -> int:
        """Number of rows."""
        columns, rows = self._columns, self._rows
        counts = columns.record_count[rows]
        spans = np.minimum(columns.end_offset[rows], self._end) - np.maximum(columns.base_offset[rows], self._start)
        has_gaps = counts <= columns.last_offset_delta[rows]
        return int(np.where(has_gaps, counts, spans).sum())

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each batch's file and the statistics of the batch; for a control row, "" and None."""
        rows = pa.array(self._rows)
        paths, statistics = (each.take(rows).to_pylist() for each in (self._columns.path, self._columns.statistics))
        return zip((path or "" for path in paths), statistics, strict=True)

    def file_lengths(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, by path."""
        rows = self._rows[self._columns.length[self._rows] >= 0]
        return dict(
            zip(self._columns.path.take(pa.array(rows)).to_pylist(), self._columns.length[rows].tolist(), strict=True)
        )


class ListedRows:
    """Rows that are divided by file already."""

    def __init__(self, files: Iterable[FileRows], statistics: Sequence[str | None] = ()) -> None:
        """
        Args:
            statistics: the statistics of each batch and control row; empty if they are unknown.
        """
        self._files = tuple(files)
        self._statistics = statistics

    def __bool__(self) -> bool:
        return bool(self._files)

    def __iter__(self) -> Iterator[FileRows]:
        return iter(self._files)

    @property
    def record_count(self) -> int:
        """Number of rows."""
        return sum(each.record_count for each in self._files)

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each batch's file and the statistics of the batch; for a control row, "" and None."""
        paths = (path for each in self._files for path in each.paths)
        return zip(paths, self._statistics or repeat(None), strict=False)

    def file_lengths(self) -> dict[str, int]:
        """Return the sizes of the files in bytes, by path."""
        return {each.file.path: each.file.length for each in self._files if each.file is not None}


def active_rows(batches: Iterable[Batch], start: int, end: int) -> ListedRows:
    """Return rows of the active segment, whose batches are in memory, and few.

    Args:
        batches: batches with rows that overlap the range.
        start: the first offset of the range (inclusive).
        end: the end of the range (exclusive).
    """
    found = tuple(batches)
    together: list[list[Batch]] = []
    path = ""
    for batch in found:
        is_of_another_file = batch.file is not None and batch.file.path != path
        if not together or (path and is_of_another_file):
            together.append([])
        together[-1].append(batch)
        if batch.file is not None:
            path = batch.file.path
    return ListedRows((_of_file(group, start, end) for group in together), [each.statistics for each in found])


def _of_file(group: Sequence[Batch], start: int, end: int) -> FileRows:
    batches = _in_range(_whole(group), start, end)
    first = next((each for each in group if each.file is not None), None)
    if first is None or first.file is None:
        return FileRows(batches)
    rows = sum(each.record_count for each in group if each.file is not None)
    return FileRows(batches, first.file, first.slot if first.file.in_record else None, rows, first.base_offset)


def _whole(batches: Sequence[Batch]) -> BatchRows:
    def numbers(values: Iterable[int]) -> Numbers:
        return np.array(list(values), np.int64)

    return BatchRows(
        first_row=numbers(each.first_row for each in batches),
        record_count=numbers(each.record_count for each in batches),
        base_offset=numbers(each.base_offset for each in batches),
        end_offset=numbers(each.end_offset for each in batches),
        has_gaps=np.array([each.has_gaps for each in batches]),
        control=numbers(NO_CONTROL if each.control is None else each.control.value for each in batches),
        timestamp=numbers(each.max_timestamp for each in batches),
        transactional_id=np.array([each.transactional_id for each in batches], np.object_),
        producer_id=numbers(each.producer_id for each in batches),
        producer_epoch=numbers(each.producer_epoch for each in batches),
        base_sequence=numbers(each.base_sequence for each in batches),
        slot=numbers(each.end_slot for each in batches),
        commit_time_ms=numbers(each.end_time_ms if each.outcome is Outcome.COMMITTED else NO_TIME for each in batches),
    )


class PlannedRows:
    """The rows of a plan, file by file, in the order of their offsets: first sealed segments, then the active one."""

    def __init__(self, parts: Iterable[SegmentRows | ListedRows]) -> None:
        self._parts = [part for part in parts if part]

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[FileRows]:
        for part in self._parts:
            yield from part

    @property
    def record_count(self) -> int:
        """Number of rows."""
        return sum(part.record_count for part in self._parts)

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes. Each file counts once."""
        lengths: dict[str, int] = {}
        for part in self._parts:
            lengths |= part.file_lengths()
        return sum(lengths.values())

    def statistics(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each batch's file, and the statistics of the batch: None if they are unknown."""
        for part in self._parts:
            yield from part.statistics()
