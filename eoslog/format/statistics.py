"""Statistics of a data file's columns: number of nulls, smallest and largest value, as text in an entry.

Parquet's writer has computed them already, so they cost almost nothing. Statistics that cannot be true are ignored, and
then readers read the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eoslog.format.column_types import column_type, kind_of, whole_numbers
from eoslog.state.entry_fields import LONGEST_STATISTICS

LONGEST_BOUND = 32
"""The largest number of characters of a bound. A longer text is cut."""

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_DECIMAL = re.compile(r"-?[0-9]{1,38}(?:\.([0-9]{1,38}))?", re.ASCII)

Value = bool | int | float | str
"""A column value in the form that comparisons use: dates in days since the epoch, times in their own unit since the
epoch or midnight, decimals as integers in units of their last digit, text as it is."""


class ColumnBounds(NamedTuple):
    """The bounds of a column's values in some rows."""

    has_nulls: bool = True
    """False if no value is null."""
    has_values: bool = True
    """False if all values are null."""
    least: Value | None = None
    """No value is smaller; None if unknown. NaN is the greatest of all values."""
    greatest: Value | None = None
    """No value is greater; None if unknown."""

    @classmethod
    def constant(cls, value: Value | None) -> ColumnBounds:
        """Return the bounds of rows that all have the same value."""
        return cls(value is None, value is not None, value, value)


UNKNOWN = ColumnBounds()
ALL_NULL = ColumnBounds.constant(None)


def order(value: Value) -> tuple[bool, Value]:
    """Return a sort key: NaN is greater than every other number and equal to itself, as in Spark."""
    if isinstance(value, float) and math.isnan(value):
        return True, 0.0
    return False, value


def has_statistics(data_type: pa.DataType) -> bool:
    """Return True if values of a stored type can have bounds."""
    found = column_type(data_type)
    return found is not None and found.value is not None


def has_nan(values: Any) -> bool:
    """Return True if a floating-point column holds NaN."""
    # A sum reads the values once. It is NaN if a value is, but also for infinities of both signs.
    total = pc.sum(values).as_py()
    return total is not None and math.isnan(total) and bool(pc.any(pc.is_nan(values)).as_py())


def encode_statistics(body: bytes, rows: pa.Table, most_columns: int) -> str | None:
    """Encode the statistics of a data file's first columns that can have them.

    Args:
        body: the content of the file.
        rows: the rows of the file.
        most_columns: the largest number of columns.

    Returns:
        The statistics as text, or None if there are none.
    """
    fields = [field for field in rows.schema if has_statistics(field.type)][:most_columns] if most_columns else []
    if not fields:
        return None
    footer = pq.read_metadata(pa.BufferReader(body))
    positions = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
    texts: list[str] = []
    length = 2
    for field in fields:
        index = positions.get(field.name)
        if index is None:
            continue
        found = _column(footer, index, field.type, rows.column(field.name))
        if found is None:
            continue
        text = f"{_json(field.name)}:{_json(found)}"
        if length + len(text) + 1 <= LONGEST_STATISTICS:
            texts.append(text)
            length += len(text) + 1
    return "{" + ",".join(texts) + "}" if texts else None


def decode_statistics(text: str | None, columns: Mapping[str, pa.DataType]) -> dict[str, ColumnBounds]:
    """Decode the bounds of these columns by their current types. Columns without valid statistics are left out."""
    written = _written(text)
    found = ((name, _bounds(written.get(name), data_type)) for name, data_type in columns.items())
    return {name: bounds for name, bounds in found if bounds is not None}


def may_hold_nan(text: str | None, floats: Mapping[str, pa.DataType]) -> frozenset[str]:
    """Return the columns that hold NaN, and the columns whose statistics do not exclude it.

    Args:
        floats: floating-point columns with their types.
    """
    known = decode_statistics(text, floats)
    return frozenset(name for name in floats if _may_be_nan(known.get(name, UNKNOWN)))


def _may_be_nan(bounds: ColumnBounds) -> bool:
    greatest = bounds.greatest
    return bounds.has_values and (greatest is None or (isinstance(greatest, float) and math.isnan(greatest)))


def decode_null_counts(text: str | None) -> dict[str, int]:
    """Decode the number of nulls of each column, when the rows were written."""
    return {
        name: found[0]
        for name, found in _written(text).items()
        if isinstance(found, list) and found and type(found[0]) is int and 0 <= found[0] < 2**63
    }


def _written(text: str | None) -> dict[str, object]:
    if text is None or len(text) > LONGEST_STATISTICS:
        return {}
    try:
        written = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {}
    return written if isinstance(written, dict) else {}


def row_group_bounds(chunk: pq.ColumnChunkMetaData, data_type: pa.DataType) -> ColumnBounds:
    """Return the bounds of a column in one row group of a data file. The caller has compared the footer with the log.

    Args:
        data_type: the type of the column in the file, with which its values are compared.
    """
    statistics: Any = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return UNKNOWN
    nulls, ends = statistics.null_count, [None, None]
    if nulls == chunk.num_values:
        return _bounds([nulls], data_type) or UNKNOWN
    if statistics.has_min_max:
        ends[0] = _lower(_physical(statistics.min_raw, data_type), data_type)
        if kind_of(data_type) != "float":  # Parquet's bounds ignore NaN, the greatest value.
            ends[1] = _upper(_physical(statistics.max_raw, data_type), data_type)
    return _bounds([nulls, *ends], data_type) or UNKNOWN


def _column(footer: pq.FileMetaData, index: int, data_type: pa.DataType, values: Any) -> list[Any] | None:
    """Return ``[nulls]`` if all values are null, else ``[nulls, least, greatest]``. An unknown bound is None."""
    nulls, ends, is_bounded = 0, [], True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        statistics: Any = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return _float_column(values, data_type) if kind_of(data_type) == "float" else None
        nulls += statistics.null_count
        if statistics.has_min_max:
            ends += [_physical(statistics.min_raw, data_type), _physical(statistics.max_raw, data_type)]
        elif statistics.null_count < chunk.num_values:
            is_bounded = False  # The values are too long, or all are NaN.
    if nulls == len(values):
        return [nulls]
    if not is_bounded or not ends:
        return [nulls, None, None]
    return [nulls, _lower(min(ends), data_type), _upper(max(ends), data_type)]


def _float_column(values: Any, data_type: pa.DataType) -> list[Any]:
    """Return the same as `_column`, but from the values: a file has no bounds of a column that holds NaN."""
    nulls = values.null_count
    if nulls == len(values):
        return [nulls]
    nans = pc.sum(pc.is_nan(values)).as_py()
    if nans == len(values) - nulls:
        return [nulls, "NaN", "NaN"]
    ends: Any = pc.min_max(values)  # The minimum and the maximum ignore NaN.
    least, greatest = (ends[name].as_py() + 0.0 for name in ("min", "max"))
    return [nulls, _number(least, data_type), "NaN" if nans else _number(greatest, data_type)]


def _physical(raw: Any, data_type: pa.DataType) -> Any:
    if kind_of(data_type) == "text":
        return raw  # The order of the bytes of UTF-8 is that of the characters.
    if isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw + 0.0 if isinstance(raw, float) else raw


def _lower(value: Any, data_type: pa.DataType) -> Any:
    if not isinstance(value, bytes):
        return _number(value, data_type)
    text = _text(value)
    return None if text is None else text[:LONGEST_BOUND]


def _upper(value: Any, data_type: pa.DataType) -> Any:
    if not isinstance(value, bytes):
        return _number(value, data_type)
    text = _text(value)
    return text if text is None or len(text) <= LONGEST_BOUND else successor(text[:LONGEST_BOUND])


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def successor(prefix: str) -> str | None:
    """Return the smallest text that is greater than all texts with the prefix; None if there is none."""
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop
        if point <= _LAST_CHARACTER:
            return prefix[: length - 1] + chr(point)
    return None


def _number(value: Any, data_type: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if kind_of(data_type) == "decimal":
        return decimal_text(value, data_type.scale)
    return value


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a decimal with all its digits, for example ``-0.50``."""
    return f"{Decimal(f'{unscaled}e-{scale}'):f}"


def _bounds(written: object, data_type: pa.DataType) -> ColumnBounds | None:
    if not isinstance(written, list) or not has_statistics(data_type) or len(written) not in (1, 3):
        return None
    nulls = written[0]
    if type(nulls) is not int or not 0 <= nulls < 2**63:
        return None
    if len(written) == 1:
        return ALL_NULL if nulls else None
    ends: list[Value | None] = []
    for each in written[1:]:
        value = None if each is None else _value(each, data_type)
        if value is None and each is not None:
            return None
        ends.append(value)
    least, greatest = ends
    if least is not None and greatest is not None and order(least) > order(greatest):
        return None
    return ColumnBounds(nulls > 0, True, least, greatest)


def _value(written: object, data_type: pa.DataType) -> Value | None:
    match kind_of(data_type):
        case "boolean":
            return written if isinstance(written, bool) else None
        case "text":
            return written if isinstance(written, str) and len(written) <= LONGEST_BOUND else None
        case "float":
            if isinstance(written, str):
                return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(written)
            return written if isinstance(written, float) and math.isfinite(written) else None
        case "decimal":
            written = _unscaled(written, data_type)
    return written if type(written) is int and written in whole_numbers(data_type) else None


def _unscaled(written: object, data_type: Any) -> int | None:
    found = _DECIMAL.fullmatch(written) if isinstance(written, str) else None
    if found is None or len(found[1] or "") > data_type.scale:
        return None
    return int(Decimal(f"{found[0]}e{data_type.scale}"))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _refuse(constant: str) -> Iterator[None]:
    raise ValueError(constant)
