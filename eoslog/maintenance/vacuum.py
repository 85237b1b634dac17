"""Vacuum: deletion of files that no entry names and that no later entry can name.

A file without an entry may belong to a writer that has not committed yet. So vacuum works in this order:

1. It appends an entry that moves the horizon. From then on the log refuses commits of files uploaded before it.
2. It refreshes its replica. Only now can no further entry name a file that was uploaded before the horizon.
3. It deletes the files that were uploaded before the horizon and that no entry names.

Files that an entry dropped stay for some time, because readers that planned before the drop may still read them.

If there is no space for the entry of step 1, the old horizon counts. So a vacuum of a full disk still deletes files.

A heartbeat is deleted if it was written before the horizon, and is not that of a member of a group.

A shared object has a time in its path. It is deleted if no entry may name an object of this time any more, nothing
names it, and no reader can have planned with it.

The index of a sealed segment names files of its partition. If it cannot be read, vacuum keeps all files of this
partition, and goes on with the others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from eoslog.errors import CorruptRecord, EosLogError, InvalidEntry, InvalidRequest, StorageFull
from eoslog.format.checked_files import check_file, read_file
from eoslog.format.segment_index import batches_of_index
from eoslog.log.slots import SLOTS, slot_of, slot_path
from eoslog.maintenance.known_tables import KnownTables
from eoslog.maintenance.publication import Publisher
from eoslog.publication.table_paths import DELTA_LOG, DELTA_PARTITION_COLUMN, ICEBERG, ICEBERG_METADATA
from eoslog.session.heartbeats import forgotten_heartbeats
from eoslog.session.session import Session
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import HorizonMoved, PendingDeletionsDone, TableFormat
from eoslog.state.entry_fields import SHARED_OBJECT, SHARED_OBJECTS, FileReference, shared_object_time_ms
from eoslog.state.expiry import DELETED_FILE_RETENTION_MS, STAGED_MAX_AGE_MS
from eoslog.state.partitions import newest_deletable_ms
from eoslog.state.store_state import PendingDeletion, StoreState
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, ObjectStore

_logger = logging.getLogger(__name__)
_DELETED_AT_ONCE = 500
_SHORTEST_QUIET_RETENTION_MS = 3_600_000
_DIRECTORY_OF_PARTITION = re.compile(r"[^/]+/[0-9a-f]{32}/[0-9]+/")


@dataclass(slots=True)
class VacuumReport:
    """The files that a vacuum deleted, or would delete in a dry run."""

    horizon_ms: int = 0
    """Unnamed files uploaded before this time (ms, by the store's clock) are deleted, and shared objects 24 hours after
    their upload."""
    dry_run: bool = False
    paths: list[str] = field(default_factory=list)
    bytes: int = 0
    kept_files: int = 0
    unreadable_indexes: list[str] = field(default_factory=list)
    """Indexes of segments that are missing or damaged. All files of their partitions were kept."""

    def add(self, info: ObjectInfo) -> None:
        """Add a file to the deleted ones."""
        self.paths.append(info.path)
        self.bytes += info.size


def vacuum(
    session: Session,
    *,
    staged_max_age_ms: int = STAGED_MAX_AGE_MS,
    deleted_file_retention_ms: int = DELETED_FILE_RETENTION_MS,
    dry_run: bool = False,
    known_unreadable: Collection[str] = (),
) -> VacuumReport:
    """Delete old files that no entry names, and files that entries dropped long enough ago; see ``Admin.vacuum``.

    Args:
        known_unreadable: paths of indexes that the caller knows to be missing or damaged. The log names the others, and
            the number of these.

    Returns:
        The files that were deleted, or would be deleted in a dry run.

    Raises:
        StorageFull: there is no space for an entry, and no file may be deleted without one.
    """
    log, store = session.log, session.object_store
    log.read(lambda state, slot: None)
    if deleted_file_retention_ms < _SHORTEST_QUIET_RETENTION_MS and not dry_run:
        _logger.warning(
            "%s: this vacuum deletes files that were dropped %d ms ago or earlier. Reads that began before may still "
            "need them, and then fail. If there may be such reads, keep files for 24 hours (deleted_file_retention_ms)",
            store.url,
            deleted_file_retention_ms,
        )
    now_ms = store.clock.now_ms()
    horizon_ms = max(0, now_ms - staged_max_age_ms)
    full: StorageFull | None = None
    if not dry_run:
        try:
            _move_horizon(session, now_ms, staged_max_age_ms)
        except StorageFull as error:
            # Deletions need no space. They free the space that the next vacuum needs to move the horizon.
            full = error
        horizon_ms = log.read(lambda state, slot: state.horizon_ms)
        now_ms = min(now_ms, _newest_slot_ms(session))
    state = log.read(lambda state, slot: state.frozen_copy())
    referenced = _ReferencedFiles(store, state, known_unreadable)
    report = VacuumReport(horizon_ms, dry_run, unreadable_indexes=referenced.unreadable_indexes)
    expired = _past_retention(store, state.pending_deletions, now_ms - deleted_file_retention_ms)
    waiting_deletions = state.pending_deletions[len(expired) :]
    waiting, dropped = DroppedFiles(store, waiting_deletions), DroppedFiles(store, expired)
    logs: dict[tuple[str, TableFormat], list[ObjectInfo]] = {}
    """The objects of the tables' logs, by topic and format."""
    topics = {topic.topic for topic in state.topics.values()}
    refused: list[str] = []
    for info in _objects_of_topics(store):
        old = info.last_modified_ms < horizon_ms
        if not _DIRECTORY_OF_PARTITION.match(info.path):
            topic, _, rest = info.path.partition("/")
            if rest.startswith(f"{DELTA_LOG}/"):
                logs.setdefault((topic, "delta"), []).append(info)
            elif rest.startswith(f"{DELTA_PARTITION_COLUMN}=") and topic in topics and old:
                # A Delta writer uploads its files before its version is refused. No entry can name a file there.
                refused.append(info.path)
                report.bytes += info.size
            continue
        if referenced.may_name(info.path) or waiting.may_name(info.path) or not (old or info.path in dropped):
            report.kept_files += 1
            continue
        report.add(info)
    for info in store.list(ICEBERG):
        topic, _, rest = info.path.removeprefix(ICEBERG).partition("/")
        if rest.startswith(ICEBERG_METADATA):
            logs.setdefault((topic, "iceberg"), []).append(info)
        elif topic in topics and info.last_modified_ms < horizon_ms:
            # Only another program puts data files there. The next version after its own does not name them.
            refused.append(info.path)
            report.bytes += info.size
    deletable_ms = newest_deletable_ms(replace(state, horizon_ms=max(state.horizon_ms, horizon_ms)), waiting_deletions)
    for info in store.list(SHARED_OBJECTS):
        is_old = SHARED_OBJECT.fullmatch(info.path) is not None and shared_object_time_ms(info.path) <= deletable_ms
        if referenced.may_name(info.path) or not is_old:
            report.kept_files += 1
            continue
        report.add(info)
    members = {member_id for group in state.groups.values() for member_id in group.members}
    for info in forgotten_heartbeats(store, members, horizon_ms):
        report.add(info)
    changed = {path.split("/", 1)[0] for path in report.paths}
    tables = [table for table in logs if table[0] in changed]
    report.paths += refused
    if full is not None and not report.paths:
        full.add_note("the vacuum found no file that it may delete")
        raise full
    if not dry_run:
        unreleased = _unreleased_topics(session, tables)
        report.paths = [path for path in report.paths if path.split("/", 1)[0] not in unreleased]
        _delete(store, report.paths)
        session.environment.reached("segment.vacuum.files_deleted")
        if expired and not unreleased:
            # Only after the deletion: if the process dies before, the next vacuum still knows these files. Files that
            # stay because of an unreadable index are deleted by their age, once it can be read or is dropped.
            log.append(AppendEntry(PendingDeletionsDone(slot=expired[-1].slot), unless=(InvalidEntry,)))
        for (topic, table_format), objects in logs.items():
            lock, table_log = KnownTables.of(session).lock_of(topic, table_format)
            try:
                with lock:
                    unneeded = table_log.unneeded_objects(objects, now_ms)
            except (CorruptRecord, InvalidRequest) as error:
                # Nothing shows where readers of this log start, or the library that reads it is not installed. So all
                # of it is kept. The other logs are not affected.
                _logger.warning("%s: old versions of a published table are kept: %s", store.url, error)
                continue
            _delete(store, unneeded)
    return report


def _move_horizon(session: Session, now_ms: int, staged_max_age_ms: int) -> None:
    """Move the horizon to the time ``staged_max_age_ms`` ago, if it is not beyond that.

    Raises:
        StorageFull: there is no space for the entry.
    """
    log = session.log
    horizon_ms = max(0, now_ms - staged_max_age_ms)
    if horizon_ms > _newest_slot_ms(session):
        # The date of one answer may be wrong, and a horizon that is too late cannot be taken back. A slot's
        # Last-Modified is reliable. But the newest slot of an idle log is old, so write a new one and use its date.
        next_ms = log.read(lambda state, slot: state.horizon_ms) + 1
        log.append(AppendEntry(HorizonMoved(horizon_ms=next_ms), unless=(InvalidEntry,)))
        horizon_ms = max(0, min(now_ms, _newest_slot_ms(session)) - staged_max_age_ms)
    log.append(AppendEntry(HorizonMoved(horizon_ms=horizon_ms), unless=(InvalidEntry,)))
    session.environment.reached("segment.vacuum.horizon_moved")


def _delete(store: ObjectStore, paths: Sequence[str]) -> None:
    for first in range(0, len(paths), _DELETED_AT_ONCE):
        store.delete_many(paths[first : first + _DELETED_AT_ONCE])


def _unreleased_topics(session: Session, tables: Collection[tuple[str, TableFormat]]) -> set[str]:
    """Return the topics whose tables may still name files that are to be deleted.

    Each table gets a version that does not name them. If that fails, the next vacuum tries again.
    """
    publisher = Publisher.of(session)
    failed: set[str] = set()
    for topic, table_format in sorted(tables):
        try:
            publisher.release_files(topic, table_format)
        except EosLogError as error:
            _logger.warning(
                "%s: files of topic %s are kept for its %s table: %s",
                session.url,
                topic,
                table_format.capitalize(),
                error,
            )
            failed.add(topic)
    return failed


class DroppedFiles:
    """The files that entries dropped and that wait for their deletion."""

    def __init__(self, store: ObjectStore, pending_deletions: Sequence[PendingDeletion]) -> None:
        self._prefixes = tuple(each.prefix for each in pending_deletions if each.prefix)
        self._files = {file.path for each in pending_deletions for file in (*each.files, *each.indexes)}
        unread = set()
        for each in pending_deletions:
            # A vacuum that crashed may have deleted the index. Its files are then deleted too, or vacuum deletes them
            # by their age.
            found = store.get_many([index.path for index in each.indexes])
            for index, stored in zip(each.indexes, found, strict=True):
                try:
                    self._files |= set(_data_files_of(stored.body, index)) if stored is not None else set()
                except CorruptRecord:
                    stored = None
                if stored is None:
                    unread.add(_partition_of(index.path))
        self._unread = tuple(unread)

    def __contains__(self, path: str) -> bool:
        return path in self._files or path.startswith(self._prefixes)

    def may_name(self, path: str) -> bool:
        """Return True if an entry dropped the file, or may have: an index of its partition is missing or damaged."""
        return path in self or path.startswith(self._unread)


def _newest_slot_ms(session: Session) -> int:
    """Return the Last-Modified time of the newest slot (ms). It cannot lie in the future of the store's clock."""
    known = -1
    while True:
        newest = session.log.read(lambda state, slot: slot)
        try:
            return session.object_store.get(slot_path(newest)).last_modified_ms
        except ObjectNotFound:
            # This process may have been paused for longer than slots are kept. Then there is a newer slot.
            if newest == known:
                raise
            known = newest


def _past_retention(
    store: ObjectStore, pending_deletions: tuple[PendingDeletion, ...], newest_ms: int
) -> tuple[PendingDeletion, ...]:
    """Return the drops that happened at or before ``newest_ms``.

    A drop has no time of its own. But if a slot at or after it has an old Last-Modified time, the drop is old, too. The
    drops are in the order of their slots, so the result is a prefix.
    """
    if not pending_deletions:
        return ()
    old = [slot_of(info.path) for info in store.list(SLOTS) if info.last_modified_ms <= newest_ms]
    newest = max((slot for slot in old if slot is not None), default=-1)
    return tuple(each for each in pending_deletions if each.slot <= newest)


def referenced_files(store: ObjectStore, state: StoreState) -> Iterator[str]:
    """Yield the paths of all files and shared objects that the state names, directly or through a segment's index."""
    yield from _files_in_state(state)
    for partition in state.partitions.values():
        for segment in partition.sealed:
            yield from _in_segment(store, segment.index)


class _ReferencedFiles:
    """The files and shared objects that a state names."""

    def __init__(self, store: ObjectStore, state: StoreState, known_unreadable: Collection[str]) -> None:
        """
        Args:
            known_unreadable: paths of indexes that were logged before.
        """
        self.unreadable_indexes: list[str] = []
        self._paths = set(_files_in_state(state))
        unread: set[str] = set()
        for partition in state.partitions.values():
            for segment in partition.sealed:
                try:
                    self._paths.update(_in_segment(store, segment.index))
                except CorruptRecord as error:
                    if segment.index.path not in known_unreadable:
                        _logger.warning("%s: vacuum keeps all files of a partition: %s", store.url, error)
                    self.unreadable_indexes.append(segment.index.path)
                    unread.add(_partition_of(segment.index.path))
        self._unread = tuple(unread)
        known = len(set(self.unreadable_indexes).intersection(known_unreadable))
        if known:
            still = "segment index is" if known == 1 else "segment indexes are"
            _logger.warning("%s: vacuum keeps files of partitions: %d %s still unreadable", store.url, known, still)

    def may_name(self, path: str) -> bool:
        """Return True if the state names the file, or may name it: an index of its partition is missing or damaged."""
        return path in self._paths or path.startswith(self._unread)


def _partition_of(path: str) -> str:
    """Return the directory of the partition to which a file belongs. An index names files of its partition only."""
    return "/".join(path.split("/")[:3]) + "/"


def _files_in_state(state: StoreState) -> Iterator[str]:
    """Yield the paths of all files and shared objects that the state names directly."""
    for partition in state.partitions.values():
        for batch in partition.active:
            if batch.file is not None:
                yield from _paths_of(batch.file)
        for segment in partition.sealed:
            yield from (file.path for file in segment.files)
    for name in state.ongoing:
        prepared = state.transactions[name].prepared
        if prepared is not None:
            # The deletion of a topic also drops the files that a prepared transaction staged for it.
            for staged in prepared.batches:
                if staged.topic_id in state.topics:
                    yield from _paths_of(staged.file)


def _paths_of(file: FileReference) -> Iterator[str]:
    """Yield the paths of the objects with a file's content: the object at its own path, and its shared object.

    Other programs may read an object at the path of an embedded file.
    """
    yield file.path
    if file.shared is not None:
        yield file.shared.path


def _in_segment(store: ObjectStore, index: FileReference) -> Iterator[str]:
    return _data_files_of(read_file(store, index), index)


def _data_files_of(body: bytes, index: FileReference) -> Iterator[str]:
    check_file(body, index.length, index.crc32c, index.path)
    for batch in batches_of_index(body, index):
        if batch.file is not None:
            yield batch.file.path


def _objects_of_topics(store: ObjectStore) -> Iterator[ObjectInfo]:
    """List the objects below the directories of topics."""
    for topic in store.list_directories(""):
        if not topic.startswith(("__", ".")):
            yield from store.list(f"{topic}/")
