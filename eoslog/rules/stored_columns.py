"""Columns of Arrow as Python values: an object per row is made from the columns, without a dict per row before it.

The columns come from ``stored_rows.stored_batches``, which has checked types and nulls. A field of a class that has no
column takes its default, and a column that no field is named after is passed over: another version wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import repeat
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord

LEAST_COMPRESSED_BYTES = 2048
"""Arrow data of fewer bytes is stored without compression: to start the codec for each column takes longer than all the
rest, and the file fits into one block of a disk either way."""

Columns = Mapping[str, Any]
Decode = Callable[[Any], Iterable[Any]]


def columns_of(rows: Any) -> Columns:
    """The columns of a record batch or of an array of structs, by name."""
    if isinstance(rows, pa.RecordBatch):
        return dict(zip(rows.schema.names, rows.columns, strict=True))
    if not isinstance(rows.type, pa.StructType):
        return {}
    return {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}


def plain(column: Any) -> list[Any]:
    """Numbers, strings and booleans."""
    # Arrow's own to_pylist makes an Arrow scalar per value. NumPy does not, but has no null among numbers.
    if pa.types.is_string(column.type) or (
        column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type))
    ):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist())


def objects(kind: Callable[..., Any], rows: Any, /, **decode: Decode) -> list[Any]:
    """An object per row.

    Args:
        kind: a named tuple or a dataclass; its fields name the columns.
        rows: a record batch, or an array of structs without nulls.
        decode: how the columns of these fields are decoded; all others are ``plain``.

    Raises:
        CorruptRecord: there is no column for a field without default.
    """
    count = len(rows)
    if not count:
        return []
    columns = columns_of(rows)
    values: list[Iterable[Any]] = []
    for name, default in _fields(kind):
        if name in columns:
            values.append(decode.get(name, plain)(columns[name]))
        elif default is MISSING:
            raise CorruptRecord(f"there is no column {name}")
        else:
            values.append(repeat(default, count))
    return list(map(kind, *values))


def lists(column: Any, decode: Decode = plain, collect: Callable[[list[Any]], Any] = list) -> list[Any]:
    """A collection per row of a column of lists without nulls.

    Args:
        decode: how the elements are decoded, those of all rows at once.
        collect: what is made of the elements of one row.
    """
    if not len(column):
        return []
    elements = list(decode(column.flatten()))
    found = []
    start = 0
    for length in plain(column.value_lengths()):
        if length:
            found.append(collect(elements[start : start + length]))
            start += length
        else:
            found.append(collect([]))
    return found


def optional(column: Any, decode: Decode) -> list[Any]:
    """As ``decode`` has it, with None where the column is null."""
    if not column.null_count:
        return list(decode(column))
    values = iter(decode(column.drop_null()))
    return [next(values) if is_valid else None for is_valid in column.is_valid().to_pylist()]


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a class in the order of its arguments, with their defaults; ``MISSING`` for none."""
    if hasattr(kind, "_field_defaults"):
        return tuple((name, kind._field_defaults.get(name, MISSING)) for name in kind._fields)
    return tuple((field.name, field.default) for field in fields(kind))
