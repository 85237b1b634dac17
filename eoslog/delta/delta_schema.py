"""The schema of a topic as a Delta schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eoslog.delta.actions import PARTITION_COLUMNS
from eoslog.errors import UnsupportedSchema
from eoslog.format.column_types import kind_of, parts
from eoslog.format.data_file import OFFSET_DELTA_COLUMN

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
"""Delta refuses these characters without column mapping. Column mapping needs a higher reader version."""

_INTEGERS = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_PARTITION_TYPES = dict(zip(PARTITION_COLUMNS, ("integer", "long"), strict=True))


def delta_schema(topic: str, stored: pa.Schema) -> str:
    """Return a schema as Delta's JSON, with the offset deltas and the partition columns at its end.

    Args:
        topic: the name of the topic, for error messages.
        stored: the schema of the topic's data files.

    Raises:
        UnsupportedSchema: Delta has no such type, or allows no such name.
    """
    fields = [_field(topic, field, field.name) for field in (*stored, OFFSET_DELTA_COLUMN)]
    fields += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _PARTITION_TYPES.items()
    ]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def has_local_timestamps(fields: Iterable[pa.Field[Any]]) -> bool:
    """Return True if a field holds timestamps without a time zone, which need a feature of Delta."""
    return any(
        (isinstance(field.type, pa.TimestampType) and field.type.tz is None)
        or has_local_timestamps(part for _, part in parts(field.type))
        for field in fields
    )


def _field(topic: str, field: Any, path: str) -> dict[str, Any]:
    if _FORBIDDEN.search(field.name):
        raise UnsupportedSchema(
            f"topic {topic} cannot be published as a Delta table: the name of column {path!r} has a space or one of "
            ",;{}()=, which Delta forbids. Use another name, or do not publish the topic"
        )
    return {
        "name": field.name,
        "type": _type(topic, field.type, path),
        "nullable": field.nullable,
        "metadata": {},
    }


def _type(topic: str, data_type: Any, path: str) -> Any:
    match kind_of(data_type):
        case "boolean" | "binary" | "date" as kind:
            return kind
        case "integer":
            return _INTEGERS[data_type.bit_width]
        case "float":
            return "float" if data_type.bit_width == 32 else "double"
        case "decimal":
            return f"decimal({data_type.precision},{data_type.scale})"
        case "text":
            return "string"
        case "timestamp":
            return "timestamp" if data_type.tz else "timestamp_ntz"
        case "struct":
            return {"type": "struct", "fields": [_field(topic, each, f"{path}.{each.name}") for each in data_type]}
        case "list":
            element = data_type.value_field
            return {
                "type": "array",
                "elementType": _type(topic, element.type, f"{path}.element"),
                "containsNull": element.nullable,
            }
        case "map":
            return {
                "type": "map",
                "keyType": _type(topic, data_type.key_type, f"{path}.key"),
                "valueType": _type(topic, data_type.item_type, f"{path}.value"),
                "valueContainsNull": data_type.item_field.nullable,
            }
    raise UnsupportedSchema(
        f"topic {topic} cannot be published as a Delta table: Delta has no type for column {path!r}, {data_type}. Use "
        "another type, or do not publish the topic"
    )
