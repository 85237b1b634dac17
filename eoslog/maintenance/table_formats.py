"""The formats of published tables, and what each of them can store."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from eoslog.delta.delta_log import DeltaLog
from eoslog.delta.delta_schema import delta_schema
from eoslog.iceberg.iceberg_log import IcebergLog
from eoslog.iceberg.iceberg_schema import check_schema
from eoslog.iceberg.manifests import check_avro
from eoslog.publication.table_log import TableLog
from eoslog.state.entries import TableFormat
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore


def table_log(table_format: TableFormat, store: ObjectStore, environment: Environment, topic: str) -> TableLog:
    """Return the log of a topic's table, which was not read yet."""
    match table_format:
        case "delta":
            return DeltaLog(store, environment, topic)
        case "iceberg":
            return IcebergLog(store, environment, topic)


def check_publishable(topic: str, formats: Iterable[TableFormat], stored: pa.Schema) -> None:
    """Refuse a schema that a published topic cannot have.

    Args:
        topic: the name of the topic, for error messages.
        formats: the formats of the topic's tables.
        stored: the schema of the topic's data files.

    Raises:
        InvalidRequest: the library of a format is not installed.
        UnsupportedSchema: a format has no such type, or allows no such name.
    """
    for each in formats:
        match each:
            case "delta":
                delta_schema(topic, stored)
            case "iceberg":
                check_avro()
                check_schema(topic, stored)
