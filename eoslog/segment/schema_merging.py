"""Merging schemas: the columns of new rows join those of their topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eoslog.errors import SchemaMismatch, UnsupportedSchema
from eoslog.segment.column_types import widens
from eoslog.segment.schema_json import normalise_schema


def merged_schema(current: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """A topic's schema, and behind its columns those of some rows that it lacks.

    A field that a struct lacks joins it in the same way. What is new is nullable, for earlier rows do not have it; what
    is there stays as it is, and rows whose type can be cast to it without loss fit it.

    Args:
        current: the topic's.
        rows: of the rows; what the topic has may be missing.

    Raises:
        SchemaMismatch: a column of the rows is there already, and of another type.
        UnsupportedSchema: a new column cannot be stored.
    """
    return normalise_schema(pa.schema(_merged(current, normalise_schema(rows), "")))


def holds_as_it_is(stored: pa.DataType, part: pa.DataType) -> bool:
    """Whether one type is another, but for fields that its structs have beside those of the other."""
    if isinstance(stored, pa.StructType) and isinstance(part, pa.StructType):
        fields = {field.name: field for field in stored}
        return all(field.name in fields and _field_holds(fields[field.name], field) for field in part)
    if isinstance(stored, pa.ListType) and isinstance(part, pa.ListType):
        return _field_holds(stored.value_field, part.value_field)
    if isinstance(stored, pa.MapType) and isinstance(part, pa.MapType):
        return stored.key_field == part.key_field and _field_holds(stored.item_field, part.item_field)
    return stored == part


def _field_holds(stored: pa.Field[Any], part: pa.Field[Any]) -> bool:
    return stored.nullable == part.nullable and holds_as_it_is(stored.type, part.type)


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


def _merged_type(current: pa.DataType, rows: pa.DataType, path: str) -> pa.DataType:
    if isinstance(current, pa.StructType) and isinstance(rows, pa.StructType):
        return pa.struct(_merged(current, rows, f"{path}."))
    if isinstance(current, pa.ListType) and isinstance(rows, pa.ListType):
        element = current.value_field
        return pa.list_(element.with_type(_merged_type(element.type, rows.value_type, f"{path}.element")))
    if isinstance(current, pa.MapType) and isinstance(rows, pa.MapType) and widens(rows.key_type, current.key_type):
        key: Any = current.key_field
        value: Any = current.item_field
        merged: pa.DataType = pa.map_(key, value.with_type(_merged_type(value.type, rows.item_type, f"{path}.value")))
        return merged
    if not widens(rows, current):
        raise SchemaMismatch(
            f"column {path!r} is {current} in the topic and {rows} in the rows: the type of a column never changes; "
            "cast the rows, or give the column another name"
        )
    return current


def _holds_nothing(data_type: Any) -> bool:
    """Whether it is the type of nulls, or made of it: no other type could ever take its place."""
    if pa.types.is_null(data_type):
        return True
    return any(_holds_nothing(data_type.field(index).type) for index in range(data_type.num_fields))
