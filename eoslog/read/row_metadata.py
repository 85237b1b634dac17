"""The columns that no data file contains: the position of rows in the log, and their producer and transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.format.record_times import shown_ms
from eoslog.read.columns import CREATE_TIME
from eoslog.read.planner import FileSlice
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Control
from eoslog.state.sequences import SEQUENCES

_LARGEST_CONSTANT_ROWS = 65_536
_MICROSECONDS = pa.timestamp("us", tz="UTC")


class SliceRows(NamedTuple):
    """The rows of one slice that go into a batch: rows ``begin`` to ``end`` (exclusive) of the decoded batch.

    A control row counts as one row. No decoded row belongs to it.
    """

    piece: FileSlice
    begin: int
    end: int
    first_offset: int
    offsets_in_file: npt.NDArray[np.int64] | None = None
    """The rows' offsets if compaction left gaps. Otherwise they follow ``first_offset``."""

    @property
    def row_count(self) -> int:
        return self.end - self.begin

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        if self.offsets_in_file is not None:
            return self.offsets_in_file
        return np.arange(self.first_offset, self.first_offset + self.row_count, dtype=np.int64)


def metadata_column(field: Any, topic: str, partition: int, parts: Sequence[SliceRows]) -> Any:
    """Return a column that no file contains: the rows' position in the log, or their producer and transaction."""
    if field.name in ("_offset", "offset"):
        return pa.array(np.concatenate([part.offsets for part in parts]))
    if field.name == "_sequence":
        return _sequences(parts).cast(field.type)
    values: list[Any]
    value_type = field.type
    pieces = [part.piece for part in parts]
    if field.name in ("_topic", "topic"):
        values = [topic] * len(parts)
    elif field.name in ("_partition", "partition"):
        values = [partition] * len(parts)
    elif field.name == "timestampType":
        values = [CREATE_TIME] * len(parts)
    elif field.name == "_transactional_id":
        values = [piece.origin.transactional_id for piece in pieces]
    elif field.name == "_producer_id":
        values = [piece.origin.producer_id for piece in pieces]
    elif field.name == "_producer_epoch":
        values = [piece.origin.producer_epoch for piece in pieces]
    elif field.name == "_control":
        values = [None if piece.control is None else Control(piece.control).name for piece in pieces]
    elif field.name == "_slot":
        values = [None if piece.origin.slot == NO_SLOT else piece.origin.slot for piece in pieces]
    else:
        value_type = _MICROSECONDS
        times = [piece.origin.commit_time_ms for piece in pieces]
        if field.name != "_commit_timestamp":
            times = [shown_ms(piece.timestamp) for piece in pieces]
        values = [None if field.name == "_commit_timestamp" and each == NO_TIME else each * 1000 for each in times]
    counts = _counts(parts)
    if all(value == values[0] for value in values):
        return _constant(values[0], value_type, field.type, sum(counts))
    each_part = pa.array(values, value_type).cast(field.type)
    return each_part.take(pa.array(np.repeat(np.arange(len(parts)), counts)))


def _constant(value: Any, value_type: pa.DataType, wanted: pa.DataType, rows: int) -> Any:
    if _LARGEST_CONSTANT_ROWS // 2 <= rows <= _LARGEST_CONSTANT_ROWS:
        return _large_constant(value, value_type, wanted).slice(0, rows)
    return _repeated(value, value_type, wanted, rows)


@lru_cache(maxsize=8)
def _large_constant(value: Any, value_type: pa.DataType, wanted: pa.DataType) -> Any:
    """Return a constant column of the largest batch. It is cached, because building it costs as much as reading one."""
    return _repeated(value, value_type, wanted, _LARGEST_CONSTANT_ROWS)


def _repeated(value: Any, value_type: pa.DataType, wanted: pa.DataType, rows: int) -> Any:
    scalar: Any = pa.scalar(value, value_type).cast(wanted)
    return pa.repeat(scalar, rows)


def _sequences(parts: Sequence[SliceRows]) -> Any:
    """Return each row's sequence. It grows with the offset, so removed rows count too."""
    sequences = [
        (part.piece.origin.base_sequence + part.offsets - part.piece.base_offset) % SEQUENCES for part in parts
    ]
    unknown = [part.piece.origin.base_sequence == NO_SEQUENCE for part in parts]
    return pa.array(np.concatenate(sequences), mask=np.repeat(unknown, _counts(parts)))


def _counts(parts: Sequence[SliceRows]) -> list[int]:
    return [part.row_count for part in parts]
