"""What a native scan must know of each data file that Spark reads by itself: which rows to read, and where they stand.

A plan's slices become one ``PlannedFile`` for each file. Its rows are counted from 0 in the file, as Spark counts them
in ``_metadata.row_index``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.read.planner import FileSlice, PartitionPlan


class RowRange(NamedTuple):
    """Rows of a file that have something in common."""

    first_row: int
    end_row: int
    """Exclusive."""


class TimedRows(NamedTuple):
    """Rows of batches with one timestamp."""

    rows: RowRange
    timestamp: int
    """The batches' largest timestamp (ms)."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One data file of a plan, as Spark's Parquet reader must be told of it."""

    path: str
    """Within the store."""
    length: int
    partition: int
    first_offset: int | None
    """The offset of row 0, if that of each row follows from it; None if the file's own column ``_offset`` tells."""
    hidden_rows: bool
    """Whether rows of the file are not to be read."""
    visible: tuple[RowRange, ...]
    offsets: tuple[int, int] | None
    """If a batch with gaps is read only in part: the first offset to read, and the end (exclusive)."""
    times: tuple[TimedRows, ...]

    @property
    def name(self) -> str:
        """The name without directories; it holds 128 random bits."""
        return self.path.rsplit("/", 1)[-1]


def planned_files(plans: Iterable[PartitionPlan]) -> list[PlannedFile]:
    """The data files of a read of one topic, each once. Control rows are in no file."""
    found = []
    for plan in plans:
        by_path: dict[str, list[FileSlice]] = {}
        for piece in plan.slices:
            if piece.control is None:
                by_path.setdefault(piece.path, []).append(piece)
        found += [_planned_file(plan, slices) for slices in by_path.values()]
    return found


def _planned_file(plan: PartitionPlan, slices: Sequence[FileSlice]) -> PlannedFile:
    first_offsets = {None if each.has_gaps else each.base_offset - each.first_row for each in slices}
    visible = tuple(rows for rows, _ in _joined((_rows_of(each), 0) for each in slices))
    offsets = _cut(plan, slices)
    return PlannedFile(
        slices[0].path,
        slices[0].length,
        plan.partition,
        next(iter(first_offsets)) if len(first_offsets) == 1 else None,
        visible != (RowRange(0, slices[0].file_rows),) or offsets is not None,
        visible,
        offsets,
        tuple(TimedRows(*each) for each in _joined((_rows_of(each), each.timestamp) for each in slices)),
    )


def _rows_of(piece: FileSlice) -> RowRange:
    return RowRange(piece.first_row, piece.first_row + piece.record_count)


def _cut(plan: PartitionPlan, slices: Sequence[FileSlice]) -> tuple[int, int] | None:
    """The offsets to read, where the plan may begin or end within a batch with gaps. Other batches are cut by rows."""
    first, last = slices[0], slices[-1]
    if first.gaps_end_offset is not None and first.base_offset == plan.start_offset:
        return first.base_offset, _end_offset(last)
    if last.gaps_end_offset is not None and last.gaps_end_offset == plan.end_offset:
        return first.base_offset, last.gaps_end_offset
    return None


def _end_offset(piece: FileSlice) -> int:
    return piece.base_offset + piece.record_count if piece.gaps_end_offset is None else piece.gaps_end_offset


def _joined(pieces: Iterable[tuple[RowRange, int]]) -> list[tuple[RowRange, int]]:
    """Neighbouring rows with the same number as one."""
    joined: list[tuple[RowRange, int]] = []
    for rows, number in pieces:
        if joined and joined[-1] == (RowRange(joined[-1][0].first_row, rows.first_row), number):
            joined[-1] = (RowRange(joined[-1][0].first_row, rows.end_row), number)
        else:
            joined.append((rows, number))
    return joined
