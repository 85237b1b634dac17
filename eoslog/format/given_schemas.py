"""The forms in which a user may give the columns of a topic, and the names of types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from eoslog.errors import InvalidRequest, UnsupportedSchema, quoted
from eoslog.format.arrow_input import ArrowSchema, ArrowStream, schema_of


class SparkSchema(Protocol):
    """A ``StructType`` of PySpark."""

    def json(self) -> str: ...
    def jsonValue(self) -> dict[str, Any]: ...  # noqa: N802 - Spark's name


GivenSchema = pa.Schema | Mapping[str, "pa.DataType | str"] | ArrowSchema | ArrowStream | SparkSchema
"""Columns: Arrow's schema, types or their names by the names of columns, the schema or the rows of another library, or
Spark's schema."""

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
    if type(given).__module__.startswith("pyspark.") and hasattr(given, "jsonValue"):
        # Only a program that has PySpark has such an object, and then it has the package of the same distribution.
        return ArrowColumns(*import_module("pyspark_eoslog.spark_schemas").topic_columns(given))
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return ArrowColumns(pa.schema([_column(topic, name, kind) for name, kind in given.items()]), None)
    return ArrowColumns(schema_of(given, f"topic {topic}: the schema"), None)


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
