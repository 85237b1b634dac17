"""The statistics of a published file, from the statistics of its batches in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.statistics import (
    ColumnBounds,
    Value,
    decode_null_counts,
    decode_statistics,
    has_statistics,
    order,
)
from eoslog.state.partition_state import Batch


class ColumnStatistics(NamedTuple):
    """The statistics of a column in one file."""

    least: Value | None
    """No value is smaller; None if unknown or if all values are null."""
    greatest: Value | None
    """No value is greater; None if unknown or if all values are null. NaN is the greatest of all values."""
    nulls: int | None
    """The number of nulls; None if unknown."""


class FileStatistics(NamedTuple):
    """The statistics of a file."""

    rows: int
    columns: Mapping[str, ColumnStatistics]
    """The statistics by column. The stored offset deltas count as a column."""
    is_tight: bool
    """False if compaction may have removed the row of a bound. Then bounds are correct, but may be too wide."""


def file_statistics(batches: Sequence[Batch], stored: pa.Schema, *, has_records: bool) -> FileStatistics:
    """Return the statistics of a file.

    Args:
        batches: the batches of the file, all with rows.
        stored: the schema of the topic's data files.
        has_records: True for a topic of Kafka records, whose batches have bounds of ``timestamp`` only.
    """
    rows = sum(batch.record_count for batch in batches)
    is_tight = not any(batch.has_gaps for batch in batches)
    types = {field.name: field.type for field in stored if has_statistics(field.type)}
    if has_records:
        found = {"timestamp": _timestamps(batches)}
    else:
        each = [decode_statistics(batch.statistics, types) for batch in batches]
        found = {name: _joined([bounds[name] for bounds in each]) for name in types if all(name in b for b in each)}
    null_counts = [decode_null_counts(batch.statistics) for batch in batches]
    columns: dict[str, ColumnStatistics] = {}
    for name, bounds in found.items():
        counts = [counts.get(name, None if stored.field(name).nullable else 0) for counts in null_counts]
        nulls = _null_count(counts, rows, bounds, is_tight=is_tight)
        columns[name] = ColumnStatistics(bounds.least, bounds.greatest, nulls)
    greatest = batches[-1].end_offset - 1 - batches[0].base_offset
    columns[OFFSET_DELTA_COLUMN.name] = ColumnStatistics(0, greatest, 0)
    return FileStatistics(rows, columns, is_tight)


def _null_count(counts: Sequence[int | None], rows: int, bounds: ColumnBounds, *, is_tight: bool) -> int | None:
    """Return the number of nulls in a column; None if it is not known.

    If compaction has removed rows, the number is exact only if it is 0 or the number of rows. Any other number means
    that there may be nulls and values.
    """
    if not bounds.has_values:
        return rows
    if None in counts:
        return None
    written = sum(count for count in counts if count is not None)
    if is_tight or written == 0:
        return written
    return min(written, rows - 1) or None


def _timestamps(batches: Sequence[Batch]) -> ColumnBounds:
    least = min(batch.min_timestamp for batch in batches)
    greatest = max(batch.max_timestamp for batch in batches)
    return ColumnBounds(False, True, least if least >= 0 else None, greatest if least >= 0 else None)


def _joined(bounds: Sequence[ColumnBounds]) -> ColumnBounds:
    """Return the bounds of the rows of several batches."""
    valued = [each for each in bounds if each.has_values]
    least = [each.least for each in valued]
    greatest = [each.greatest for each in valued]
    return ColumnBounds(
        any(each.has_nulls for each in bounds),
        bool(valued),
        min(_known(least), key=order) if valued and None not in least else None,
        max(_known(greatest), key=order) if valued and None not in greatest else None,
    )


def _known(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]
