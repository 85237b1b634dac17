"""Packing the files of a read into Spark's partitions: by bytes, in the order of the log, never one for each file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from eoslog.read.planner import FileSlice, slices_by_file

LARGEST_BYTES = 48 << 20
_SMALLEST_BYTES = 1 << 20
_FILE_COST_BYTES = 256 << 10
"""What opening a file costs, as if it were so many bytes more."""
_DEFAULT_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Files of one partition of a topic: all that a task needs to read them, as plain values."""

    topic: str
    partition: int
    stored: str | None
    """The topic's schema as its entry holds it; None for Kafka records."""
    slices: tuple[FileSlice, ...]


def pack(pieces: Sequence[Piece], min_partitions: int | None = None) -> list[tuple[Piece, ...]]:
    """The pieces, cut between files, for one Spark partition each.

    Args:
        min_partitions: at least so many, if there are so many files. By default four, but none of less than 1 MiB.
    """
    files = [file for piece in pieces for file in _by_file(piece)]
    total = sum(_cost(file.slices) for file in files)
    if min_partitions is None:
        target = min(LARGEST_BYTES, max(_SMALLEST_BYTES, -(-total // _DEFAULT_PARTITIONS)))
    else:
        target = min(LARGEST_BYTES, max(1, total // min_partitions))
    packed: list[list[Piece]] = []
    filled = 0
    for index, file in enumerate(files):
        cost = _cost(file.slices)
        missing = (min_partitions or 1) - len(packed)
        if not packed or filled + cost > target or missing >= len(files) - index:
            packed.append([])
            filled = 0
        packed[-1].append(file)
        filled += cost
    return [_joined(part) for part in packed]


def _by_file(piece: Piece) -> Iterator[Piece]:
    for slices in slices_by_file(piece.slices):
        yield replace(piece, slices=tuple(slices))


def _cost(slices: Sequence[FileSlice]) -> int:
    """What one file's slices cost (bytes); control rows cost nothing."""
    in_file = [each for each in slices if each.control is None]
    if not in_file:
        return 0
    rows = sum(each.record_count for each in in_file)
    return in_file[0].length * rows // max(1, in_file[0].file_rows) + _FILE_COST_BYTES


def _joined(files: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbours of the same partition of a topic as one piece again."""
    return tuple(
        replace(pieces[0], slices=tuple(each for piece in pieces for each in piece.slices))
        for pieces in (list(group) for _, group in groupby(files, key=lambda piece: (piece.topic, piece.partition)))
    )
