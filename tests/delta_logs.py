"""Published topics as other engines see them, read by the rules of Delta's protocol alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.storage.object_store import ObjectNotFound, ObjectStore


@dataclass
class PublishedTable:
    """A published topic at one version."""

    objects: ObjectStore
    topic: str
    version: int = -1
    slot: int = -1
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The actions that added the files, by path."""

    @property
    def has_all_files(self) -> bool:
        """Whether no file was deleted since, as vacuum does with those of old versions."""
        try:
            for path in self.files:
                self.objects.get_range(f"{self.topic}/{path}", 0, 1)
        except ObjectNotFound:
            return False
        return True

    def rows(self, column: str = "value") -> list[tuple[int, int, Any]]:
        """Return partition, offset and the value of a column of all rows, in order."""
        return sorted(row for add in self.files.values() for row in rows_of(self.objects, self.topic, add, column))

    def places(self) -> list[tuple[int, int]]:
        """Return partition and offset of all rows, in order."""
        return [row[:2] for row in self.rows("_offset_delta")]


def versions(objects: ObjectStore, topic: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the actions of each version of a topic's Delta log, in order."""
    for info in sorted(objects.list(f"{topic}/_delta_log/"), key=lambda info: info.path):
        if info.path.endswith(".json"):
            yield [json.loads(line) for line in objects.get(info.path).body.splitlines()]


def slot_of(actions: list[dict[str, Any]]) -> int:
    """Return the slot that a version shows."""
    (slot,) = [action["txn"]["version"] for action in actions if "txn" in action]
    return int(slot)


def tables(objects: ObjectStore, topic: str) -> Iterator[PublishedTable]:
    """Yield the table at each version."""
    files: dict[str, dict[str, Any]] = {}
    for version, actions in enumerate(versions(objects, topic)):
        for action in actions:
            if "remove" in action:
                del files[action["remove"]["path"]]
        for action in actions:
            if "add" in action:
                assert action["add"]["path"] not in files
                files[action["add"]["path"]] = action["add"]
        yield PublishedTable(objects, topic, version, slot_of(actions), dict(files))


def rows_of(objects: ObjectStore, topic: str, add: dict[str, Any], column: str) -> list[tuple[int, int, Any]]:
    """Return partition, offset and the value of a column of the rows of a file."""
    place = add["partitionValues"]
    table = pq.read_table(pa.BufferReader(objects.get(f"{topic}/{add['path']}").body))
    assert table.num_rows == json.loads(add["stats"])["numRecords"]
    partition, base_offset = int(place["_partition"]), int(place["_base_offset"])
    deltas = table.column("_offset_delta").to_pylist()
    values = table.column(column).to_pylist()
    return [(partition, base_offset + delta, value) for delta, value in zip(deltas, values, strict=True)]


def rows_by_stream(objects: ObjectStore, topic: str) -> list[tuple[int, int]] | None:
    """Return partition and offset of the rows that a Delta stream takes, in order, from version 0 on.

    A stream takes the rows of each file that a version adds with ``dataChange``. The result is None if a version
    removes rows, where a stream stops, or if vacuum has deleted a file.
    """
    taken: list[tuple[int, int]] = []
    for actions in versions(objects, topic):
        if any(action.get("remove", {}).get("dataChange") for action in actions):
            return None
        for add in (action["add"] for action in actions if action.get("add", {}).get("dataChange")):
            try:
                taken += [row[:2] for row in rows_of(objects, topic, add, "_offset_delta")]
            except ObjectNotFound:
                return None
    return sorted(taken)
