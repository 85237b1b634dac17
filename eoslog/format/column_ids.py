"""Column ids: the numbers by which engines find a topic's columns in its Parquet files.

Each column has an id, and so has each part of a column: a field of a struct, the element of a list, the key and the
value of a map. A topic's entry has the ids, in Arrow's metadata of its fields. Arrow writes them into Parquet files. An
id never changes, and no other column ever gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from eoslog.format.column_types import parts, with_parts
from eoslog.state.store_state import ColumnPath

ColumnIds = Mapping[ColumnPath, int]
"""The ids of columns and their parts, by path."""

OFFSET_DELTA_ID = 2_147_483_447
"""The id of the offset deltas. It is the largest id that Iceberg allows in a table; larger ones are reserved there."""

_METADATA_KEY = b"PARQUET:field_id"
_NUMBER = re.compile(rb"[1-9][0-9]{0,9}")
_NONE: ColumnIds = MappingProxyType({})


def assigned_ids(schema: pa.Schema, known: ColumnIds = _NONE) -> ColumnIds:
    """Return the ids of a schema. Columns and parts without a known id get the next ones, in their order."""
    next_id = max(known.values(), default=0) + 1
    found: dict[ColumnPath, int] = {}
    for path, _ in _paths(schema):
        found[path] = known.get(path, next_id)
        next_id = max(next_id, found[path] + 1)
    return found


def with_ids(schema: pa.Schema, ids: ColumnIds) -> pa.Schema:
    """Return a schema with the ids of all its columns and their parts, and no other metadata.

    Raises:
        KeyError: a column or a part has no id.
    """

    def numbered(field: pa.Field[Any], path: ColumnPath) -> pa.Field[Any]:
        below = [numbered(part, (*path, name)) for name, part in parts(field.type)]
        return field_with_id(field.with_type(with_parts(field.type, below)), ids[path])

    return pa.schema([numbered(field, (field.name,)) for field in schema])


def field_with_id(field: pa.Field[Any], column_id: int) -> pa.Field[Any]:
    """Return a field with an id, and no other metadata."""
    return field.with_metadata({_METADATA_KEY: str(column_id).encode()})


def id_of(field: pa.Field[Any]) -> int:
    """Return the id of a field that has one."""
    return int((field.metadata or {})[_METADATA_KEY])


def ids_of(schema: pa.Schema) -> ColumnIds:
    """Return the ids of a schema.

    Raises:
        ValueError: a column or a part of a column has no id, an invalid id, or the id of another one.
    """
    found: dict[ColumnPath, int] = {}
    for path, field in _paths(schema):
        text = (field.metadata or {}).get(_METADATA_KEY, b"")
        if not _NUMBER.fullmatch(text) or int(text) >= OFFSET_DELTA_ID:
            raise ValueError(f"column {'.'.join(path)!r} has no valid column id")
        found[path] = int(text)
    if len(set(found.values())) < len(found):
        raise ValueError("two columns have the same column id")
    return found


def _paths(schema: pa.Schema) -> Iterator[tuple[ColumnPath, pa.Field[Any]]]:
    """Yield the columns and their parts, each before its own parts."""

    def within(field: pa.Field[Any], path: ColumnPath) -> Iterator[tuple[ColumnPath, pa.Field[Any]]]:
        yield path, field
        for name, part in parts(field.type):
            yield from within(part, (*path, name))

    for field in schema:
        yield from within(field, (field.name,))
