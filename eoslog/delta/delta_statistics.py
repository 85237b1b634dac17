"""The statistics of a file as Delta's JSON, from the statistics of its batches in the log.

Engines use bounds to skip files. A table lists the columns that have bounds. Some readers then skip a file that lacks a
bound of such a column. So a file has bounds for all of these columns, or only its number of rows: Delta cannot express
times outside of the years 1 to 9999, and floats that are not finite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

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
_WITH_BOUNDS = ("integer", "float", "decimal", "text", "date", "timestamp")


def columns_with_bounds(stored: pa.Schema, most: int, *, has_records: bool) -> list[str]:
    """Return the columns whose bounds a table can have.

    Args:
        stored: the schema of the topic's data files.
        most: the number of columns of which batches have statistics.
        has_records: True for a topic of Kafka records, whose batches have bounds of ``timestamp`` only.
    """
    if has_records:
        found = ["timestamp"]
    else:
        fields = [field for field in stored if has_statistics(field.type)][:most]
        found = [field.name for field in fields if kind_of(field.type) in _WITH_BOUNDS]
    return [*found, OFFSET_DELTA_COLUMN.name]


def file_statistics(batches: Sequence[Batch], stored: pa.Schema, *, has_records: bool) -> str:
    """Return the statistics of a file.

    Args:
        batches: the batches of the file, all with rows.
        stored: the schema of the topic's data files.
        has_records: True for a topic of Kafka records, whose batches have bounds of ``timestamp`` only.
    """
    rows = sum(batch.record_count for batch in batches)
    # Compaction may have removed the row of a bound. The bounds stay correct, but may be wider than the values.
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
        field = stored.field(name)
        for texts, value, is_upper in ((least, bounds.least, False), (greatest, bounds.greatest, True)):
            text = None if value is None else _text(value, field.type, is_upper)
            if text is not None:
                texts.append(f"{json.dumps(name)}:{text}")
        counts = [counts.get(name, None if field.nullable else 0) for counts in null_counts]
        null_count = _null_count(counts, rows, bounds, is_tight=is_tight)
        if null_count is not None:
            nulls.append(f"{json.dumps(name)}:{null_count}")
    least.append(f"{json.dumps(OFFSET_DELTA_COLUMN.name)}:0")
    greatest.append(f"{json.dumps(OFFSET_DELTA_COLUMN.name)}:{batches[-1].end_offset - 1 - batches[0].base_offset}")
    nulls.append(f"{json.dumps(OFFSET_DELTA_COLUMN.name)}:0")
    parts = [f'"numRecords":{rows}', f'"minValues":{{{",".join(least)}}}', f'"maxValues":{{{",".join(greatest)}}}']
    parts += [f'"nullCount":{{{",".join(nulls)}}}', f'"tightBounds":{json.dumps(is_tight)}']
    return "{" + ",".join(parts) + "}"


def whole_statistics(text: str, columns: Collection[str]) -> str:
    """Return the statistics of a file if they are complete for these columns. Otherwise return the number of rows."""
    found = json.loads(text)
    rows, nulls = found["numRecords"], found["nullCount"]
    for name in columns:
        has_bounds = name in found["minValues"] and name in found["maxValues"]
        if name not in nulls or not (has_bounds or nulls[name] == rows):
            return f'{{"numRecords":{rows}}}'
    return text


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
