"""The columns of a topic in Spark's JSON, which a topic's schema has beside Arrow's. It tells a variant from a struct.

The JSON comes from a store, so it is hostile input. Spark would import, or even unpickle, a user-defined type.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from eoslog.errors import CorruptRecord


def described_columns(schema: StructType, names: Collection[str]) -> str:
    """Return some columns of a DataFrame's schema as Spark's JSON. A user-defined type becomes its SQL type."""
    described = json.loads(schema.json())
    return json.dumps(_plain(described | {"fields": [each for each in described["fields"] if each["name"] in names]}))


def as_described(stored: StructType, text: str, topic: str) -> StructType:
    """Return the stored columns with the types of a description. Columns that it lacks keep their types.

    Raises:
        CorruptRecord: the description cannot be read.
    """
    try:
        described = StructType.fromJson(_plain(json.loads(text)))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,  # PySpark asserts that names are text and that collations have providers.
        RecursionError,
        PySparkException,
    ):
        raise CorruptRecord(f"topic {topic}: its schema in Spark's JSON cannot be read") from None
    return _named_fields(stored, described)


def _plain(described: Any) -> Any:
    """Return a type in Spark's JSON with the SQL types of user-defined types in their place."""
    if isinstance(described, list):
        return [_plain(each) for each in described]
    if not isinstance(described, dict):
        return described
    if described.get("type") == "udt":
        return _plain(described["sqlType"])
    return {name: value if name == "metadata" else _plain(value) for name, value in described.items()}


def _named_fields(stored: StructType, described: StructType) -> StructType:
    types = {field.name: field.dataType for field in described.fields}
    return StructType(
        [
            StructField(field.name, _named_type(field.dataType, types.get(field.name)), field.nullable)
            for field in stored.fields
        ]
    )


def _named_type(stored: DataType, described: DataType | None) -> DataType:
    if isinstance(stored, StructType) and isinstance(described, StructType):
        return _named_fields(stored, described)
    if isinstance(stored, ArrayType) and isinstance(described, ArrayType):
        return ArrayType(_named_type(stored.elementType, described.elementType), stored.containsNull)
    if isinstance(stored, MapType) and isinstance(described, MapType):
        return MapType(
            _named_type(stored.keyType, described.keyType),
            _named_type(stored.valueType, described.valueType),
            stored.valueContainsNull,
        )
    return stored if described is None else described
