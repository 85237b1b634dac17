"""Published topics as other engines see them: Delta's reader in Rust, and a model of a Delta stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from eoslog import Store
from eoslog.storage.object_store import ObjectStore

Row = tuple[Any, ...]


def copy_to(directory: Path, objects: ObjectStore, topic: str) -> str:
    """Write a topic's objects as files, for engines that read directories. Return the table's root."""
    for info in objects.list(f"{topic}/"):
        path = directory / info.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects.get(info.path).body)
    return str(directory / topic)


def rows_by_delta(root: str, version: int | None = None) -> list[Row]:
    """Return partition, offset and values of all rows of a table, in order."""
    table = DeltaTable(root, version=version).to_pyarrow_table()
    values = [name for name in table.column_names if name not in ("_partition", "_base_offset", "_offset_delta")]
    return sorted(
        (row["_partition"], row["_base_offset"] + row["_offset_delta"], *(row[name] for name in values))
        for row in table.to_pylist()
    )


def rows_of_snapshot(store: Store, topic: str, slot: int) -> list[Row]:
    """Return partition, offset and values of all rows of a topic's snapshot, in order."""
    columns = store.scan(topic).schema.names
    if "_partition" not in columns and "partition" not in columns:
        columns = ["_partition", "_offset", *columns]
    values = [name for name in columns if name not in ("partition", "offset", "_partition", "_offset", "topic")]
    place = ("partition", "offset") if "partition" in columns else ("_partition", "_offset")
    scan = store.scan(topic, isolation_level="snapshot", slot=slot, columns=[*place, *values])
    return sorted(tuple(row.values()) for row in scan.to_table().to_pylist())


def versions(objects: ObjectStore, topic: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the actions of each version of a topic's Delta log, in order."""
    for info in sorted(objects.list(f"{topic}/_delta_log/"), key=lambda info: info.path):
        if info.path.endswith(".json"):
            yield [json.loads(line) for line in objects.get(info.path).body.splitlines()]


def slot_of(actions: list[dict[str, Any]]) -> int:
    (slot,) = [action["txn"]["version"] for action in actions if "txn" in action]
    return int(slot)


def rows_by_stream(objects: ObjectStore, topic: str) -> list[tuple[int, int]] | None:
    """Return partition and offset of the rows that a Delta stream takes, in order, from version 0 on.

    A stream takes the rows of each file that a version adds with ``dataChange``. It stops at a version that removes
    rows. Then the result is None.
    """
    taken: list[tuple[int, int]] = []
    for actions in versions(objects, topic):
        if any(action.get("remove", {}).get("dataChange") for action in actions):
            return None
        for add in (action["add"] for action in actions if action.get("add", {}).get("dataChange")):
            place = add["partitionValues"]
            table = pq.read_table(pa.BufferReader(objects.get(f"{topic}/{add['path']}").body))
            deltas = table.column("_offset_delta").to_pylist()
            taken += [(int(place["_partition"]), int(place["_base_offset"]) + delta) for delta in deltas]
    return sorted(taken)
