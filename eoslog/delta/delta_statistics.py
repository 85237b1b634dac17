"""The statistics of a file as Delta's JSON, from the statistics of its batches in the log.

Engines skip files by them. Bounds that Delta cannot express are left out: those of booleans, bytes, times outside of
the years 1 to 9999, and floats that are not finite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.delta.actions import BASE_OFFSET_COLUMN, AddFile
from eoslog.format.column_types import kind_of
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.statistics import (
    ColumnBounds,
    Value,
    decimal_text,
    decode_null_counts,
    decode_statistics,
    has_statistics,
    order,
)
from eoslog.state.partition_state import Batch

_EPOCH = datetime(1970, 1, 1)


def file_statistics(batches: Sequence[Batch], stored: pa.Schema, *, has_records: bool) -> str:
    """Return the statistics of a file.

    Args:
        batches: the batches of the file, all with rows.
        stored: the schema of the topic's data files.
        has_records: True for a topic of Kafka records, whose batches have bounds of ``timestamp`` only.
    """
    rows = sum(batch.record_count for batch in batches)
    # Compaction may have removed the row of a bound. Then the bounds still hold, but no row needs to have them.
    is_tight = not any(batch.has_gaps for batch in batches)
    types = {field.name: field.type for field in stored if has_statistics(field.type)}
    if has_records:
        found = {"timestamp": _timestamps(batches)}
    else:
        each = [decode_statistics(batch.statistics, types) for batch in batches]
        found = {name: _joined([bounds[name] for bounds in each]) for name in types if all(name in b for b in each)}
    null_counts = [decode_null_counts(batch.statistics) for batch in batches]
    least, greatest, nulls = list[str](), list[str](), list[str]()
    for name, bounds in found.items():
        for texts, value, is_upper in ((least, bounds.least, False), (greatest, bounds.greatest, True)):
            text = None if value is None else _text(value, types.get(name, stored.field(name).type), is_upper)
            if text is not None:
                texts.append(f"{json.dumps(name)}:{text}")
        if is_tight and all(name in counts for counts in null_counts):
            nulls.append(f"{json.dumps(name)}:{sum(counts[name] for counts in null_counts)}")
    # The bounds of the offset deltas tell a publisher which offsets the file spans.
    least.append(f"{json.dumps(OFFSET_DELTA_COLUMN.name)}:0")
    greatest.append(f"{json.dumps(OFFSET_DELTA_COLUMN.name)}:{batches[-1].end_offset - 1 - batches[0].base_offset}")
    parts = [f'"numRecords":{rows}', f'"minValues":{{{",".join(least)}}}', f'"maxValues":{{{",".join(greatest)}}}']
    parts += [f'"nullCount":{{{",".join(nulls)}}}', f'"tightBounds":{json.dumps(is_tight)}']
    return "{" + ",".join(parts) + "}"


class FileSpan(NamedTuple):
    """The offsets and the number of rows of a file, as its entry in a Delta log states them."""

    base_offset: int
    end_offset: int
    rows: int


def span_of(file: AddFile) -> FileSpan | None:
    """Return the offsets and the number of rows of a file; None if the log does not state them."""
    try:
        statistics = json.loads(file.stats or "{}")
        base_offset = int(file.partition_values[BASE_OFFSET_COLUMN] or "")
        last = int(statistics["maxValues"][OFFSET_DELTA_COLUMN.name])
        return FileSpan(base_offset, base_offset + last + 1, int(statistics["numRecords"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


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


def _text(value: Any, data_type: Any, is_upper: bool) -> str | None:
    """Return a bound as JSON; None if Delta cannot express it."""
    match kind_of(data_type):
        case "integer":
            return str(value)
        case "float":
            return json.dumps(value) if math.isfinite(value) else None
        case "decimal":
            return decimal_text(value, data_type.scale)
        case "text":
            return json.dumps(value)
        case "date":
            return _dated(lambda: f'"{(date(1970, 1, 1) + timedelta(days=value)).isoformat()}"')
        case "timestamp":
            # Delta's timestamps in statistics have milliseconds. Bounds must not become narrower.
            in_ms = data_type.unit == "ms"
            whole = value if in_ms else -(-value // 1000) if is_upper else value // 1000
            zone = "Z" if data_type.tz else ""
            return _dated(
                lambda: f'"{(_EPOCH + timedelta(milliseconds=whole)).isoformat(timespec="milliseconds")}{zone}"'
            )
    return None


def _dated(text: Callable[[], str]) -> str | None:
    try:
        return text()
    except OverflowError:
        return None
