"""Schemas of topics: their encoding in entries, the conversion of rows to them, and their changes.

Nullable columns may be added after the others, and nullable fields within a column. Readers return nulls for files
without the new columns. No file is rewritten, and no reader or writer has to stop.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord, InvalidEntry, SchemaMismatch, UnsupportedSchema
from eoslog.format.column_casts import LossyCast, cast_losslessly, problem_of
from eoslog.format.column_ids import OFFSET_DELTA_ID, ColumnIds, assigned_ids, field_with_id, ids_of, with_ids
from eoslog.format.column_types import (
    check_names,
    check_text,
    check_type,
    kind_of,
    nulls,
    parts,
    stored_field,
    widens,
    with_parts,
)
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.state.store_state import ColumnPath, Topic
from eoslog.wording import quoted

HEADERS_TYPE: pa.DataType = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
    )
)

RECORDS_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
)
"""The columns of Kafka records. A null value is a tombstone, as in Kafka. Null headers mean no headers."""


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
        "_offset_delta",
        "_base_offset",
    }
)
"""The names of the metadata columns of readers, of data files and of published tables."""


def encode_schema(schema: pa.Schema, before: str | None = None) -> str:
    """Encode a schema for a topic's entry: normalized, with column ids, as an Arrow IPC message in base64.

    Args:
        schema: the columns. Their metadata is ignored.
        before: the topic's encoded schema before columns were added. Its columns keep their ids. None for a new topic.

    Raises:
        UnsupportedSchema: the schema cannot be stored.
    """
    normal = normalize_schema(schema)
    ids = assigned_ids(normal) if before is None else assigned_ids(normal, ids_of(_decoded(before)))
    return base64.b64encode(with_ids(normal, ids).serialize().to_pybytes()).decode("ascii")


@lru_cache(maxsize=64)
def decode_schema(text: str) -> pa.Schema:
    """Decode the schema of a topic from its entry, without the column ids.

    Raises:
        CorruptRecord: the text is not a result of `encode_schema`.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        normal = normalize_schema(schema)
        numbered = with_ids(normal, ids_of(schema))
    except (binascii.Error, pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        raise CorruptRecord(f"a topic's schema cannot be read: {error}") from error
    except UnsupportedSchema as error:
        raise CorruptRecord(f"a topic's schema could never have been stored: {error}") from error
    if not numbered.equals(schema, check_metadata=True):
        raise CorruptRecord("a topic's schema is not in the form in which schemas are stored")
    return normal


def check_storable(schema: pa.Schema) -> None:
    """Refuse a schema that a topic cannot have.

    Raises:
        UnsupportedSchema: the message contains the column and what to do.
    """
    if not schema.names:
        raise UnsupportedSchema("a topic has at least one column")
    for name in schema.names:
        if name.lower() in RESERVED_NAMES:
            raise UnsupportedSchema(
                f"column {quoted(name)}: this name is reserved for a column that a read adds. Rename the column"
            )
    check_names(schema.names, "columns")
    for field in schema:
        check_type(field.type, field.name)


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Return the stored form of a schema, without metadata.

    Raises:
        UnsupportedSchema: the schema cannot be stored.
    """
    check_storable(schema)
    return pa.schema([stored_field(field, field.name) for field in schema])


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns, order and types of a schema. Only lossless casts are made.

    Args:
        table: the rows. Columns are matched by name and may be in any order. A missing nullable column becomes null.
        schema: the topic's schema.

    Raises:
        SchemaMismatch: the message contains the column, the expected type and the found type.
    """
    for name in table.schema.names:
        if schema.get_field_index(name) < 0:
            like = next((other for other in schema.names if other.lower() == name.lower()), None)
            hint = f"Did you mean {like!r}?" if like else f"Its columns are: {', '.join(schema.names)}"
            raise SchemaMismatch(f"column {quoted(name)} ({table.schema.field(name).type}) is not in the topic. {hint}")
        if table.schema.names.count(name) > 1:
            raise SchemaMismatch(f"column {quoted(name)} is given more than once")
    columns: list[pa.ChunkedArray[Any]] = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            if not field.nullable:
                raise SchemaMismatch(
                    f"column {field.name!r} is missing, but its {field.type} may not be null: add it to the rows"
                )
            columns.append(pa.chunked_array([nulls(table.num_rows, field.type)]))
        else:
            columns.append(_conform_column(table.column(index), field))
    return pa.Table.from_arrays(columns, schema=schema)


def _conform_column(found: pa.Array[Any] | pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    column = found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
    if column.null_count and not field.nullable:
        raise SchemaMismatch(
            f"column {field.name!r} has {column.null_count} nulls, but the topic allows none: fill them, or drop these "
            "rows"
        )
    found_type, expected = column.type, field.type
    has_type = found_type == expected
    if not has_type and not widens(found_type, expected):
        case = ""
        if str(found_type).lower() == str(expected).lower():
            case = ". The names of the fields differ in upper and lower case: give the topic's"
        raise SchemaMismatch(
            f"column {field.name!r}: expected {expected}, found {found_type}{case}. Cast it to {expected} first"
        )
    try:
        if has_type:
            check_text(column)
        return cast_losslessly(column, expected)
    except LossyCast as error:
        raise SchemaMismatch(f"column {field.name!r}: expected {expected}, found {found_type}: {error}") from None
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {field.name!r} {problem_of(error)}") from None


def stored_schema(topic: Topic) -> pa.Schema:
    """Return the columns of a topic's data files, without the column ids and the offset deltas."""
    if topic.topic_schema.arrow is None:
        return RECORDS_SCHEMA
    return decode_schema(topic.topic_schema.arrow)


@lru_cache(maxsize=64)
def file_schema(columns: pa.Schema, arrow: str | None) -> pa.Schema:
    """Return the schema of a new data file: its columns and the offset deltas.

    It has the column ids if the topic has all the columns. A job that adds columns writes its files before the commit
    assigns the ids of these columns. Such a file has no ids at all, so engines take its columns by name. If only some
    columns had ids, an engine would take the others for missing.

    Args:
        columns: the columns of the rows, in stored form.
        arrow: the topic's encoded schema; None for Kafka records.
    """
    known = assigned_ids(RECORDS_SCHEMA) if arrow is None else ids_of(_decoded(arrow))
    try:
        numbered = with_ids(columns, known)
    except KeyError:
        return columns.append(OFFSET_DELTA_COLUMN)
    return numbered.append(field_with_id(OFFSET_DELTA_COLUMN, OFFSET_DELTA_ID))


def added_columns(before: str, after: str) -> tuple[ColumnPath, ...]:
    """Return the columns and fields that a schema adds to an earlier one.

    Args:
        before: the earlier schema, encoded as in an entry (base64 of an Arrow IPC schema).
        after: the later schema, encoded likewise.

    Raises:
        InvalidEntry: one of the texts encodes no schema.
        UnsupportedSchema: the change is more than an addition of nullable columns and fields, or column ids change.
    """
    added: list[ColumnPath] = []
    old, new = _decoded(before), _decoded(after)
    _compare(pa.struct(list(old)), pa.struct(list(new)), (), added)
    try:
        _check_ids(ids_of(old), ids_of(new))
    except ValueError as error:
        raise InvalidEntry(f"a topic's schema cannot be read: {error}") from None
    return tuple(added)


def _check_ids(before: ColumnIds, after: ColumnIds) -> None:
    largest = max(before.values())
    for path, column_id in after.items():
        if path not in before and column_id <= largest:
            raise UnsupportedSchema(f"column {_shown(path)} is new and must have a column id greater than {largest}")
        if before.get(path, column_id) != column_id:
            raise UnsupportedSchema(f"column {_shown(path)} has the column id {before[path]}, which may not change")


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
    return normalize_schema(pa.schema(_merged(current, normalize_schema(rows), "")))


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
            f"column {path!r} is {current} in the topic and {rows} in the rows: the type of a column never changes. "
            "Cast the rows, or give the column another name"
        )
    return current


def _holds_nothing(data_type: pa.DataType) -> bool:
    """Return True if a type is the null type or contains it. Such a column could never get another type."""
    return kind_of(data_type) == "null" or any(_holds_nothing(field.type) for _, field in parts(data_type))
