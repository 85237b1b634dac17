"""Merging schemas: the columns of new rows join those of their topic."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord, SchemaMismatch, UnsupportedSchema, quoted
from eoslog.format.column_types import LossyCast, cast_losslessly, check_names, check_type, normal_field, widens
from eoslog.format.declared_arrays import nulls
from eoslog.format.kafka_records import RECORDS_SCHEMA
from eoslog.format.text import check_text
from eoslog.state.store_state import Topic

RESERVED_NAMES = frozenset(
    {
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_transactional_id",
        "_producer_id",
        "_producer_epoch",
        "_sequence",
        "_control",
        "_slot",
        "_commit_timestamp",
    }
)
"""What a reader of the topic gives beside its columns."""


def encode_schema(schema: pa.Schema) -> str:
    """The schema as text for a topic's entry: normalised, without metadata, an Arrow IPC message in base64.

    Raises:
        UnsupportedSchema: if it cannot be stored.
    """
    return base64.b64encode(normalise_schema(schema).serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """The schema of a topic from its entry.

    Raises:
        CorruptRecord: if the text is not what `encode_schema` gives.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        normal = normalise_schema(schema)
    except (binascii.Error, pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        raise CorruptRecord(f"a topic's schema cannot be read: {error}") from error
    except UnsupportedSchema as error:
        raise CorruptRecord(f"a topic's schema could never have been stored: {error}") from error
    if not normal.equals(schema):
        raise CorruptRecord("a topic's schema is not in the form in which schemas are stored")
    return normal


def check_storable(schema: pa.Schema) -> None:
    """Refuse a schema that a topic cannot have.

    Raises:
        UnsupportedSchema: naming the column, and what to do.
    """
    if not schema.names:
        raise UnsupportedSchema("a topic has at least one column")
    for name in schema.names:
        if name.lower() in RESERVED_NAMES:
            raise UnsupportedSchema(
                f"column {quoted(name)}: this name is reserved for what a reader tells of a row; rename the column"
            )
    check_names(schema.names, "columns")
    for field in schema:
        check_type(field.type, field.name)


def normalise_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the form in which it is stored, without metadata.

    Raises:
        UnsupportedSchema: if it cannot be stored.
    """
    check_storable(schema)
    return pa.schema([normal_field(field, field.name) for field in schema])


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The rows with the schema's columns, in its order and its types. Only casts that lose nothing are made.

    Args:
        table: columns by name, in any order. A nullable column may be missing: it is null.
        schema: the topic's schema.

    Raises:
        SchemaMismatch: naming the column, and the types expected and found.
    """
    for name in table.schema.names:
        if schema.get_field_index(name) < 0:
            like = next((other for other in schema.names if other.lower() == name.lower()), None)
            hint = f"did you mean {like!r}?" if like else f"it has {', '.join(schema.names)}"
            raise SchemaMismatch(f"column {quoted(name)} ({table.schema.field(name).type}) is not in the topic; {hint}")
        if table.schema.names.count(name) > 1:
            raise SchemaMismatch(f"column {quoted(name)} is given more than once")
    columns: list[pa.ChunkedArray[Any]] = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            if not field.nullable:
                raise SchemaMismatch(f"column {field.name!r} is missing, but its {field.type} may not be null")
            columns.append(pa.chunked_array([nulls(table.num_rows, field.type)]))
        else:
            columns.append(_conform_column(table.column(index), field))
    return pa.Table.from_arrays(columns, schema=schema)


def _conform_column(found: pa.Array[Any] | pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    column = found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
    if column.null_count and not field.nullable:
        raise SchemaMismatch(f"column {field.name!r} has {column.null_count} nulls, but the topic allows none")
    if not widens(column.type, field.type):
        raise SchemaMismatch(f"column {field.name!r}: expected {field.type}, found {column.type}")
    try:
        conformed = cast_losslessly(column, field.type)
        check_text(conformed)
    except LossyCast as error:
        raise SchemaMismatch(f"column {field.name!r}: expected {field.type}, found {column.type}: {error}") from None
    except pa.ArrowInvalid:
        raise SchemaMismatch(
            f"column {field.name!r} holds text that is not UTF-8: write it as binary, or mend it first (in Spark "
            "make_valid_utf8 does that)"
        ) from None
    return conformed


def stored_schema(topic: Topic) -> pa.Schema:
    """The columns of a topic's data files."""
    if topic.topic_schema.arrow is None:
        return RECORDS_SCHEMA
    return decode_schema(topic.topic_schema.arrow)


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
