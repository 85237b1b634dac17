"""The columns that no data file contains: the position of rows in the log, and their producer and transaction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from eoslog.format.batch_columns import NO_CONTROL, Numbers
from eoslog.format.record_times import GREATEST_MS, LEAST_MS
from eoslog.read.columns import CREATE_TIME
from eoslog.read.file_rows import BatchRows
from eoslog.state.partition_state import NO_SLOT, NO_TIME, Control
from eoslog.state.sequences import SEQUENCES

_LARGEST_CONSTANT_ROWS = 65_536
_MICROSECONDS = pa.timestamp("us", tz="UTC")


class PositionedRows:
    """Rows with their batches and offsets. A control row is one row.

    Its arrays of rows are made when they are needed. Most reads of large files need none.
    """

    def __init__(
        self,
        batches: BatchRows,
        counts: Numbers,
        first_offsets: Numbers,
        *,
        batch_of_row: Numbers | None = None,
        offsets: Numbers | None = None,
    ) -> None:
        """
        Args:
            counts: the number of rows of each batch.
            first_offsets: the offset of the first row of each batch. The other rows have the next offsets.
            batch_of_row, offsets: the values of each row, if compaction left gaps.
        """
        self.batches = batches
        self.row_count = int(counts.sum()) if offsets is None else len(offsets)
        self._counts = counts
        self._first_offsets = first_offsets
        self._batch_of_row = batch_of_row
        self._offsets = offsets

    @property
    def batch_of_row(self) -> Numbers:
        """For each row, the number of its batch."""
        if self._batch_of_row is None:
            self._batch_of_row = np.repeat(np.arange(len(self._counts)), self._counts)
        return self._batch_of_row

    @property
    def offsets(self) -> Numbers:
        """The offset of each row."""
        if self._offsets is None:
            self._offsets = self.counted_from(self._first_offsets)
        return self._offsets

    def counted_from(self, firsts: Numbers) -> Numbers:
        """Return a number for each row. The numbers of a batch are consecutive and begin with ``firsts``."""
        if len(firsts) == 1:
            return np.arange(firsts[0], firsts[0] + self.row_count)
        before = np.cumsum(self._counts) - self._counts
        return np.arange(self.row_count) + (firsts - before)[self.batch_of_row]


def metadata_column(field: Any, topic: str, partition: int, rows: PositionedRows) -> Any:
    """Return a column that no file contains: the rows' position in the log, or their producer and transaction."""
    if field.name in ("_offset", "offset"):
        return pa.array(rows.offsets)
    if field.name == "_sequence":
        return _sequences(rows).cast(field.type)
    constants = {"topic": topic, "partition": partition, "timestampType": CREATE_TIME}
    name = field.name.removeprefix("_")
    if name in constants:
        return _constant(pa.scalar(constants[name], field.type), rows.row_count)
    values = getattr(rows.batches, "commit_time_ms" if name == "commit_timestamp" else name)
    if (values == values[0]).all():
        return _constant(_of_batches(name, values[:1]).cast(field.type)[0], rows.row_count)
    return _of_batches(name, values).cast(field.type).take(pa.array(rows.batch_of_row))


def _of_batches(name: str, values: Any) -> Any:
    """Return a column with the value of each batch.

    Args:
        values: the values as ``BatchRows`` has them.
    """
    if name == "transactional_id":
        return pa.array(values, pa.string())
    if name == "control":
        return pa.array([None if each == NO_CONTROL else Control(each).name for each in values.tolist()], pa.string())
    if name == "slot":
        return pa.array(values, mask=values == NO_SLOT)
    if name == "commit_timestamp":
        return pa.array(values * 1000, mask=values == NO_TIME).cast(_MICROSECONDS)
    if name == "timestamp":
        return pa.array(np.clip(values, LEAST_MS, GREATEST_MS) * 1000).cast(_MICROSECONDS)
    return pa.array(values)


def _constant(value: Any, rows: int) -> Any:
    if _LARGEST_CONSTANT_ROWS // 2 <= rows <= _LARGEST_CONSTANT_ROWS:
        return _large_constant(value).slice(0, rows)
    return pa.repeat(value, rows)


@lru_cache(maxsize=8)
def _large_constant(value: Any) -> Any:
    """Return a constant column of the largest batch. It is cached: building it costs as much as reading a batch."""
    return pa.repeat(value, _LARGEST_CONSTANT_ROWS)


def _sequences(rows: PositionedRows) -> Any:
    """Return each row's sequence. It grows with the offset, so removed rows count too."""
    base_sequences = rows.batches.base_sequence[rows.batch_of_row]
    base_offsets = rows.batches.base_offset[rows.batch_of_row]
    sequences = (base_sequences + rows.offsets - base_offsets) % SEQUENCES
    return pa.array(sequences, mask=base_sequences < 0)
