"""The schema of a topic with columns: whether it can be stored, its text in an entry, and how rows are fitted to it."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord, SchemaMismatch, UnsupportedSchema, quoted
from eoslog.segment.column_types import LossyCast, cast_losslessly, check_names, check_type, normal_field, widens
from eoslog.segment.declared_arrays import nulls
from eoslog.segment.text import check_text

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
