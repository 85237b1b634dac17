"""Packing the files of a read into Spark's partitions: by bytes, in the order of the log, never one for each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eoslog.read.planner import FileSlice

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
    flat = [(piece, each) for piece in pieces for each in piece.slices if each.control is None]
    total = sum(_cost(each) for _, each in flat)
    if min_partitions is None:
        target = min(LARGEST_BYTES, max(_SMALLEST_BYTES, -(-total // _DEFAULT_PARTITIONS)))
    else:
        target = min(LARGEST_BYTES, max(1, total // min_partitions))
    packed: list[list[tuple[Piece, FileSlice]]] = []
    filled = 0
    for index, (piece, each) in enumerate(flat):
        missing = (min_partitions or 1) - len(packed)
        if not packed or filled + _cost(each) > target or missing >= len(flat) - index:
            packed.append([])
            filled = 0
        packed[-1].append((piece, each))
        filled += _cost(each)
    return [_joined(part) for part in packed]


def _cost(piece: FileSlice) -> int:
    return piece.length * piece.record_count // max(1, piece.file_rows) + _FILE_COST_BYTES


def _joined(part: Sequence[tuple[Piece, FileSlice]]) -> tuple[Piece, ...]:
    """Neighbours of the same partition of a topic as one piece again."""
    joined: list[Piece] = []
    for piece, each in part:
        if joined and (joined[-1].topic, joined[-1].partition) == (piece.topic, piece.partition):
            joined[-1] = replace(joined[-1], slices=(*joined[-1].slices, each))
        else:
            joined.append(replace(piece, slices=(each,)))
    return tuple(joined)
