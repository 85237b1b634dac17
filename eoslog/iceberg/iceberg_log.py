"""The log of one Iceberg table: its versions, put if absent, and the hint at the newest one.

The layout is that of Iceberg's Hadoop catalog: ``vN.metadata.json`` is version N, and ``version-hint.text`` has the
newest number. Engines therefore read the table by the path of its directory.

Iceberg cannot keep all other writers away. So the log checks each version. A version is eoslog's own if its current
snapshot names the store and the slot, and if its manifests are those that eoslog writes. After any other version the
next one restores the files of eoslog's newest snapshot. If this snapshot cannot be read, the table begins anew. The
sequence number of a snapshot is the number of its version, so it grows even then.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from eoslog.errors import EosLogError
from eoslog.format.data_file import DECODING_ERRORS
from eoslog.format.topic_schemas import file_schema, stored_schema
from eoslog.iceberg.iceberg_bounds import bounds, null_counts
from eoslog.iceberg.iceberg_schema import name_mapping, topic_schema
from eoslog.iceberg.iceberg_table import IcebergTable, Manifest
from eoslog.iceberg.manifests import (
    DataFile,
    Entry,
    ManifestFile,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from eoslog.iceberg.next_manifests import next_manifests
from eoslog.iceberg.rest_catalog import CatalogFailed, RestCatalog
from eoslog.iceberg.table_metadata import (
    SLOT,
    STORE,
    Description,
    Snapshot,
    TableMetadata,
    decode_metadata,
    encode_metadata,
    new_metadata,
)
from eoslog.publication.changes import Change
from eoslog.publication.table_log import TableLog
from eoslog.publication.table_paths import ICEBERG, ICEBERG_METADATA
from eoslog.publication.topic_snapshot import TopicSnapshot, table_id
from eoslog.state.partition_state import NO_SLOT
from eoslog.storage.conditional_put import Lost, Unknown, put_next
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, ObjectStore, StoredObject

T = TypeVar("T")
_logger = logging.getLogger(__name__)
RETENTION_MS = 24 * 3600 * 1000
"""Snapshots, and the objects that no version needs, are kept for this long (ms). The data files of older snapshots may
be deleted."""
_TRUSTED_MS = RETENTION_MS // 2
"""A process trusts the versions that it has read for this long (ms). Vacuum may have deleted later versions by then."""
MOST_SNAPSHOTS = 500
"""The number of snapshots that a version lists at most. Each version repeats them."""

_HINT = "version-hint.text"
_VERSION = re.compile(r"v([1-9][0-9]{0,15})\.metadata\.json", re.ASCII)
_NUMBER = re.compile(rb"[1-9][0-9]{0,15}\s*")
_MANIFEST_LIST = re.compile(r"snap-[0-9]{1,19}-1-[0-9a-f]{32}\.avro", re.ASCII)
_MANIFEST = re.compile(r"[0-9a-f]{32}-m[0-9]{1,9}\.avro", re.ASCII)
_PUBLISH = "eoslog.publish"
"""The table property that is ``none`` if the topic is not published any more, and vacuum needs to delete files."""
_APPEND = "append"
"""The operation of a snapshot that only adds rows."""
_PROPERTIES = {
    # No engine knows this format, so an engine that is about to write a file fails.
    "write.format.default": "eoslog",
    "write.delete.format.default": "eoslog",
    # Iceberg's procedures that delete files refuse such a table. Its files may belong to open transactions.
    "gc.enabled": "false",
}


class IcebergLog(TableLog):
    """The log of one Iceberg table as one process sees it. Only one thread at a time may use it."""

    def __init__(
        self, store: ObjectStore, environment: Environment, topic: str, catalog: RestCatalog | None = None
    ) -> None:
        """Set up the log of a topic's table. Its directory is that of the topic below ``__iceberg``.

        Args:
            catalog: the catalog in which engines find the table; None: there is no catalog.
        """
        self._catalog = catalog
        self._store = store
        self._environment = environment
        self._topic = topic
        self.directory = f"{ICEBERG}{topic}"
        self._directory = f"{self.directory}/{ICEBERG_METADATA}"
        self._location = f"{store.root}/{self.directory}"
        self._files_root = f"{store.root}/{topic}/"
        """The beginning of the paths of all data files."""
        self.table: IcebergTable = IcebergTable()
        self._digest: bytes | None = None
        """The digest of the newest known version."""
        self._manifests: tuple[Manifest, ...] = ()
        """The manifests that were read last. A later version has most of them, too."""
        self._has_files = False
        """True if the manifests of the newest known version were read. Only publishers need them."""
        self._refreshed_ms = 0
        """When the newest version was read (elapsed time, ms)."""
        self._refreshed_date_ms = 0
        """The store's date before the newest version was read (ms)."""

    def _path(self, version: int) -> str:
        return f"{self._directory}v{version}.metadata.json"

    @property
    def _hint_path(self) -> str:
        return f"{self._directory}{_HINT}"

    def refresh(self, *, check: bool = False) -> IcebergTable:
        now_ms, date_ms = self._environment.monotonic_ms(), self._store.clock.last_date_ms
        if self.table.version == 0 or now_ms > self._refreshed_ms + _TRUSTED_MS:
            self._open(check=check)
        else:
            known = [self._hint_path, self._path(self.table.version)] if check else []
            *checked, found = self._store.get_many([*known, self._path(self.table.version + 1)])
            newest = checked[1] if check else None
            if check and (newest is None or _digest(newest.body) != self._digest):
                self._open(check=True)
            else:
                if found is not None:
                    self._follow(self.table.version + 1, found, with_files=check)
                elif newest is not None and not self._has_files:
                    self._follow(self.table.version, newest, with_files=True)
                if check and _hinted(checked[0]) != self.table.version:
                    self._put_hint()
        self._refreshed_ms, self._refreshed_date_ms = now_ms, date_ms
        return self.table

    def _open(self, *, check: bool) -> None:
        """Find the newest version. Another program may have removed the hint, or made it point at another version."""
        self.table, self._digest = IcebergTable(), None
        hint = hinted = _hinted(self._get(self._hint_path))
        found = None if hinted is None else self._get(self._path(hinted))
        if hinted is None or found is None:
            listed = (info.path.removeprefix(self._directory) for info in self._store.list(self._directory))
            names = map(_VERSION.fullmatch, listed)
            hinted = max((int(name[1]) for name in names if name is not None), default=None)
            found = None if hinted is None else self._get(self._path(hinted))
        if hinted is not None and found is not None:
            self._follow(hinted, found, with_files=check)
            if check and hint != self.table.version:
                self._put_hint()

    def _follow(self, version: int, found: StoredObject, *, with_files: bool) -> None:
        """Load the newest version, starting with one that was read.

        Args:
            with_files: also read the manifests.
        """
        while (later := self._get(self._path(version + 1))) is not None:
            version, found = version + 1, later
        # If this fails, the version is 0, and the next refresh opens the log again.
        self.table = IcebergTable()
        self.table = self._loaded(version, found.body, with_files=with_files)
        self._manifests = self.table.manifests or self._manifests
        self._digest, self._has_files = _digest(found.body), with_files
        if self.table.is_foreign:
            _logger.warning(
                "%s: another program has changed the Iceberg table of topic %s. The next publication restores it",
                self._store.url,
                self._topic,
            )

    def _get(self, path: str) -> StoredObject | None:
        return self._store.get_many([path])[0]

    def _loaded(self, version: int, body: bytes, *, with_files: bool) -> IcebergTable:
        """Return the table at a version, with or without its files."""
        try:
            metadata = self._decoded(self._path(version), body, decode_metadata)
        except (ObjectNotFound, *DECODING_ERRORS):
            return IcebergTable(version, is_foreign=True)
        snapshot = max(self._own(metadata), key=lambda each: each.sequence_number, default=None)
        if snapshot is None:
            return IcebergTable(version, metadata, is_foreign=True)
        is_foreign = snapshot.snapshot_id != metadata.current_snapshot_id
        if not with_files:
            return IcebergTable(version, metadata, snapshot, is_foreign=is_foreign)
        try:
            manifests = self._read_manifests(snapshot)
            files = {
                entry.data_file.file_path.removeprefix(self._files_root): entry
                for manifest in manifests
                for entry in manifest.entries
                if self._is_path(entry.data_file.file_path)
            }
            if len(files) != sum(len(manifest.entries) for manifest in manifests):
                raise ValueError("it names a file twice, or one of another directory")
        except (ObjectNotFound, *DECODING_ERRORS) as error:
            _logger.warning("%s: a snapshot of %s cannot be read: %s", self._store.url, self.directory, error)
            return IcebergTable(version, metadata, is_foreign=True)
        return IcebergTable(version, metadata, snapshot, manifests, is_foreign=is_foreign, files=files)

    def _own(self, metadata: TableMetadata) -> list[Snapshot]:
        """Return the snapshots that eoslog made, in their order."""
        if metadata.location != self._location:
            return []
        return [
            each
            for each in metadata.snapshots
            if each.store_id is not None and self._object_path(each.manifest_list, _MANIFEST_LIST) is not None
        ]

    def _is_path(self, path: str) -> bool:
        return path.startswith(self._files_root) and len(path) > len(self._files_root)

    def _object_path(self, path: str, name: re.Pattern[str]) -> str | None:
        """Return the path of an object of the log from a path in the table's metadata; None if it is no such object."""
        directory = f"{self._location}/{ICEBERG_METADATA}"
        found = path.removeprefix(directory)
        return f"{self._directory}{found}" if path.startswith(directory) and name.fullmatch(found) else None

    def _read_manifests(self, snapshot: Snapshot) -> tuple[Manifest, ...]:
        """Return the manifests of a snapshot.

        Raises:
            ObjectNotFound, DECODING_ERRORS: the manifest list or a manifest is missing or damaged.
        """
        files = self._read_manifest_list(snapshot)
        found = {each.file.manifest_path: each for each in self._manifests}
        missing = [each for each in files if each.manifest_path not in found]
        paths = [self._object_path(each.manifest_path, _MANIFEST) for each in missing]
        checked = [path for path in paths if path is not None]
        if len(checked) != len(missing):
            raise ValueError("it names a manifest of another directory")
        for file, path, stored in zip(missing, checked, self._store.get_many(checked), strict=True):
            if stored is None:
                raise ValueError(f"{file.manifest_path} is missing")
            entries = self._decoded(path, stored.body, partial(_entries, file))
            found[file.manifest_path] = Manifest.of(file, entries)
        # An upgrade to version 3 gives row ids to the files of manifests that were there before.
        known = ((file, found[file.manifest_path]) for file in files)
        return tuple(each if each.file == file else Manifest.of(file, each.entries) for file, each in known)

    def _read_manifest_list(self, snapshot: Snapshot) -> list[ManifestFile]:
        path = self._object_path(snapshot.manifest_list, _MANIFEST_LIST)
        if path is None:
            raise ValueError("its manifest list has the path of another object")
        return self._decoded(path, self._store.get(path).body, partial(_manifest_files, snapshot))

    def _decoded(self, path: str, body: bytes, decode: Callable[[bytes], T]) -> T:
        """Decode an object that was read. A read may be cut short, so only two equal reads show that it is damaged.

        Raises:
            ObjectNotFound, DECODING_ERRORS: the object is gone or damaged.
        """
        while True:
            try:
                return decode(body)
            except DECODING_ERRORS:
                again = self._store.get(path).body
                if again == body:
                    raise
                body = again

    def describes(self, snapshot: TopicSnapshot) -> bool:
        metadata = self.table.metadata
        return metadata is not None and metadata.description == self._description(snapshot)

    def _description(self, snapshot: TopicSnapshot) -> Description:
        topic = snapshot.topic
        return Description(
            table_uuid=table_id(topic),
            location=self._location,
            table_schema=topic_schema(topic),
            properties=_PROPERTIES | {"schema.name-mapping.default": name_mapping(topic)},
            format_version=topic.config.iceberg_format_version,
        )

    def put_change(self, change: Change) -> bool:
        snapshot, topic = change.snapshot, change.snapshot.topic
        numbered = file_schema(stored_schema(topic), topic.topic_schema.arrow)
        added = []
        for file in change.added:
            lower, upper = bounds(file.statistics, numbered)
            added.append(
                DataFile.of(
                    path=f"{self._files_root}{file.path}",
                    place=(file.range.partition, file.range.base_offset),
                    rows=file.range.rows,
                    size=file.size,
                    nulls=null_counts(file.statistics, numbered),
                    lower=lower,
                    upper=upper,
                )
            )
        return self._put(
            self._description(snapshot),
            _operation(change, is_foreign=self.table.is_foreign),
            published={STORE: snapshot.store_id, SLOT: str(change.slot)},
            time_ms=snapshot.time_ms,
            added=added,
            removed=change.removed,
            continues=self.table.is_of(topic),
        )

    def put_withdrawal(self, store_id: str, time_ms: int) -> bool:
        table = self.table
        if table.metadata is None or table.snapshot is None:
            return True
        description = table.metadata.description
        is_announced = description.properties.get(_PUBLISH) == "none"
        properties = description.properties | {_PUBLISH: "none"}
        schema = description.table_schema
        if not isinstance(schema.get("schema-id"), int):
            schema = table.metadata.schema_of(table.snapshot) or {"type": "struct", "schema-id": 0, "fields": []}
        # The rows are those of the slot of the version before, less the removed ones.
        last = table.published(store_id)
        return self._put(
            description.model_copy(update={"properties": properties, "table_schema": schema}),
            "delete" if is_announced else _APPEND,
            published={STORE: store_id, SLOT: str(max(0, NO_SLOT if last is None else last.slot))},
            time_ms=time_ms,
            added=[],
            removed=list(table.paths) if is_announced else [],
            continues=True,
        )

    def _put(
        self,
        description: Description,
        operation: str,
        *,
        published: Mapping[str, str],
        time_ms: int,
        added: Sequence[DataFile],
        removed: Sequence[str],
        continues: bool,
    ) -> bool:
        """Put the next version of the table.

        Args:
            published: the store and the slot, for the snapshot's summary.
            removed: the paths of the removed files, relative to the topic's directory.
            continues: False if the table shows another topic from this version on.
        """
        self._environment.reached("iceberg.version.planned")
        table, version = self.table, self.table.version + 1
        snapshot_id = int(self._environment.new_id()[:15], 16)
        objects: list[tuple[str, bytes]] = []

        def write(entries: Sequence[Entry]) -> Manifest:
            name = f"{self._environment.new_id()}-m{len(objects)}.avro"
            body = encode_manifest(entries, description.table_schema, description.format_version)
            objects.append((f"{self._directory}{name}", body))
            path = f"{self._location}/{ICEBERG_METADATA}{name}"
            file = ManifestFile.of(path, len(body), entries, snapshot_id=snapshot_id, sequence_number=version)
            return Manifest.of(file, entries)

        gone = [table.files[path] for path in removed]
        manifests = next_manifests(
            table.manifests,
            added,
            {each.data_file.file_path for each in gone},
            snapshot_id=snapshot_id,
            write=write,
        )
        first_row_id = added_rows = None
        if description.format_version >= 3:
            first_row_id = table.metadata.next_row_id or 0 if continues and table.metadata is not None else 0
            manifests, next_row_id = _with_row_ids(manifests, first_row_id)
            added_rows = next_row_id - first_row_id
        name = f"snap-{snapshot_id}-1-{self._environment.new_id()}.avro"
        body = encode_manifest_list(
            (each.file for each in manifests),
            snapshot_id=snapshot_id,
            sequence_number=version,
            format_version=description.format_version,
        )
        self._store.put_new([*objects, (f"{self._directory}{name}", body)])
        self._environment.reached("iceberg.manifests.put")
        if self._is_outdated():
            return False
        earlier = self._kept_snapshots(time_ms) if continues and table.metadata is not None else []
        before_ms = table.metadata.last_updated_ms if table.metadata is not None else -1
        live = [entry for manifest in manifests for entry in manifest.entries]
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=earlier[-1].snapshot_id if earlier else None,
            sequence_number=version,
            timestamp_ms=max(0, time_ms, before_ms + 1),
            manifest_list=f"{self._location}/{ICEBERG_METADATA}{name}",
            schema_id=description.table_schema["schema-id"],
            first_row_id=first_row_id,
            added_rows=added_rows,
            summary={
                "operation": operation,
                "added-data-files": str(len(added)),
                "added-records": str(sum(each.record_count for each in added)),
                "deleted-data-files": str(len(gone)),
                "deleted-records": str(sum(each.data_file.record_count for each in gone)),
                "total-data-files": str(len(live)),
                "total-records": str(sum(each.data_file.record_count for each in live)),
                "total-delete-files": "0",
                "total-position-deletes": "0",
                "total-equality-deletes": "0",
                **published,
            },
        )
        schemas = [] if table.metadata is None else _schemas_of(table.metadata, earlier, description)
        metadata = new_metadata(description, [*earlier, snapshot], schemas, sequence_number=version)
        body = encode_metadata(metadata)
        match put_next(self._store, self._environment, self._path(version), body):
            case Lost():
                return False
            case Unknown(error):
                raise error
        if self._is_outdated():
            # The put may have landed where a version was deleted. Then the hint points at a later version.
            return False
        files = {entry.data_file.file_path.removeprefix(self._files_root): entry for entry in live}
        self._manifests = tuple(manifests)
        self.table = IcebergTable(version, metadata, snapshot, self._manifests, files=files)
        self._digest, self._has_files = _digest(body), True
        self._environment.reached("iceberg.version.put")
        self._put_hint()
        return True

    def _is_outdated(self) -> bool:
        """Return True if the next version may have been put and deleted since the newest one was read.

        The elapsed time of a process may stand still while its host is suspended, and the store's dates do not.
        """
        is_old = self._environment.monotonic_ms() > self._refreshed_ms + _TRUSTED_MS
        return is_old or self._store.clock.latest_claim_ms > self._refreshed_date_ms + _TRUSTED_MS

    def _kept_snapshots(self, time_ms: int) -> list[Snapshot]:
        """Return the earlier snapshots that the next version lists.

        A snapshot was the newest one until the time of the next one. It is listed for ``RETENTION_MS`` after this time.
        The last snapshot that added rows is listed for longer, and so are those after it: a stream of Spark that has
        read all rows stands there, and the next version continues it.
        """
        if self.table.metadata is None:
            return []
        own = self._own(self.table.metadata)
        newest = len(own) - 1
        last_append = max((number for number, each in enumerate(own) if each.operation == _APPEND), default=newest)
        kept = [
            each
            for number, each in enumerate(own)
            if number >= last_append or own[number + 1].timestamp_ms >= time_ms - RETENTION_MS
        ]
        return kept[1 - MOST_SNAPSHOTS :]

    def _put_hint(self) -> None:
        """Put the number of the newest version. The version is published in any case, so a failure is only logged."""
        try:
            self._tell_newest(lambda version: self._store.put(self._hint_path, str(version).encode()))
        except EosLogError as error:
            _logger.warning("%s: the hint of %s was not written: %s", self._store.url, self.directory, error)
        else:
            self._environment.reached("iceberg.hint.put")

    def _tell_newest(self, tell: Callable[[int], object]) -> None:
        """Call a function with the newest version.

        Another publisher may put a later version at the same time, and tell it before this one. So look for a later
        version after each call.
        """
        told, version = 0, self.table.version
        while told != version:
            tell(version)
            told = version
            while self._get(self._path(version + 1)) is not None:
                version += 1

    def announce(self) -> bool:
        catalog = self._catalog
        if catalog is None:
            return True

        def point(version: int) -> None:
            metadata_location = f"{self._location}/{ICEBERG_METADATA}v{version}.metadata.json"
            self._environment.uninterrupted(
                lambda: catalog.point(self._topic, location=self._location, metadata_location=metadata_location)
            )

        self._environment.reached("iceberg.catalog.planned")
        if self._is_outdated():
            # The process was paused. Vacuum may have deleted the version, so the next publication looks again.
            return False
        try:
            self._tell_newest(point)
        except (CatalogFailed, EosLogError) as error:
            _logger.warning(
                "%s: the newest version of %s is published, but the catalog %r does not know it: %s. "
                "The next publication tries again",
                self._store.url,
                self.directory,
                catalog,
                error,
            )
            return False
        return True

    def unneeded_objects(self, objects: Sequence[ObjectInfo], now_ms: int) -> list[str]:
        table = self.refresh(check=True)
        if table.is_foreign or table.metadata is None:
            return []  # The next publication restores the table. It may need any of the objects.
        old_ms = now_ms - RETENTION_MS
        needed = {self._hint_path, self._path(table.version), *self._needed(self._own(table.metadata))}
        return [info.path for info in objects if info.path not in needed and info.last_modified_ms < old_ms]

    def _needed(self, snapshots: Sequence[Snapshot]) -> Iterator[str]:
        """Yield the paths of the manifest lists of some snapshots, and of their manifests."""
        for snapshot in snapshots:
            path = self._object_path(snapshot.manifest_list, _MANIFEST_LIST)
            if path is not None:
                yield path
                try:
                    files = self._read_manifest_list(snapshot)
                except (ObjectNotFound, *DECODING_ERRORS):
                    continue  # No engine can read this snapshot.
                found = (self._object_path(each.manifest_path, _MANIFEST) for each in files)
                yield from (each for each in found if each is not None)


def _entries(file: ManifestFile, body: bytes) -> list[Entry]:
    """Decode a manifest.

    Raises:
        DECODING_ERRORS: it is not the one that the manifest list describes.
    """
    if len(body) != file.manifest_length:
        raise ValueError(f"{file.manifest_path} has another length")
    return decode_manifest(body)


def _manifest_files(snapshot: Snapshot, body: bytes) -> list[ManifestFile]:
    """Decode the manifest list of a snapshot.

    Raises:
        DECODING_ERRORS: it does not name as many files as the snapshot has.
    """
    found = decode_manifest_list(body)
    files = sum(each.live_files_count for each in found)
    if str(files) != snapshot.summary.get("total-data-files"):
        raise ValueError(f"{snapshot.manifest_list} names {files} files, and its snapshot has another number")
    return found


def _with_row_ids(manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
    """Give row ids to each manifest without them, as Iceberg's ``ManifestListWriter`` does in version 3.

    Returns:
        the manifests, and the next row id.
    """
    found = []
    for manifest in manifests:
        if manifest.file.first_row_id is None:
            manifest = manifest.with_row_ids(next_row_id)
            next_row_id += manifest.file.live_rows_count
        found.append(manifest)
    return found, next_row_id


def _operation(change: Change, *, is_foreign: bool) -> str:
    """Return Iceberg's name of a version's operation. A stream takes the files of ``append`` and skips ``replace``."""
    if not change.removed and not is_foreign:
        return _APPEND
    if change.removes_rows or change.new_files or is_foreign:
        return "overwrite" if change.added or not change.removed else "delete"
    return "replace"


def _schemas_of(
    metadata: TableMetadata, snapshots: Sequence[Snapshot], description: Description
) -> list[dict[str, object]]:
    """Return the schemas of some snapshots that have another schema than the table has now."""
    wanted = {each.schema_id for each in snapshots} - {description.table_schema["schema-id"]}
    return [each for each in metadata.schemas if each.get("schema-id") in wanted]


def _hinted(found: StoredObject | None) -> int | None:
    """Return the version at which a hint points; None if it has none."""
    return int(found.body) if found is not None and _NUMBER.fullmatch(found.body) else None


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
