"""Published topics as other engines see them: by Delta's reader in Rust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from eoslog import Store
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.storage.object_store import ObjectStore
from tests.delta_logs import tables

Row = tuple[Any, ...]


def copy_to(directory: Path, objects: ObjectStore, topic: str) -> str:
    """Write a topic's objects as files, for engines that read directories. Return the table's root."""
    for info in objects.list(f"{topic}/"):
        path = directory / info.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects.get(info.path).body)
    return str(directory / topic)


def rows_by_delta(root: str, version: int | None = None, options: dict[str, str] | None = None) -> list[Row]:
    """Return partition, offset and values of all rows of a table, in order, as delta-rs reads them.

    Args:
        options: the options with which delta-rs reaches an object store.
    """
    return rows_of_table(DeltaTable(root, version=version, storage_options=options).to_pyarrow_table())


def rows_of_table(table: pa.Table) -> list[Row]:
    """Return partition, offset and values of all rows that an engine has read from a Delta table, in order."""
    values = [name for name in table.column_names if name not in ("_partition", "_base_offset", "_offset_delta")]
    return sorted(
        (row["_partition"], row["_base_offset"] + row["_offset_delta"], *(row[name] for name in values))
        for row in table.to_pylist()
    )


def rows_of_snapshot(store: Store, topic: str, slot: int) -> list[Row]:
    """Return partition, offset and values of all rows of a topic's snapshot, in order."""
    has_records = store.admin.describe_topic(topic).topic_schema.kind == "records"
    place = ["partition", "offset"] if has_records else ["_partition", "_offset"]
    values = RECORDS_SCHEMA.names if has_records else store.scan(topic).schema.names
    scan = store.scan(topic, isolation_level="snapshot", slot=slot, columns=[*place, *values])
    return sorted(tuple(row.values()) for row in scan.to_table().to_pylist())


def row_places(objects: ObjectStore, topic: str) -> list[tuple[int, int]]:
    """Return partition and offset of the rows of a table's newest version, in order."""
    return list(tables(objects, topic))[-1].places()
