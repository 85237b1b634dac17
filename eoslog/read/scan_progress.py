"""The progress of a long read or write, for progress displays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eoslog.read.planner import FileSlice, PartitionPlan, slices_by_file


@dataclass(frozen=True, slots=True)
class Progress:
    """The finished work and its total. A total is None if it is unknown."""

    rows: int
    """The number of rows, including rows that a predicate filters out."""
    total_rows: int | None
    """For a read it is an upper bound: a range may cut a compacted batch, whose rows are counted only when read."""
    bytes: int
    """The total size of the finished files."""
    total_bytes: int | None
    files: int
    total_files: int | None


def not_begun(plans: Sequence[PartitionPlan]) -> Progress:
    """Return the progress of a planned read before its first row."""
    files = [_length(pieces) for plan in plans for pieces in slices_by_file(plan.slices)]
    lengths = [length for length in files if length is not None]
    return Progress(0, sum(plan.record_count for plan in plans), 0, sum(lengths), 0, len(lengths))


def with_rows(progress: Progress, rows: int) -> Progress:
    """Return the progress after this many more rows."""
    return replace(progress, rows=progress.rows + rows)


def with_file(progress: Progress, pieces: Sequence[FileSlice]) -> Progress:
    """Return the progress after the file of these neighboring slices."""
    length = _length(pieces)
    if length is None:
        return progress
    return replace(progress, bytes=progress.bytes + length, files=progress.files + 1)


def _length(pieces: Sequence[FileSlice]) -> int | None:
    """Return the size of the slices' file in bytes; None for control rows alone, which have no file."""
    return max((piece.length for piece in pieces if piece.control is None), default=None)
