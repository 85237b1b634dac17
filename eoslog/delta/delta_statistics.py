"""The statistics of a file as Delta's JSON.

Engines use bounds to skip files. A table lists the columns that have bounds. Some readers then skip a file that lacks a
bound of such a column. So a file has bounds for all of these columns, or only its number of rows: Delta cannot express
times outside of the years 1 to 9999, and floats that are not finite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from eoslog.format.column_types import kind_of
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.statistics import decimal_text, has_statistics
from eoslog.publication.file_statistics import FileStatistics

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


def encode_statistics(statistics: FileStatistics, stored: pa.Schema, listed: Collection[str]) -> str:
    """Return the statistics of a file, or only its number of rows if they are not complete for the listed columns.

    Args:
        stored: the schema of the topic's data files.
        listed: the columns for which the table's files have bounds.
    """
    found = statistics.columns
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    for name, column in found.items():
        data_type = (OFFSET_DELTA_COLUMN if name == OFFSET_DELTA_COLUMN.name else stored.field(name)).type
        for texts, value, is_upper in ((least, column.least, False), (greatest, column.greatest, True)):
            text = None if value is None else _text(value, data_type, is_upper)
            if text is not None:
                texts[name] = text
    nulls = {name: str(column.nulls) for name, column in found.items() if column.nulls is not None}
    for name in listed:
        has_bounds = name in least and name in greatest
        if name not in nulls or not (has_bounds or found[name].nulls == statistics.rows):
            return f'{{"numRecords":{statistics.rows}}}'
    parts = [f'"numRecords":{statistics.rows}', f'"minValues":{_object(least)}', f'"maxValues":{_object(greatest)}']
    parts += [f'"nullCount":{_object(nulls)}', f'"tightBounds":{json.dumps(statistics.is_tight)}']
    return "{" + ",".join(parts) + "}"


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"


def _text(value: Any, data_type: Any, is_upper: bool) -> str | None:
    """Return a bound as JSON; None if Delta cannot express it."""
    match kind_of(data_type):
        case "integer":
            return str(value)
        case "float":
            if value == 0:
                # Some engines order -0.0 before 0.0. eoslog takes them for equal, so a zero may stand for both.
                value = 0.0 if is_upper else -0.0
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
