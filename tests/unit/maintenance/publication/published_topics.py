"""Topics that are published as Delta tables, and what their newest versions are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog import Store, TopicConfig
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer.producer import Producer
from tests.delta_logs import versions
from tests.unit.support.delta_tables import copy_to, rows_by_delta
from tests.unit.support.transactions import open_transaction

COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string())])


def create(store: Store, topic: str = "t", schema: pa.Schema = COLUMNS, **config: Any) -> None:
    settings = {"publish": "delta", "segment_batches": 2} | config
    store.admin.create_topic(topic, schema=schema, key=schema.names[0], config=TopicConfig(**settings))


def send(producer: Producer, *keys: int, topic: str = "t") -> None:
    producer.send_table(topic, pa.table({"key": keys, "text": [str(key) for key in keys]}, schema=COLUMNS))
    producer.flush()


def write(store: Store, *keys: int, commit: bool = True, name: str = "p", version: int | None = None) -> None:
    producer = open_transaction(store, name)
    send(producer, *keys)
    if commit:
        producer.commit_transaction(version=version)
    else:
        producer.abort_transaction()


def seal(store: Store) -> None:
    seal_segments(store)


def compact(store: Store) -> None:
    seal(store)
    compact_files(store)


def newest(store: Store) -> list[dict[str, Any]]:
    return list(versions(store.object_store, "t"))[-1]


def changes(actions: list[dict[str, Any]]) -> dict[str, set[bool]]:
    """Return whether the files that a version adds and removes change data."""
    return {
        name: {action[name]["dataChange"] for action in actions if name in action}
        for name in ("add", "remove")
        if any(name in action for action in actions)
    }


def keys(store: Store, directory: Path, version: int | None = None) -> list[int]:
    rows = rows_by_delta(copy_to(directory, store.object_store, "t"), version)
    return sorted(row[2] for row in rows)
