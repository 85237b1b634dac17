"""Published topics as Iceberg tables, read by the rules of Iceberg's table spec alone."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.storage.object_store import ObjectNotFound, ObjectStore

DELETED = 2


@dataclass
class IcebergVersion:
    """A published topic at one version."""

    objects: ObjectStore
    topic: str
    version: int
    metadata: dict[str, Any]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The data files of the newest snapshot, by path."""
    added: list[dict[str, Any]] = field(default_factory=list)
    """The data files that the newest snapshot added, as a stream finds them."""

    @property
    def snapshot(self) -> dict[str, Any]:
        (found,) = [each for each in self.metadata["snapshots"] if each["snapshot-id"] == self.snapshot_id]
        return dict(found)

    @property
    def snapshot_id(self) -> int:
        return int(self.metadata["current-snapshot-id"])

    @property
    def operation(self) -> str:
        return str(self.snapshot["summary"]["operation"])

    @property
    def slot(self) -> int:
        return int(self.snapshot["summary"]["eoslog.slot"])

    @property
    def has_all_files(self) -> bool:
        """Whether no file was deleted since, as vacuum does with those of old versions."""
        try:
            for path in self.files:
                self.objects.get_range(path, 0, 1)
        except ObjectNotFound:
            return False
        return True

    def rows(self, column: str = "_offset_delta") -> list[tuple[int, int, Any]]:
        """Return partition, offset and the value of a column of all rows, in order."""
        return sorted(row for file in self.files.values() for row in rows_of(self.objects, file, column))

    def places(self) -> list[tuple[int, int]]:
        """Return partition and offset of all rows, in order."""
        return [row[:2] for row in self.rows()]


def path_of(objects: ObjectStore, path: str) -> str:
    """Return the path of an object from its path or URL in an Iceberg table."""
    assert path.startswith(f"{objects.root}/")
    return path.removeprefix(f"{objects.root}/")


def avro_rows(body: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(body)))


def manifests(objects: ObjectStore, snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the manifests of a snapshot, as its manifest list describes them."""
    return avro_rows(objects.get(path_of(objects, snapshot["manifest-list"])).body)


def metadata_of(objects: ObjectStore, topic: str) -> dict[int, dict[str, Any]]:
    """Return the metadata of the versions that are there, by version."""
    found = {}
    for info in objects.list(f"__iceberg/{topic}/metadata/"):
        name = re.fullmatch(r"v([0-9]+)\.metadata\.json", info.path.rpartition("/")[2])
        if name is not None:
            found[int(name[1])] = json.loads(objects.get(info.path).body)
    return dict(sorted(found.items()))


def hint_of(objects: ObjectStore, topic: str) -> int:
    return int(objects.get(f"__iceberg/{topic}/metadata/version-hint.text").body)


def iceberg_versions(objects: ObjectStore, topic: str) -> Iterator[IcebergVersion]:
    """Yield the table at each version that is there, in order."""
    for version, metadata in metadata_of(objects, topic).items():
        yield loaded(IcebergVersion(objects, topic, version, metadata))


def newest_version(objects: ObjectStore, topic: str) -> IcebergVersion:
    """Return the table at the version to which the hint points, where all engines start."""
    version = hint_of(objects, topic)
    metadata = json.loads(objects.get(f"__iceberg/{topic}/metadata/v{version}.metadata.json").body)
    return loaded(IcebergVersion(objects, topic, version, metadata))


def loaded(found: IcebergVersion) -> IcebergVersion:
    """Read the manifests of a version."""
    for manifest in manifests(found.objects, found.snapshot):
        body = found.objects.get(path_of(found.objects, manifest["manifest_path"])).body
        assert len(body) == manifest["manifest_length"]
        entries = avro_rows(body)
        statuses = Counter(entry["status"] for entry in entries)
        counts = [manifest[name] for name in ("existing_files_count", "added_files_count", "deleted_files_count")]
        assert counts == [statuses[status] for status in range(3)]
        next_row_id = manifest.get("first_row_id")
        for entry in entries:
            if entry["status"] == DELETED:
                continue
            if next_row_id is not None and entry["data_file"].get("first_row_id") is None:
                entry["data_file"]["first_row_id"] = next_row_id
                next_row_id += entry["data_file"]["record_count"]
            path = path_of(found.objects, entry["data_file"]["file_path"])
            assert path not in found.files
            found.files[path] = entry["data_file"]
            if entry["status"] == 1 and manifest["added_snapshot_id"] == found.snapshot_id:
                found.added.append(entry["data_file"])
    summary = found.snapshot["summary"]
    assert int(summary["total-data-files"]) == len(found.files)
    assert int(summary["total-records"]) == sum(file["record_count"] for file in found.files.values())
    return found


def check_snapshots(table: IcebergVersion) -> None:
    """Check that each snapshot that a version lists can be read, apart from its data files."""
    for snapshot in table.metadata["snapshots"]:
        metadata = table.metadata | {"current-snapshot-id": snapshot["snapshot-id"]}
        loaded(IcebergVersion(table.objects, table.topic, table.version, metadata))


def check_row_ids(table: IcebergVersion, before: IcebergVersion | None) -> None:
    """Check the row ids of a table of format version 3: each row has one of its own, which it keeps in its file."""
    metadata, snapshot = table.metadata, table.snapshot
    assert snapshot["first-row-id"] == (0 if before is None else before.metadata.get("next-row-id", 0))
    assert metadata["next-row-id"] == snapshot["first-row-id"] + snapshot["added-rows"]
    ends = [0]
    for file in sorted(table.files.values(), key=lambda each: each["first_row_id"]):
        assert file["first_row_id"] >= ends[-1], "two rows have one id"
        ends.append(file["first_row_id"] + file["record_count"])
    assert ends[-1] <= metadata["next-row-id"]
    for path, file in table.files.items():
        earlier = {} if before is None else before.files.get(path, {})
        assert earlier.get("first_row_id") in (None, file["first_row_id"]), "a row has another id than before"


def rows_of(objects: ObjectStore, file: dict[str, Any], column: str) -> list[tuple[int, int, Any]]:
    """Return partition, offset and the value of a column of the rows of a data file."""
    body = objects.get(path_of(objects, file["file_path"])).body
    assert len(body) == file["file_size_in_bytes"]
    table = pq.read_table(pa.BufferReader(body))
    assert table.num_rows == file["record_count"]
    partition, base_offset = file["partition"]["_topic_partition"], file["partition"]["_base_offset"]
    deltas = table.column("_offset_delta").to_pylist()
    values = table.column(column).to_pylist() if column in table.column_names else [None] * len(deltas)
    return [(partition, base_offset + delta, value) for delta, value in zip(deltas, values, strict=True)]


def check_iceberg_versions(objects: ObjectStore, topic: str, *, overwrites: Collection[int] = ()) -> None:
    """Check each version against the one before, as far as vacuum has left their files.

    A version appends rows, or removes or moves rows, and its operation says which. So a stream that takes the files of
    ``append`` and skips the other versions gets each row at most once.

    Args:
        overwrites: the slots that replaced all rows.
    """
    before: Counter[tuple[int, int]] | None = None
    last: IcebergVersion | None = None
    for table in iceberg_versions(objects, topic):
        if table.version == 1:
            before = Counter()
        named = f"version {table.version} of {topic}, slot {table.slot}, {table.operation}"
        assert table.snapshot["sequence-number"] == table.metadata["last-sequence-number"] == table.version, named
        if last is not None:
            assert table.version == last.version + 1, named
            assert table.slot >= last.slot, f"{named} goes back from slot {last.slot}"
            assert table.snapshot["timestamp-ms"] > last.snapshot["timestamp-ms"], named
            assert table.snapshot.get("parent-snapshot-id") == last.snapshot_id, named
        if table.metadata["format-version"] >= 3:
            check_row_ids(table, last)
        rows = Counter(table.places()) if table.has_all_files else None
        if before is not None and rows is not None:
            added, removed = rows - before, before - rows
            if last is not None and table.slot == last.slot:
                assert not added, f"{named} adds rows at the slot of the version before"
            match table.operation:
                case "append":
                    taken = Counter(row[:2] for file in table.added for row in rows_of(objects, file, "_offset_delta"))
                    assert not removed, named
                    assert taken == added, f"{named} adds {len(added)} rows, and a stream takes {taken.total()}"
                case "replace":
                    assert not added, named
                    assert not removed, named
                case "delete":
                    assert not added, named
                case "overwrite":
                    if added:
                        assert any((last.slot if last else -1) < each <= table.slot for each in overwrites), named
        before, last = rows, table
