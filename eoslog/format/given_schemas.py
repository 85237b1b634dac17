"""The forms in which a user may give the columns of a topic, and the names of types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from eoslog.errors import InvalidRequest, UnsupportedSchema, quoted


class ArrowSchemaExportable(Protocol):
    """An object with Arrow's schema interface, such as ``polars.DataFrame.schema``."""

    def __arrow_c_schema__(self) -> object: ...


class SparkSchema(Protocol):
    """A ``StructType`` of PySpark."""

    def json(self) -> str: ...
    def jsonValue(self) -> dict[str, Any]: ...  # noqa: N802 - Spark's name


GivenSchema = pa.Schema | Mapping[str, "pa.DataType | str"] | ArrowSchemaExportable | SparkSchema
"""Columns: Arrow's schema, types or their names by the names of columns, another library's schema, or Spark's."""

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
TYPE_NAMES = f"{', '.join(_TYPES)}, decimal(precision,scale)"
"""The types of columns by Spark's names, for messages."""


def type_named(name: str) -> pa.DataType | None:
    """Return the type of this name of Spark's; None if there is none. Upper and lower case do not matter."""
    name = name.strip().lower()
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        return _TYPES.get(name)
    precision, scale = int(decimal[1]), int(decimal[2])
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None


class ArrowColumns(NamedTuple):
    schema: pa.Schema
    spark: str | None
    """The same columns as Spark's JSON, if they were given as Spark's schema."""


def arrow_columns(topic: str, given: object) -> ArrowColumns:
    """Return the columns that a user gives in any of the forms of ``GivenSchema``.

    Raises:
        InvalidRequest: the object is no schema. The message says what may be given.
        UnsupportedSchema: a type has no such name, or Arrow lacks the type of a Spark column.
    """
    if isinstance(given, pa.Schema):
        return ArrowColumns(given, None)
    if hasattr(given, "__arrow_c_schema__") and not isinstance(given, type):
        try:
            return ArrowColumns(pa.schema(given), None)  # type: ignore[arg-type]
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidRequest(f"topic {topic}: {type(given).__name__} is not a schema of columns: {error}") from None
    if type(given).__module__.startswith("pyspark.") and hasattr(given, "jsonValue"):
        # Only a program that has PySpark has such an object, and then it has the package of the same distribution.
        return ArrowColumns(*import_module("pyspark_eoslog.spark_schemas").topic_columns(given))
    if isinstance(given, Mapping):
        return ArrowColumns(pa.schema([_column(topic, name, kind) for name, kind in given.items()]), None)
    raise InvalidRequest(
        f"topic {topic}: the schema cannot be a {type(given).__name__}. Give a pyarrow.Schema, a dict of column names "
        'and types as {"carrier": "string", "miles": "long"}, the schema of a Spark DataFrame (df.schema), or an '
        "object with __arrow_c_schema__, as the schema of a Polars DataFrame"
    )


def _column(topic: str, name: object, kind: object) -> pa.Field[Any]:
    if not isinstance(name, str):
        raise InvalidRequest(f"topic {topic}: the name of a column is a text, not {quoted(name)}")
    found = kind if isinstance(kind, pa.DataType) else None
    if isinstance(kind, str):
        found = type_named(kind) or _arrows(kind)
    if found is None:
        raise UnsupportedSchema(
            f"topic {topic}: column {quoted(name)}: {quoted(kind)} is not a type. Give a pyarrow.DataType, or one of "
            f"{TYPE_NAMES}, or a name of Arrow's such as int64"
        )
    return pa.field(name, found)


def _arrows(name: str) -> pa.DataType | None:
    alias: Any = name.strip()
    try:
        found: pa.DataType = pa.type_for_alias(alias)
    except ValueError:
        return None
    return found
