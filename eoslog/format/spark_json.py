"""Schemas in Spark's JSON, as ``StructType.json()`` writes them: their columns in Arrow's types, and their merges.

A topic has this JSON beside its Arrow schema. It keeps Spark types that Arrow lacks, such as variants and collations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from eoslog.errors import InvalidRequest, SchemaMismatch, UnsupportedSchema
from eoslog.format.topic_schemas import RESERVED_NAMES, normalize_schema
from eoslog.state.names import is_text
from eoslog.wording import quoted

TYPES_BY_NAME: dict[str, pa.DataType] = {
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
"""Types without parameters, by Spark's names."""

_VARIANT = "variant"
_TYPES_IN_JSON: dict[str, pa.DataType] = {
    **TYPES_BY_NAME,
    "integer": TYPES_BY_NAME["int"],
    "void": pa.null(),
    _VARIANT: pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            # By this mark Spark tells a variant from a struct.
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    ),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(-?\d{1,3})\)")
_COLLATED = re.compile(r"string collate \w+")
_TIME = re.compile(r"time\(\d+\)")
_DAY_TIME_INTERVAL = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_GEOSPATIAL = re.compile(r"(geometry|geography)\b.*")
_METADATA = "SPARK::metadata::json"
"""The key under which Arrow fields have the metadata of Spark's fields, such as comments."""
_COLLATIONS = "__COLLATIONS"
"""The key in the JSON of a field's metadata for its collations. PySpark has them in the field's type instead."""


def check_spark_schema(text: str) -> None:
    """Check that a text is a schema in Spark's JSON.

    Raises:
        InvalidRequest: it is not.
    """
    _parsed(text)


def topic_columns(text: str) -> tuple[pa.Schema, str]:
    """Return the columns of a topic for rows of this schema: as a topic stores them, and as Spark's JSON.

    Columns that a reader adds to a topic of columns, such as ``_offset``, are left out, as in a write.

    Raises:
        InvalidRequest: the text is not a schema in Spark's JSON.
        UnsupportedSchema: a topic cannot store a column. The message contains its name.
    """
    names = {field["name"] for field in _parsed(text)["fields"]}
    described = described_columns(text, names - RESERVED_NAMES)
    return normalize_schema(arrow_schema(described)), described


def arrow_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of the rows that Spark passes, with timestamps in UTC.

    Raises:
        InvalidRequest: the text is not a schema in Spark's JSON.
        UnsupportedSchema: Arrow lacks the type of a column. The message contains the column's name.
    """
    return pa.schema([_arrow_field(field, field["name"]) for field in _parsed(text)["fields"]])


def described_columns(text: str, names: Collection[str]) -> str:
    """Return some columns of a schema as Spark's JSON. A user-defined type becomes its SQL type.

    Raises:
        InvalidRequest: the text is not a schema in Spark's JSON.
    """
    described = _parsed(text)
    fields = [field for field in described["fields"] if field["name"] in names]
    return json.dumps(with_sql_types(described | {"fields": fields}))


def with_sql_types(described: Any) -> Any:
    """Return a type in Spark's JSON, with its SQL type instead of each user-defined type."""
    if isinstance(described, list):
        return [with_sql_types(each) for each in described]
    if not isinstance(described, dict):
        return described
    if described.get("type") == "udt":
        return with_sql_types(described["sqlType"])
    return {name: value if name == "metadata" else with_sql_types(value) for name, value in described.items()}


def merged_spark_schema(known: str | None, rows: str | None) -> str | None:
    """Return Spark's JSON of the topic's columns, extended by the rows' columns. Either may omit columns.

    Raises:
        InvalidRequest: a text is not a schema in Spark's JSON.
        SchemaMismatch: a column is a variant only in one of them.
    """
    if rows is None:
        return known
    empty: dict[str, Any] = {"type": "struct", "fields": []}
    return json.dumps(_merged_type(empty if known is None else _parsed(known), _parsed(rows), ""))


def _parsed(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
        if value["type"] == "struct" and _is_type(value):
            return value
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InvalidRequest("spark_schema is not a schema in Spark's JSON. Give the result of StructType.json()")


def _is_type(value: Any) -> bool:
    """Return True if the value has the form of a type in Spark's JSON. The names of types are not checked."""
    if isinstance(value, str):
        return True
    match value["type"]:
        case "struct":
            fields = value["fields"]
            return isinstance(fields, list) and all(isinstance(f["name"], str) and _is_type(f["type"]) for f in fields)
        case "array":
            return _is_type(value["elementType"])
        case "map":
            return _is_type(value["keyType"]) and _is_type(value["valueType"])
        case "udt":
            return _is_type(value["sqlType"])
    return False


def _arrow_field(described: dict[str, Any], path: str) -> pa.Field[Any]:
    if not is_text(described["name"]):
        raise UnsupportedSchema(f"column {quoted(path)}: the name is not text in UTF-8. Rename the column")
    metadata = {name: value for name, value in (described.get("metadata") or {}).items() if name != _COLLATIONS}
    field = _field(described["name"], described["type"], path, nullable=described.get("nullable", True))
    return field.with_metadata({_METADATA: json.dumps(metadata)}) if metadata else field


def _field(name: str, described: Any, path: str, *, nullable: bool) -> pa.Field[Any]:
    """Return a field of Arrow for a type in Spark's JSON.

    Args:
        path: the path from the column's name to this part of it, for errors.
    """
    data_type: pa.DataType = _arrow_type(described, path)
    if pa.types.is_null(data_type) and not nullable:
        raise _refused("void", path)
    return pa.field(name, data_type, nullable=nullable)


def _arrow_type(described: Any, path: str) -> Any:
    if isinstance(described, str):
        return _type_without_parts(described, path)
    match described["type"]:
        case "struct":
            return pa.struct([_arrow_field(field, f"{path}.{field['name']}") for field in described["fields"]])
        case "array":
            can_be_null = described.get("containsNull", True)
            return pa.list_(_field("element", described["elementType"], f"{path}.element", nullable=can_be_null))
        case "map":
            can_be_null = described.get("valueContainsNull", True)
            key: Any = _field("key", described["keyType"], f"{path}.key", nullable=False)
            value: Any = _field("value", described["valueType"], f"{path}.value", nullable=can_be_null)
            return pa.map_(key, value)
    return _arrow_type(described["sqlType"], path)


def _type_without_parts(name: str, path: str) -> pa.DataType:
    if name in _TYPES_IN_JSON:
        return _TYPES_IN_JSON[name]
    if _COLLATED.fullmatch(name):
        return pa.string()
    if _TIME.fullmatch(name):
        return pa.time64("ns")
    if _DAY_TIME_INTERVAL.fullmatch(name):
        return pa.duration("us")
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None and 1 <= int(decimal[1]) <= 38:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _GEOSPATIAL.fullmatch(name):
        # Spark would pass the value as an ordinary struct.
        raise UnsupportedSchema(
            f"column {quoted(path)}: type {name} cannot be stored. Store its bytes, st_asbinary(...), and its SRID, "
            "st_srid(...)"
        )
    raise _refused(name, path)


def _refused(name: str, path: str) -> UnsupportedSchema:
    return UnsupportedSchema(f"column {quoted(path)}: type {name} cannot be stored. Cast it to another type")


def _merged_type(known: Any, rows: Any, path: str) -> Any:
    if _VARIANT in (known, rows):
        if known != rows:
            raise SchemaMismatch(
                f"column {quoted(path)}: only one of the topic and the rows has a variant. Use the topic's type"
            )
        return known
    kind = known.get("type") if isinstance(known, dict) else None
    if not isinstance(rows, dict) or rows.get("type") != kind:
        return known
    if kind == "array":
        return known | {"elementType": _merged_type(known["elementType"], rows["elementType"], path)}
    if kind == "map":
        return known | {"valueType": _merged_type(known["valueType"], rows["valueType"], path)}
    if kind != "struct":
        return known
    found = {field["name"]: field for field in rows["fields"]}
    fields = []
    for field in known["fields"]:
        row = found.pop(field["name"], None)
        here = f"{path}.{field['name']}".removeprefix(".")
        fields.append(field if row is None else field | {"type": _merged_type(field["type"], row["type"], here)})
    return known | {"fields": [*fields, *({**field, "nullable": True} for field in found.values())]}
