"""The formats of published tables, and what each of them can store.

Most processes publish no table, so each function imports the modules of a format when it needs them. Their models would
take a tenth of the start of a process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from eoslog.publication.table_log import TableLog
from eoslog.session.session import Session
from eoslog.state.entries import TableFormat
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.renewed_credentials import Clocks

if TYPE_CHECKING:
    from eoslog.iceberg.rest_catalog import RestCatalog


def table_log(
    table_format: TableFormat, store: ObjectStore, environment: Environment, topic: str, catalog: RestCatalog | None
) -> TableLog:
    """Return the log of a topic's table, which was not read yet.

    Args:
        catalog: the catalog of Iceberg tables; None: there is no catalog.
    """
    match table_format:
        case "delta":
            from eoslog.delta.delta_log import DeltaLog

            return DeltaLog(store, environment, topic)
        case "iceberg":
            from eoslog.iceberg.iceberg_log import IcebergLog

            return IcebergLog(store, environment, topic, catalog)


def rest_catalog(session: Session) -> RestCatalog | None:
    """Return the catalog of a store's Iceberg tables; None if the settings name none."""
    if session.iceberg_settings.catalog_uri is None:
        return None
    from eoslog.iceberg.rest_catalog import RestCatalog

    clocks = Clocks(session.object_store.clock.now_ms, session.environment.monotonic_ms)
    return RestCatalog(session.iceberg_settings, session.environment, clocks)


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
                from eoslog.delta.delta_schema import delta_schema

                delta_schema(topic, stored)
            case "iceberg":
                from eoslog.iceberg.iceberg_schema import check_schema
                from eoslog.iceberg.manifests import check_avro

                check_avro()
                check_schema(topic, stored)
