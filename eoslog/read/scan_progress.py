"""How far a long read or write has come, for those who show it to somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eoslog.read.planner import FileSlice, PartitionPlan, slices_by_file


@dataclass(frozen=True, slots=True)
class Progress:
    """What is done, and of how much; a total is None where nobody knows it."""

    rows: int
    """Those that a predicate passes over are counted too."""
    total_rows: int | None
    """Of a read at most so many: a range may cut a compacted batch, whose rows are counted when it is read."""
    bytes: int
    """Of the files that are done."""
    total_bytes: int | None
    files: int
    total_files: int | None


def not_begun(plans: Sequence[PartitionPlan]) -> Progress:
    """The progress of a planned read before its first row."""
    files = [_length(pieces) for plan in plans for pieces in slices_by_file(plan.slices)]
    lengths = [length for length in files if length is not None]
    return Progress(0, sum(plan.record_count for plan in plans), 0, sum(lengths), 0, len(lengths))


def with_rows(progress: Progress, rows: int) -> Progress:
    """The progress after so many more rows."""
    return replace(progress, rows=progress.rows + rows)


def with_file(progress: Progress, pieces: Sequence[FileSlice]) -> Progress:
    """The progress after the file in which these neighbouring slices lie."""
    length = _length(pieces)
    if length is None:
        return progress
    return replace(progress, bytes=progress.bytes + length, files=progress.files + 1)


def _length(pieces: Sequence[FileSlice]) -> int | None:
    """The length of the file in which slices lie; None for control rows alone, which lie in none."""
    return max((piece.length for piece in pieces if piece.control is None), default=None)
