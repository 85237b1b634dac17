"""Schemas of topics: their encoding in entries, and the conversion of rows to them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import pyarrow as pa

from eoslog.errors import CorruptRecord, SchemaMismatch, UnsupportedSchema, quoted
from eoslog.format.column_types import (
    LossyCast,
    cast_losslessly,
    check_names,
    check_text,
    check_type,
    nulls,
    stored_field,
    widens,
)
from eoslog.state.store_state import Topic

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
    }
)
"""The names of the metadata columns that a reader can add to a topic's columns."""


def encode_schema(schema: pa.Schema) -> str:
    """Encode a schema for a topic's entry: normalized, without metadata, as an Arrow IPC message in base64.

    Raises:
        UnsupportedSchema: the schema cannot be stored.
    """
    return base64.b64encode(normalise_schema(schema).serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """Decode the schema of a topic from its entry.

    Raises:
        CorruptRecord: the text is not a result of `encode_schema`.
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
        UnsupportedSchema: the message contains the column and what to do.
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
            f"column {field.name!r} holds text that is not UTF-8: write it as binary, or repair it first (in Spark "
            "with make_valid_utf8)"
        ) from None
    return conformed


def stored_schema(topic: Topic) -> pa.Schema:
    """Return the columns of a topic's data files."""
    if topic.topic_schema.arrow is None:
        return RECORDS_SCHEMA
    return decode_schema(topic.topic_schema.arrow)
