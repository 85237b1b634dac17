"""An Iceberg table at one version: its manifests, and the files that they name."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from eoslog.iceberg.iceberg_bounds import end_delta
from eoslog.iceberg.manifests import DELETED, Entry, ManifestFile
from eoslog.iceberg.table_metadata import Snapshot, TableMetadata
from eoslog.publication.published_file import FileRange
from eoslog.publication.topic_snapshot import table_id
from eoslog.session.metrics import Published
from eoslog.state.store_state import Topic


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, and its entries whose files belong to the table."""

    file: ManifestFile
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, file: ManifestFile, entries: Sequence[Entry]) -> Manifest:
        """Return a manifest. Its entries get the values that they inherit from it.

        The ids of rows are assigned as Iceberg's ``ManifestReader`` does: the files without an id of their own follow
        each other.
        """
        inherited = {
            "snapshot_id": file.added_snapshot_id,
            "sequence_number": file.sequence_number,
            "file_sequence_number": file.sequence_number,
        }

        next_row_id = file.first_row_id

        def complete(entry: Entry) -> Entry:
            nonlocal next_row_id
            missing: dict[str, object] = {
                name: value for name, value in inherited.items() if getattr(entry, name) is None
            }
            data_file = entry.data_file
            if next_row_id is not None and data_file.first_row_id is None:
                missing["data_file"] = data_file.model_copy(update={"first_row_id": next_row_id})
                next_row_id += data_file.record_count
            return entry.model_copy(update=missing) if missing else entry

        return cls(file, tuple(complete(each) for each in entries if each.status != DELETED))

    def with_row_ids(self, first_row_id: int) -> Manifest:
        """Return the manifest with row ids for the files that have none."""
        return Manifest.of(self.file.model_copy(update={"first_row_id": first_row_id}), self.entries)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table at one version."""

    version: int = 0
    """The newest version, as its file name has it; 0 if the table has none."""
    metadata: TableMetadata | None = None
    """The metadata of this version; None if the table has no version, or if the metadata cannot be read."""
    snapshot: Snapshot | None = None
    """eoslog's newest snapshot; None if there is none whose manifests can be read."""
    manifests: tuple[Manifest, ...] = ()
    """The manifests of eoslog's newest snapshot."""
    is_foreign: bool = False
    """True if another program put the newest version, or damaged it."""
    files: Mapping[str, Entry] = field(default_factory=dict)
    """The entries of eoslog's newest snapshot, by path relative to the topic's directory."""

    @property
    def paths(self) -> Collection[str]:
        """The paths of the files, relative to the topic's directory."""
        return self.files.keys()

    @property
    def newest(self) -> Published | None:
        """The slot that eoslog's newest snapshot shows."""
        return None if self.snapshot is None else self.snapshot.published

    def published(self, store_id: str) -> Published | None:
        """Return the slot of a store that the version shows; None if the store has published no version."""
        return self.newest if self.snapshot is not None and self.snapshot.store_id == store_id else None

    def range_of(self, path: str) -> FileRange | None:
        """Return the rows of a file of the table; None if its entry does not state them."""
        file = self.files[path].data_file
        begin = file.partition.base_offset
        try:
            end = begin + end_delta(file.upper())
        except (LookupError, struct.error):
            return None
        return FileRange(file.partition.topic_partition, begin, end, file.record_count)

    def is_of(self, topic: Topic) -> bool:
        """Return False if the table shows an earlier topic of this name, or has no version."""
        return self.metadata is not None and self.metadata.table_uuid == table_id(topic)
