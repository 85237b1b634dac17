"""Published topics as other engines see them, read by the rules of Delta's protocol alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
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


def rows_by_stream(
    objects: ObjectStore, topic: str, *, skip_change_commits: bool = False
) -> list[tuple[int, int]] | None:
    """Return partition and offset of the rows that a Delta stream takes, in order, from version 0 on.

    A stream takes the rows of each file that a version adds with ``dataChange``. The result is None if a version
    removes rows, where a stream stops, or if vacuum has deleted a file.

    Args:
        skip_change_commits: the stream has Delta's option ``skipChangeCommits``. It skips a version that removes rows
            as a whole, and goes on.
    """
    taken: list[tuple[int, int]] = []
    for actions in versions(objects, topic):
        if removes_rows(actions):
            if skip_change_commits:
                continue
            return None
        for add in (action["add"] for action in actions if action.get("add", {}).get("dataChange")):
            try:
                taken += [row[:2] for row in rows_of(objects, topic, add, "_offset_delta")]
            except ObjectNotFound:
                return None
    return sorted(taken)


def check_versions(objects: ObjectStore, topic: str, *, overwrites: Collection[int] = ()) -> None:
    """Check each version against the one before, as far as vacuum has left their files.

    A version removes rows or adds rows, never both, unless it shows an overwrite. If it has the slot of the version
    before, it adds no rows. A Delta stream takes exactly the rows that it adds, so each row once.

    Args:
        overwrites: the slots that replaced all rows.
    """
    before: Counter[tuple[int, int]] | None = Counter()
    slot = -1
    for table, actions in zip(tables(objects, topic), versions(objects, topic), strict=True):
        named = f"version {table.version} of {topic}, slot {table.slot}"
        assert table.slot >= slot, f"{named} goes back from slot {slot}"
        rows = Counter(table.places()) if table.has_all_files else None
        if before is not None and rows is not None:
            added, removed = rows - before, before - rows
            assert not (added and table.slot == slot), f"{named} adds rows at the slot of the version before"
            if added and removed:
                assert any(slot < each <= table.slot for each in overwrites), f"{named} adds and removes rows"
                assert not rows & before, f"{named} keeps rows before an overwrite"
            assert removes_rows(actions) == bool(removed), f"{named} removes {len(removed)} rows"
            if not removed:
                files = (action["add"] for action in actions if action.get("add", {}).get("dataChange"))
                taken = Counter(row[:2] for add in files for row in rows_of(objects, topic, add, "_offset_delta"))
                assert taken == added, f"{named} adds {len(added)} rows, and a stream takes {taken.total()}"
        before, slot = rows, table.slot


def removes_rows(actions: list[dict[str, Any]]) -> bool:
    """Return whether a version removes rows, so far as a Delta stream can tell."""
    return any(action.get("remove", {}).get("dataChange") for action in actions)
