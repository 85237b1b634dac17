"""Changes of a topic's columns: nullable columns may be added after the others, and nullable fields within a column.

Readers return nulls for files without the new columns. No file is rewritten, and no reader or writer has to stop.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from eoslog.errors import InvalidEntry, UnsupportedSchema

ColumnPath = tuple[str, ...]
"""A column or a field within it: the names from the outside in, with ``element`` for lists and ``value`` for maps."""


def added_columns(before: str, after: str) -> tuple[ColumnPath, ...]:
    """Return the columns and fields that a schema adds to an earlier one.

    Args:
        before: the earlier schema, encoded as in an entry (base64 of an Arrow IPC schema).
        after: the later schema, encoded likewise.

    Raises:
        InvalidEntry: one of the texts encodes no schema.
        UnsupportedSchema: the change is more than an addition of nullable columns and fields.
    """
    added: list[ColumnPath] = []
    _compare(list(_decoded(before)), list(_decoded(after)), (), added)
    return tuple(added)


def without_columns(schema: pa.Schema, paths: Collection[ColumnPath]) -> pa.Schema:
    """Return a schema without some columns and fields."""
    return pa.schema(_without(list(schema), (), paths))


def _decoded(text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise InvalidEntry(f"a topic's schema cannot be read: {error}") from None


def _compare(
    before: Sequence[pa.Field[Any]], after: Sequence[pa.Field[Any]], path: ColumnPath, added: list[ColumnPath]
) -> None:
    for old, new in zip(before, after, strict=False):
        if (old.name, old.nullable) != (new.name, new.nullable):
            raise UnsupportedSchema(f"column {_shown((*path, old.name))} may not be dropped, renamed or moved")
        _compare_types(old.type, new.type, (*path, old.name), added)
    if len(after) < len(before):
        raise UnsupportedSchema(f"column {_shown((*path, before[len(after)].name))} may not be dropped")
    names = {field.name.lower() for field in before}
    for new in after[len(before) :]:
        here = (*path, new.name)
        if not new.nullable:
            raise UnsupportedSchema(f"column {_shown(here)} is new and must be nullable, because earlier rows lack it")
        if new.name.lower() in names:
            raise UnsupportedSchema(
                f"column {_shown(here)} exists already. Spark does not distinguish upper and lower case"
            )
        names.add(new.name.lower())
        added.append(here)


def _compare_types(old: pa.DataType, new: pa.DataType, path: ColumnPath, added: list[ColumnPath]) -> None:
    if old == new:
        return
    if isinstance(old, pa.StructType) and isinstance(new, pa.StructType):
        _compare(list(old), list(new), path, added)
    elif isinstance(old, pa.ListType) and isinstance(new, pa.ListType) and _same(old.value_field, new.value_field):
        _compare_types(old.value_type, new.value_type, (*path, "element"), added)
    elif (
        isinstance(old, pa.MapType)
        and isinstance(new, pa.MapType)
        and old.key_field == new.key_field
        and _same(old.item_field, new.item_field)
    ):
        _compare_types(old.item_type, new.item_type, (*path, "value"), added)
    else:
        raise UnsupportedSchema(f"column {_shown(path)} is {old}, and cannot become {new}")


def _same(old: pa.Field[Any], new: pa.Field[Any]) -> bool:
    return (old.name, old.nullable) == (new.name, new.nullable)


def _without(fields: Sequence[pa.Field[Any]], path: ColumnPath, paths: Collection[ColumnPath]) -> list[pa.Field[Any]]:
    return [
        field.with_type(_type_without(field.type, (*path, field.name), paths))
        for field in fields
        if (*path, field.name) not in paths
    ]


def _type_without(data_type: pa.DataType, path: ColumnPath, paths: Collection[ColumnPath]) -> pa.DataType:
    if isinstance(data_type, pa.StructType):
        return pa.struct(_without(list(data_type), path, paths))
    if isinstance(data_type, pa.ListType):
        element = data_type.value_field
        return pa.list_(element.with_type(_type_without(element.type, (*path, "element"), paths)))
    if isinstance(data_type, pa.MapType):
        value: Any = data_type.item_field
        key: Any = data_type.key_field
        shrunk: pa.DataType = pa.map_(key, value.with_type(_type_without(value.type, (*path, "value"), paths)))
        return shrunk
    return data_type


def _shown(path: ColumnPath) -> str:
    return repr(".".join(path))
