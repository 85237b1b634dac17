"""The schema of a topic as an Iceberg schema (Iceberg's table spec, version 2)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eoslog.errors import UnsupportedSchema
from eoslog.format.column_ids import OFFSET_DELTA_ID, assigned_ids, field_with_id, id_of, with_ids
from eoslog.format.column_types import kind_of, parts
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.topic_schemas import file_schema, stored_schema
from eoslog.state.store_state import Topic

PARTITION_COLUMN = "_topic_partition"
"""The number of the topic-partition. Spark reserves the name ``_partition``."""
BASE_OFFSET_COLUMN = "_base_offset"
PARTITION_ID = OFFSET_DELTA_ID - 1
BASE_OFFSET_ID = OFFSET_DELTA_ID - 2
PARTITION_FIELD_ID = 1000
BASE_OFFSET_FIELD_ID = 1001

_RESERVED_NAMES = frozenset(
    {
        PARTITION_COLUMN,
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Names of columns that Iceberg's readers or the table add. eoslog itself reserves ``_partition`` and others."""


def partition_fields() -> list[dict[str, Any]]:
    """Return the fields of the partition spec. Engines take the values of both columns from the manifests."""
    return [
        {"source-id": source, "field-id": field, "name": name, "transform": "identity"}
        for source, field, name in (
            (PARTITION_ID, PARTITION_FIELD_ID, PARTITION_COLUMN),
            (BASE_OFFSET_ID, BASE_OFFSET_FIELD_ID, BASE_OFFSET_COLUMN),
        )
    ]


def topic_schema(topic: Topic) -> dict[str, Any]:
    """Return the schema of a topic's table: the topic's columns with their ids, and three more."""
    schema = iceberg_schema(topic.topic, file_schema(stored_schema(topic), topic.topic_schema.arrow))
    return schema | {"schema-id": len(topic.schema_versions) - 1}


def check_schema(topic: str, stored: pa.Schema) -> None:
    """Refuse a schema that an Iceberg table cannot have.

    Args:
        topic: the name of the topic, for error messages.
        stored: the schema of the topic's data files.

    Raises:
        UnsupportedSchema: Iceberg has no such type, or its readers reserve the name of a column.
    """
    numbered = with_ids(stored, assigned_ids(stored)).append(field_with_id(OFFSET_DELTA_COLUMN, OFFSET_DELTA_ID))
    iceberg_schema(topic, numbered)


def iceberg_schema(topic: str, numbered: pa.Schema) -> dict[str, Any]:
    """Return a schema as Iceberg's JSON, with the partition columns at its end.

    Args:
        topic: the name of the topic, for error messages.
        numbered: the schema of the topic's data files, with column ids.

    Raises:
        UnsupportedSchema: as `check_schema`.
    """
    for name in numbered.names:
        if name.lower() in _RESERVED_NAMES:
            raise UnsupportedSchema(
                f"topic {topic} cannot be published as an Iceberg table: Iceberg's readers reserve the name of column "
                f"{name!r}. Use another name, or do not publish the topic"
            )
    fields = [_field(topic, field, field.name) for field in numbered]
    fields += [
        {"id": PARTITION_ID, "name": PARTITION_COLUMN, "required": False, "type": "int"},
        {"id": BASE_OFFSET_ID, "name": BASE_OFFSET_COLUMN, "required": False, "type": "long"},
    ]
    return {"type": "struct", "fields": fields}


def name_mapping(topic: Topic) -> str:
    """Return Iceberg's name mapping of a topic's columns, by which engines read files without column ids."""
    fields = file_schema(stored_schema(topic), topic.topic_schema.arrow)
    return json.dumps(_mapped((field.name, field) for field in fields), separators=(",", ":"))


def _mapped(fields: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, field in fields:
        mapped = {"field-id": id_of(field), "names": [name]}
        below = _mapped(parts(field.type))
        found.append(mapped | {"fields": below} if below else mapped)
    return found


def _field(topic: str, field: Any, path: str) -> dict[str, Any]:
    return {
        "id": id_of(field),
        "name": field.name,
        "required": not field.nullable,
        "type": _type(topic, field.type, path),
    }


def _type(topic: str, data_type: Any, path: str) -> Any:
    match kind_of(data_type):
        case "boolean" | "date" | "binary" as kind:
            return kind
        case "integer":
            return "long" if data_type.bit_width == 64 else "int"
        case "float":
            return "float" if data_type.bit_width == 32 else "double"
        case "decimal":
            return f"decimal({data_type.precision}, {data_type.scale})"
        case "text":
            return "string"
        case "timestamp":
            return "timestamptz" if data_type.tz else "timestamp"
        case "struct":
            return {"type": "struct", "fields": [_field(topic, each, f"{path}.{each.name}") for each in data_type]}
        case "list":
            element = data_type.value_field
            return {
                "type": "list",
                "element-id": id_of(element),
                "element": _type(topic, element.type, f"{path}.element"),
                "element-required": not element.nullable,
            }
        case "map":
            return {
                "type": "map",
                "key-id": id_of(data_type.key_field),
                "key": _type(topic, data_type.key_type, f"{path}.key"),
                "value-id": id_of(data_type.item_field),
                "value": _type(topic, data_type.item_type, f"{path}.value"),
                "value-required": not data_type.item_field.nullable,
            }
    raise UnsupportedSchema(
        f"topic {topic} cannot be published as an Iceberg table: Iceberg has no type for column {path!r}, {data_type}. "
        "Use another type, or do not publish the topic"
    )
