"""Adding columns to a topic, and the history of its schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eoslog.errors import InvalidRequest, InvalidTopic, SchemaMismatch
from eoslog.format.topic_schema_json import encode_schema, merged_schema, stored_schema
from eoslog.state.draft import Draft
from eoslog.state.store_state import Topic
from eoslog.state.topic_entries import TopicSchema, TopicSchemaChanged
from eoslog.state.topic_schemas import ColumnPath, without_columns
from eoslog.state.topics import topic_named

_VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class TopicSchemaVersion:
    """One version of a topic's schema."""

    version: int
    """Version 1 is the schema with which the topic was created."""
    slot: int
    """The slot from which the topic had this schema."""
    timestamp: int
    """The log's time at the slot (ms)."""
    schema: pa.Schema
    added: tuple[ColumnPath, ...]
    """The paths of its new columns: names from the outside in, ``element`` for lists, ``value`` for maps."""


def append_columns(draft: Draft, topic: Topic, rows: pa.Schema, spark_schema: str | None, time_ms: int) -> Topic:
    """Append an entry that adds the columns of some rows to a topic; nothing if the topic has them.

    Args:
        spark_schema: the rows' schema, or part of it, as Spark's JSON.
        time_ms: the time by the store's clock (ms since the epoch).

    Returns:
        The changed topic.

    Raises:
        InvalidTopic, SchemaMismatch, UnsupportedSchema
    """
    wanted = with_columns(topic, rows, spark_schema)
    if wanted != topic.topic_schema:
        draft.append(
            TopicSchemaChanged(
                topic=topic.topic,
                topic_id=topic.topic_id,
                topic_schema=wanted,
                schema_version=topic.schema_version + 1,
                time_ms=time_ms,
            )
        )
    return draft.topics[topic.topic_id]


@dataclass(frozen=True)
class AddColumns:
    """Add columns to a topic. The answer is the changed topic."""

    topic: str
    columns: pa.Schema
    spark_schema: str | None
    """The columns as Spark's JSON, for Spark types that Arrow does not have."""
    time_ms: int

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, and the errors of ``append_columns``"""
        return append_columns(draft, topic_named(draft, self.topic), self.columns, self.spark_schema, self.time_ms)


def with_columns(topic: Topic, rows: pa.Schema, spark_schema: str | None) -> TopicSchema:
    """Return the topic's schema, extended by the columns of some rows. It is unchanged if it has them all.

    Raises:
        InvalidTopic: the topic holds Kafka records.
        SchemaMismatch: the topic has a column of this name with another type.
        UnsupportedSchema: a new column cannot be stored.
    """
    known = topic.topic_schema
    if known.kind != "columns":
        raise InvalidTopic(f"topic {topic.topic} holds Kafka records, whose columns are always the same")
    arrow = encode_schema(merged_schema(stored_schema(topic), rows))
    spark = _merged_spark_schema(known.spark, spark_schema)
    return known if arrow == known.arrow else known.model_copy(update={"arrow": arrow, "spark": spark})


def schema_history(topic: Topic) -> list[TopicSchemaVersion]:
    """Return all schemas of a topic, from the first to the current one."""
    versions = []
    schema = stored_schema(topic)
    for each in reversed(topic.schema_versions):
        versions.append(TopicSchemaVersion(each.version, each.slot, each.time_ms, schema, each.added))
        schema = without_columns(schema, each.added)
    return versions[::-1]


def _merged_spark_schema(known: str | None, rows: str | None) -> str | None:
    """Return Spark's JSON of the topic's columns, extended by the rows' columns. Either may omit columns."""
    if rows is None:
        return known
    empty: dict[str, Any] = {"type": "struct", "fields": []}
    return json.dumps(_merged_type(empty if known is None else _parsed(known), _parsed(rows), ""))


def check_spark_schema(text: str) -> None:
    """Raises: InvalidRequest: the text is not a schema in Spark's JSON."""
    _parsed(text)


def _parsed(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
        if value["type"] == "struct" and _is_type(value):
            return value
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InvalidRequest("spark_schema is not a schema in Spark's JSON; give the result of StructType.json()")


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


def _merged_type(known: Any, rows: Any, path: str) -> Any:
    if _VARIANT in (known, rows):
        if known != rows:
            raise SchemaMismatch(
                f"column {path!r} is a variant only in the topic or only in the rows; use the topic's type"
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
