"""Rows and columns in the forms in which a user may give them: Arrow's, and those of pandas, Polars and Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard

import pyarrow as pa

from eoslog.errors import InvalidRequest, SchemaMismatch, UnsupportedSchema
from eoslog.format.spark_json import TYPES_BY_NAME, topic_columns
from eoslog.state.names import is_text
from eoslog.wording import first_line, nearest, quoted

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
"""The errors of a conversion of another library's columns to Arrow."""
_OBJECTS = "holds Python's objects, which Arrow has no type for: cast it, for example to text or bytes"
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


class ArrowStream(Protocol):
    """An object with Arrow's stream interface (the PyCapsule interface)."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowSchema(Protocol):
    """An object with Arrow's schema interface (the PyCapsule interface)."""

    def __arrow_c_schema__(self) -> object: ...


class SparkSchema(Protocol):
    """A ``StructType`` of PySpark."""

    def json(self) -> str: ...
    def jsonValue(self) -> dict[str, Any]: ...  # noqa: N802 - Spark's name


GivenSchema = pa.Schema | Mapping[str, "pa.DataType | str"] | ArrowSchema | ArrowStream | SparkSchema
"""The forms of columns: a schema of Arrow, types or names of types by column, the schema or the rows of another
library, or a schema of Spark."""

_SQL_NAMES = {
    **dict.fromkeys(("bigint", "int8", "bigserial"), "long"),
    **dict.fromkeys(("integer", "int4", "serial", "mediumint"), "int"),
    "smallint": "short",
    "tinyint": "byte",
    **dict.fromkeys(("varchar", "char", "character", "character varying", "text", "str", "object"), "string"),
    **dict.fromkeys(("double precision", "float8", "number"), "double"),
    **dict.fromkeys(("real", "float4"), "float"),
    **dict.fromkeys(("numeric", "dec", "decimal"), "decimal(precision,scale)"),
    **dict.fromkeys(("blob", "bytea", "varbinary", "bytes"), "binary"),
    **dict.fromkeys(("datetime", "timestamptz", "timestamp_ltz", "timestamp with time zone"), "timestamp"),
    "timestamp without time zone": "timestamp_ntz",
}
"""Names of types in SQL and Python, with the nearest of this module's names, for messages."""
_STRUCT_OF_SPARK = ("pyspark.sql.types", "StructType")
_PARAMETERS = re.compile(r"\(.*?\)")
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
TYPE_NAMES = f"{', '.join(TYPES_BY_NAME)}, decimal(precision,scale)"
"""The types of columns by Spark's names, for messages."""


def table_of(rows: ArrowStream | pa.RecordBatch, where: str) -> pa.Table:
    """Return all rows of a table, a batch, a data frame or another stream.

    An unnamed index of pandas is left out. A column of pandas without any value has no type.

    Args:
        where: the call and its topic, for errors.

    Raises:
        SchemaMismatch: the object has no stream of rows.
    """
    if isinstance(rows, pa.Table):
        table = rows
    elif isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif not hasattr(rows, "__arrow_c_stream__"):
        raise SchemaMismatch(
            f"{where} takes a pyarrow.Table, a data frame of pandas or Polars, or another object with "
            f"__arrow_c_stream__, not {type(rows).__name__}. Collect a LazyFrame first, make a frame of a Series, and "
            "see pyarrow.Table.from_pylist and from_pydict for Python's own values"
        )
    else:
        if addresses := _columns_of_objects(rows):
            raise SchemaMismatch(f"{where}: column {quoted(addresses[0])} {_OBJECTS}")
        try:
            table = pa.table(rows)
        except _CONVERSION_ERRORS as error:
            # A Series of Polars is a column, so its stream has no rows. A frame of pandas may have a column with values
            # of several types.
            raise SchemaMismatch(
                f"{where}: the {type(rows).__name__} cannot be read as rows of Arrow: {first_line(error)}. Give a "
                "frame whose columns have one type each, and names of their own"
            ) from None
    if not _is_of_pandas(table.schema):
        return table
    table = table.drop_columns(_unnamed_index(table.schema))
    for index, column in enumerate(table.columns):
        # pandas has no type for a column without values: it is double, text or datetime by chance.
        if column.null_count == len(column):
            table = table.set_column(index, table.schema.names[index], pa.chunked_array([pa.nulls(len(column))]))
    return table


def _schema_of(given: object, where: str) -> pa.Schema:
    """Return the given schema, or the schema of a table, a data frame or another stream.

    Args:
        where: the argument and its topic, for errors.

    Raises:
        InvalidRequest: the object has no schema.
    """
    why = ""
    schema: pa.Schema | None = None
    if addresses := _columns_of_objects(given):
        raise InvalidRequest(f"{where}: column {quoted(addresses[0])} {_OBJECTS}")
    try:
        if isinstance(given, pa.Schema):
            schema = given
        elif isinstance(given, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
            schema = given.schema
        elif hasattr(given, "__arrow_c_schema__"):
            schema = pa.schema(given)  # type: ignore[arg-type]
        elif hasattr(given, "__arrow_c_stream__"):
            schema = pa.RecordBatchReader.from_stream(given).schema
    except _CONVERSION_ERRORS as error:
        why = f" ({first_line(error)})"
    if schema is None:
        raise InvalidRequest(
            f"{where} cannot be a {type(given).__name__}{why}. Give a pyarrow.Schema, a dict of column names and types "
            'such as {"carrier": "string", "miles": "long"}, the schema of a Spark DataFrame (df.schema), an Arrow '
            "table, a data frame of pandas or Polars, or another object with Arrow's interface"
        )
    for name in _unnamed_index(schema):
        schema = schema.remove(schema.get_field_index(name))
    return schema


def type_named(name: str) -> pa.DataType | None:
    """Return the type with this name in Spark; None if there is none. Upper and lower case do not matter."""
    name = name.strip().lower()
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        return TYPES_BY_NAME.get(name)
    precision, scale = int(decimal[1]), int(decimal[2])
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None


class ArrowColumns(NamedTuple):
    """The columns of a topic."""

    schema: pa.Schema
    spark: str | None
    """The same columns as Spark's JSON, if they were given as Spark's schema."""


def arrow_columns(topic: str, given: object) -> ArrowColumns:
    """Return the columns that a user gives in any of the forms of ``GivenSchema``.

    Raises:
        InvalidRequest: the object is not a schema. The message says what may be given.
        UnsupportedSchema: no type has a given name, or Arrow lacks the type of a Spark column.
    """
    if _is_struct_of_spark(given):
        return ArrowColumns(*topic_columns(given.json()))
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return ArrowColumns(pa.schema([_column(topic, name, kind) for name, kind in given.items()]), None)
    return ArrowColumns(_schema_of(given, f"topic {topic}: the schema"), None)


def _is_struct_of_spark(given: object) -> TypeGuard[SparkSchema]:
    """Return True for a ``StructType``. Its class is known by name, because the library never imports PySpark."""
    return any((each.__module__, each.__name__) == _STRUCT_OF_SPARK for each in type(given).__mro__)


def _column(topic: str, name: object, kind: object) -> pa.Field[Any]:
    if not isinstance(name, str) or not is_text(name):
        raise InvalidRequest(f"topic {topic}: the name of a column is a text, not {quoted(name)}")
    found = kind if isinstance(kind, pa.DataType) else None
    if isinstance(kind, str):
        found = type_named(kind) or _type_of_arrow(kind)
    if found is None:
        like = _like(kind)
        hint = f"Did you mean {quoted(like)}? " if like is not None else ""
        raise UnsupportedSchema(
            f"topic {topic}: column {quoted(name)}: {quoted(kind)} is not a type. {hint}Give a pyarrow.DataType, or "
            f"one of {TYPE_NAMES}, or a name of Arrow's such as int64"
        )
    return pa.field(name, found)


def _like(kind: object) -> str | None:
    """Return the name of the type that the user may have meant; None if no name is like the given one."""
    if not isinstance(kind, str):
        return None
    plain = _PARAMETERS.sub("", kind).strip().lower()
    return _SQL_NAMES.get(plain) or nearest(plain, TYPES_BY_NAME)


def _type_of_arrow(name: str) -> pa.DataType | None:
    alias: Any = name.strip()
    try:
        found: pa.DataType = pa.type_for_alias(alias)
    except ValueError:
        return None
    return found


def _columns_of_objects(given: object) -> list[str]:
    """Return the columns of Polars with Python's objects. It would give their addresses in memory as their values."""
    if type(given).__module__.partition(".")[0] != "polars" or not hasattr(given, "__arrow_c_stream__"):
        return []
    schema = getattr(given, "schema", None)
    return [name for name, kind in schema.items() if str(kind) == "Object"] if isinstance(schema, Mapping) else []


def _unnamed_index(schema: pa.Schema) -> list[str]:
    """Return the columns that pandas made of an index without a name. They only number the rows of the frame."""
    if not _is_of_pandas(schema):
        return []
    return [name for name in schema.names if _UNNAMED_INDEX.fullmatch(name)]


def _is_of_pandas(schema: pa.Schema) -> bool:
    return bool(schema.metadata and b"pandas" in schema.metadata)
