"""The columns that no data file contains: the position of rows in the log, and their producer and transaction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eoslog.format.batch_columns import NO_CONTROL, Numbers
from eoslog.format.record_times import GREATEST_MS, LEAST_MS
from eoslog.read.columns import CREATE_TIME
from eoslog.read.file_rows import BatchRows
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Control
from eoslog.state.sequences import SEQUENCES

_LARGEST_CONSTANT_ROWS = 65_536
_MICROSECONDS = pa.timestamp("us", tz="UTC")


class PlacedRows(NamedTuple):
    """Rows with their batches and offsets. A control row is one row."""

    batches: BatchRows
    batch_of_row: Numbers
    """For each row, the number of its batch."""
    offsets: Numbers


def metadata_column(field: Any, topic: str, partition: int, rows: PlacedRows) -> Any:
    """Return a column that no file contains: the rows' position in the log, or their producer and transaction."""
    if field.name in ("_offset", "offset"):
        return pa.array(rows.offsets)
    if field.name == "_sequence":
        return _sequences(rows).cast(field.type)
    row_count = len(rows.offsets)
    constants = {"topic": topic, "partition": partition, "timestampType": CREATE_TIME}
    name = field.name.removeprefix("_")
    if name in constants:
        return _constant(pa.scalar(constants[name], field.type), row_count)
    values = getattr(rows.batches, "commit_time_ms" if name == "commit_timestamp" else name)
    if (values == values[0]).all():
        return _constant(_of_batches(name, values[:1]).cast(field.type)[0], row_count)
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
    """Return a constant column of the largest batch. It is cached, because building it costs as much as reading one."""
    return pa.repeat(value, _LARGEST_CONSTANT_ROWS)


def _sequences(rows: PlacedRows) -> Any:
    """Return each row's sequence. It grows with the offset, so removed rows count too."""
    base_sequences = rows.batches.base_sequence[rows.batch_of_row]
    base_offsets = rows.batches.base_offset[rows.batch_of_row]
    sequences = (base_sequences + rows.offsets - base_offsets) % SEQUENCES
    return pa.array(sequences, mask=base_sequences == NO_SEQUENCE)
