"""Vacuum: delete the files that no entry names and none can name any more.

First the horizon moves: from its slot on, entries with older files are refused. Only then is the log folded, and what
it does not name and was uploaded before the horizon is deleted. Files that entries dropped wait for readers that
planned before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eoslog.errors import CorruptRecord, InvalidEntry
from eoslog.format.data_file import check_file, read_file
from eoslog.format.segment_index import batches_of_index
from eoslog.log.log import Log
from eoslog.log.slot_paths import SLOTS, slot_of, slot_path
from eoslog.state.append_entry import AppendEntry
from eoslog.state.entry_fields import FileReference
from eoslog.state.expiry import READER_GRACE_MS, STAGED_MAX_AGE_MS
from eoslog.state.expiry_entries import DoomedDeleted, HorizonMoved
from eoslog.state.store_state import Doomed, StoreState
from eoslog.storage.object_store import ObjectInfo, ObjectStore

_DELETED_AT_ONCE = 500
_DIRECTORY_OF_PARTITION = re.compile(r"[^/]+/[0-9a-f]{32}/[0-9]+/")


@dataclass(slots=True)
class VacuumReport:
    """What a vacuum deleted, or would delete."""

    horizon_ms: int = 0
    dry_run: bool = False
    paths: list[str] = field(default_factory=list)
    bytes: int = 0
    kept_files: int = 0


def vacuum(
    log: Log[StoreState],
    store: ObjectStore,
    *,
    staged_max_age_ms: int = STAGED_MAX_AGE_MS,
    reader_grace_ms: int = READER_GRACE_MS,
    dry_run: bool = False,
) -> VacuumReport:
    """Delete unreferenced files older than ``staged_max_age_ms``, and files that were dropped ``reader_grace_ms`` ago.

    A job that takes longer than ``staged_max_age_ms`` between its first upload and its commit is refused with
    ``StagedFilesExpired``.
    """
    log.read(lambda state, slot: None)
    now_ms = store.clock.now_ms()
    horizon_ms = max(0, now_ms - staged_max_age_ms)
    if not dry_run:
        if horizon_ms > _newest_slot_ms(log, store):
            # The log was idle, or an answer had a wrong date: a slot of one's own tells the time.
            log.append(
                AppendEntry(
                    HorizonMoved(horizon_ms=log.read(lambda state, slot: state.horizon_ms) + 1), unless=(InvalidEntry,)
                )
            )
            horizon_ms = min(now_ms, _newest_slot_ms(log, store)) - staged_max_age_ms
        log.append(AppendEntry(HorizonMoved(horizon_ms=horizon_ms), unless=(InvalidEntry,)))
        log.environment.reached("segment.vacuum.horizon_moved")
        horizon_ms = log.read(lambda state, slot: state.horizon_ms)
        now_ms = min(now_ms, _newest_slot_ms(log, store))
    state = log.read(lambda state, slot: state.frozen_copy())
    report = VacuumReport(horizon_ms, dry_run)
    referenced = set(referenced_files(store, state))
    ripe = _past_grace(store, state.doomed, now_ms - reader_grace_ms)
    waiting, dropped = DroppedFiles(store, state.doomed[len(ripe) :]), DroppedFiles(store, ripe)
    for info in _data_files(store):
        old = info.last_modified_ms < horizon_ms
        if info.path in referenced or waiting.may_name(info.path) or not (old or info.path in dropped):
            report.kept_files += 1
            continue
        report.paths.append(info.path)
        report.bytes += info.size
    if not dry_run:
        for first in range(0, len(report.paths), _DELETED_AT_ONCE):
            store.delete_many(report.paths[first : first + _DELETED_AT_ONCE])
        log.environment.reached("segment.vacuum.files_deleted")
        if ripe:
            log.append(AppendEntry(DoomedDeleted(slot=ripe[-1].slot), unless=(InvalidEntry,)))
    return report


class DroppedFiles:
    """The files that entries dropped."""

    def __init__(self, store: ObjectStore, doomed: Sequence[Doomed]) -> None:
        self._prefixes = tuple(each.prefix for each in doomed if each.prefix)
        self._files = {file.path for each in doomed for file in (*each.files, *each.indexes)}
        unread = set()
        for each in doomed:
            # An index that a vacuum deleted before it crashed is gone; so are its files, or they go by their age.
            found = store.get_many([index.path for index in each.indexes])
            for index, stored in zip(each.indexes, found, strict=True):
                try:
                    self._files |= set(_data_files_of(stored.body, index)) if stored is not None else set()
                except CorruptRecord:
                    stored = None
                if stored is None:
                    unread.add("/".join(index.path.split("/")[:3]) + "/")
        self._unread = tuple(unread)

    def __contains__(self, path: str) -> bool:
        return path in self._files or path.startswith(self._prefixes)

    def may_name(self, path: str) -> bool:
        """Whether the file is one of them, or could be: an index of its partition is gone or damaged."""
        return path in self or path.startswith(self._unread)


def _newest_slot_ms(log: Log[StoreState], store: ObjectStore) -> int:
    """When the newest slot was written, by the store's own date of it: a time that has come."""
    return store.get(slot_path(log.read(lambda state, slot: slot))).last_modified_ms


def _past_grace(store: ObjectStore, doomed: tuple[Doomed, ...], newest_ms: int) -> tuple[Doomed, ...]:
    """Those of the doomed, which are in the order of their slots, that a slot at or after theirs shows to be old."""
    if not doomed:
        return ()
    old = [slot_of(info.path) for info in store.list(SLOTS) if info.last_modified_ms <= newest_ms]
    newest = max((slot for slot in old if slot is not None), default=-1)
    return tuple(each for each in doomed if each.slot <= newest)


def referenced_files(store: ObjectStore, state: StoreState) -> Iterator[str]:
    """The paths of all files that the state names, itself or in a segment's index."""
    for partition in state.partitions.values():
        for batch in partition.active:
            if batch.file is not None:
                yield batch.file.path
        for segment in partition.sealed:
            yield from (file.path for file in segment.files)
            yield from _in_segment(store, segment.index)
    for name in state.ongoing:
        prepared = state.transactions[name].prepared
        if prepared is not None:
            # Those of a topic deleted since go with it.
            yield from (batch.file.path for batch in prepared.batches if batch.topic_id in state.topics)


def _in_segment(store: ObjectStore, index: FileReference) -> Iterator[str]:
    return _data_files_of(read_file(store, index), index)


def _data_files_of(body: bytes, index: FileReference) -> Iterator[str]:
    check_file(body, index.length, index.crc32c, index.path)
    for batch in batches_of_index(body, index):
        if batch.file is not None:
            yield batch.file.path


def _data_files(store: ObjectStore) -> Iterator[ObjectInfo]:
    """What lies where a topic's files lie. Anything else below the root is not the store's to delete."""
    for topic in store.list_directories(""):
        if not topic.startswith(("__", ".")):
            yield from (info for info in store.list(f"{topic}/") if _DIRECTORY_OF_PARTITION.match(info.path))
