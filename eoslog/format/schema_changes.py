"""Changes of a topic's columns: nullable columns may be added after the others, and nullable fields within a column.

Readers return nulls for files without the new columns. No file is rewritten, and no reader or writer has to stop.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from eoslog.errors import InvalidEntry, SchemaMismatch, UnsupportedSchema
from eoslog.format.column_types import kind_of, parts, widens, with_parts
from eoslog.format.topic_schema_json import normalise_schema
from eoslog.state.store_state import ColumnPath


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
    _compare(pa.struct(list(_decoded(before))), pa.struct(list(_decoded(after))), (), added)
    return tuple(added)


def without_columns(schema: pa.Schema, paths: Collection[ColumnPath]) -> pa.Schema:
    """Return a schema without some columns and fields."""
    columns: Any = _without(pa.struct(list(schema)), (), paths)
    return pa.schema(columns)


def merged_schema(current: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return a topic's schema extended by new columns of some rows.

    New columns follow the existing ones. New fields of structs are added in the same way. A new column or field is
    nullable, because earlier rows do not have it. Existing columns do not change: the rows' type must cast to them
    without loss.

    Args:
        current: the topic's schema.
        rows: the schema of the rows. Columns of the topic may be missing.

    Raises:
        SchemaMismatch: a column of the rows exists in the topic with another type.
        UnsupportedSchema: a new column cannot be stored.
    """
    return normalise_schema(pa.schema(_merged(current, normalise_schema(rows), "")))


def holds_as_it_is(stored: Any, part: Any) -> bool:
    """Return True if a stored type equals another type, except for additional fields in its structs."""
    fields = dict(parts(stored))
    if not fields or kind_of(stored) != kind_of(part):
        return bool(stored == part)
    if kind_of(stored) == "map" and stored.key_field != part.key_field:
        return False
    return all(
        name in fields and fields[name].nullable == field.nullable and holds_as_it_is(fields[name].type, field.type)
        for name, field in parts(part)
    )


def _decoded(text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise InvalidEntry(f"a topic's schema cannot be read: {error}") from None


def _compare(before: pa.StructType, after: pa.StructType, path: ColumnPath, added: list[ColumnPath]) -> None:
    """Append the paths of the fields that a struct has after a change. The columns of a topic form a struct, too."""
    for old, new in zip(before, after, strict=False):
        if (old.name, old.nullable) != (new.name, new.nullable):
            raise UnsupportedSchema(f"column {_shown((*path, old.name))} may not be dropped, renamed or moved")
        _compare_types(old.type, new.type, (*path, old.name), added)
    if after.num_fields < before.num_fields:
        raise UnsupportedSchema(f"column {_shown((*path, before[after.num_fields].name))} may not be dropped")
    names = {field.name.lower() for field in before}
    for new in list(after)[before.num_fields :]:
        here = (*path, new.name)
        if not new.nullable:
            raise UnsupportedSchema(f"column {_shown(here)} is new and must be nullable, because earlier rows lack it")
        if new.name.lower() in names:
            raise UnsupportedSchema(
                f"column {_shown(here)} exists already. Spark does not distinguish upper and lower case"
            )
        names.add(new.name.lower())
        added.append(here)


def _compare_types(old: Any, new: Any, path: ColumnPath, added: list[ColumnPath]) -> None:
    if old == new:
        return
    if isinstance(old, pa.StructType) and isinstance(new, pa.StructType):
        _compare(old, new, path, added)
        return
    are_lists = isinstance(old, pa.ListType) and isinstance(new, pa.ListType)
    if are_lists or (isinstance(old, pa.MapType) and isinstance(new, pa.MapType) and old.key_field == new.key_field):
        (name, before), (_, after) = parts(old)[-1], parts(new)[-1]
        if (before.name, before.nullable) == (after.name, after.nullable):
            _compare_types(before.type, after.type, (*path, name), added)
            return
    raise UnsupportedSchema(f"column {_shown(path)} is {old}, and cannot become {new}")


def _without(data_type: pa.DataType, path: ColumnPath, paths: Collection[ColumnPath]) -> pa.DataType:
    is_struct = kind_of(data_type) == "struct"
    kept = [(name, field) for name, field in parts(data_type) if not (is_struct and (*path, name) in paths)]
    return with_parts(data_type, [field.with_type(_without(field.type, (*path, name), paths)) for name, field in kept])


def _shown(path: ColumnPath) -> str:
    return repr(".".join(path))


def _merged(current: Iterable[Any], rows: Iterable[Any], path: str) -> list[pa.Field[Any]]:
    found: dict[str, pa.Field[Any]] = {field.name: field for field in rows}
    fields: list[pa.Field[Any]] = []
    for field in current:
        row = found.pop(field.name, None)
        name = f"{path}{field.name}"
        fields.append(field if row is None else field.with_type(_merged_type(field.type, row.type, name)))
    for name, new in found.items():
        if _holds_nothing(new.type):
            raise UnsupportedSchema(
                f"column {path + name!r} is new and of the type {new.type}, which holds nothing but nulls: cast it to "
                "the type that it is to have, or leave it out"
            )
        fields.append(new.with_nullable(True))
    return fields


def _merged_type(current: Any, rows: Any, path: str) -> Any:
    kind = kind_of(current) if kind_of(current) == kind_of(rows) else None
    if kind == "struct":
        return pa.struct(_merged(current, rows, f"{path}."))
    if kind == "list" or (kind == "map" and widens(rows.key_type, current.key_type)):
        *key, (name, part) = parts(current)
        merged = _merged_type(part.type, parts(rows)[-1][1].type, f"{path}.{name}")
        return with_parts(current, [*(field for _, field in key), part.with_type(merged)])
    if not widens(rows, current):
        raise SchemaMismatch(
            f"column {path!r} is {current} in the topic and {rows} in the rows: the type of a column never changes; "
            "cast the rows, or give the column another name"
        )
    return current


def _holds_nothing(data_type: pa.DataType) -> bool:
    """Return True if a type is the null type or contains it. Such a column could never get another type."""
    return kind_of(data_type) == "null" or any(_holds_nothing(field.type) for _, field in parts(data_type))
