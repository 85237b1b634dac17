"""Objects that the log does not name: orphan files, temporary files, and unexpected objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from eoslog.log.append_client import APPEND_KEY_PATH
from eoslog.log.slots import CHECKPOINTS, SLOTS, slot_of
from eoslog.publication.table_paths import DELTA_LOG, DELTA_PARTITION_COLUMN, ICEBERG, ICEBERG_METADATA
from eoslog.session.description import COPY_DIRECTORY, DESCRIPTION_PATH
from eoslog.state.entry_fields import SHARED_OBJECT, SHARED_OBJECTS, shared_object_time_ms
from eoslog.state.expiry import STAGED_MAX_AGE_MS
from eoslog.state.partitions import newest_deletable_ms, shared_positions
from eoslog.state.store_state import StoreState
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectInfo, ObjectStore
from eoslog.storage.probe import PROBE_DIRECTORY
from eoslog.verification.findings import Finding, Kind, finding
from eoslog.verification.live_files import Live

LEFTOVER_AGE_MS = 24 * 3600 * 1000
"""Temporary files are removed when they are older than this (ms)."""

_DELTA = re.compile(rf"[^/]+/{DELTA_LOG}/.+")
_ICEBERG = re.compile(rf"{ICEBERG}[^/]+/{ICEBERG_METADATA}.+")
_REFUSED = re.compile(rf"(?:([^/]+)/{DELTA_PARTITION_COLUMN}=|{ICEBERG}([^/]+)/).+")
"""Files of other writers of a topic's tables. Delta's upload files before their version is refused."""
_DATA = re.compile(r"([^/]+)/([0-9a-f]{32})/[0-9]+/.+")
_HEARTBEAT = re.compile(r"__consumer_groups/[0-9a-f]{32}/.+|__gateways/[0-9a-f]{32}")
_CHECKPOINT = re.compile(r"[0-9]{20}-[0-9a-f]{32}\.(json|part[0-9]+)")
_SHOWN = 5


@dataclass(slots=True)
class Unreferenced:
    """Counts files that no entry names now."""

    files: int = 0
    bytes: int = 0
    old: int = 0

    def add(self, info: ObjectInfo, now_ms: int) -> None:
        self.files += 1
        self.bytes += info.size
        self.old += info.last_modified_ms < now_ms - STAGED_MAX_AGE_MS

    def findings(self, prefix: str, topic: str | None = None, partition: int | None = None) -> Iterator[Finding]:
        if self.files:
            yield finding(Kind.FILES_UNREFERENCED, prefix, topic=topic, partition=partition, **asdict(self))


def find_irregular(store: ObjectStore) -> Iterator[Finding]:
    """Find links and special files, which cannot be objects. Opening a symlink in place of an object is refused."""
    if isinstance(store, LocalStore):
        for path, what in store.irregular():
            yield finding(Kind.NOT_AN_OBJECT, path, what=what)


def find_unexpected(live: Live, checkpoint_objects: set[str]) -> Iterator[Finding]:
    """List all objects once and report those that the log does not name.

    Objects of partitions of existing topics are left out, because ``PartitionVerification`` checks them.

    Args:
        live: the store.
        checkpoint_objects: the objects of the checkpoints that the log names.
    """
    store = live.store
    old_checkpoints, old_shared = Unreferenced(), Unreferenced()
    unknown = probes = 0
    shown, of_topics = list[str](), set[str]()
    topics, refused = live.read(_names), dict[tuple[str, str], Unreferenced]()
    named, deletable_ms = live.read(_shared_objects)
    for info in store.list(""):
        now_ms = store.clock.now_ms()
        path = info.path
        data = _DATA.fullmatch(path)
        if path == DESCRIPTION_PATH or (path.startswith(SLOTS) and slot_of(path) is not None):
            continue
        if path.startswith(CHECKPOINTS) and _CHECKPOINT.fullmatch(path[len(CHECKPOINTS) :]):
            # Objects of replaced checkpoints are deleted after some time, so report only old ones.
            if path not in checkpoint_objects and info.last_modified_ms < now_ms - STAGED_MAX_AGE_MS:
                old_checkpoints.add(info, now_ms)
        elif SHARED_OBJECT.fullmatch(path):
            if path not in named and shared_object_time_ms(path) <= deletable_ms:
                old_shared.add(info, now_ms)
        elif path.startswith(PROBE_DIRECTORY):
            probes += info.last_modified_ms < now_ms - LEFTOVER_AGE_MS
        elif path.startswith(COPY_DIRECTORY):
            # The decisions of the copy that made this store. They stay, so that no paused copy decides again.
            continue
        elif path == APPEND_KEY_PATH or _HEARTBEAT.fullmatch(path):
            # Heartbeats of dead processes exist only for a time: coordinators, gateways and vacuums delete them.
            continue
        elif data is not None and not path.startswith(("__", ".")):
            of_topics.add(f"{data[1]}/{data[2]}/")
        elif _ICEBERG.fullmatch(path) or (_DELTA.fullmatch(path) and not path.startswith(("__", "."))):
            continue
        elif (written := _REFUSED.fullmatch(path)) is not None and (topic := written[1] or written[2]) in topics:
            prefix = f"{topic}/{DELTA_PARTITION_COLUMN}=" if written[1] else f"{ICEBERG}{topic}/"
            refused.setdefault((prefix, topic), Unreferenced()).add(info, now_ms)
        else:
            unknown += 1
            shown += [path] if unknown <= _SHOWN else []
    for prefix in sorted(of_topics - live.read(_topics)):
        # List again: the topic may have been deleted and vacuumed since the first LIST.
        yield from count_unreferenced(store, prefix, lambda path: _DATA.fullmatch(path) is not None).findings(prefix)
    for (prefix, topic), files in refused.items():
        yield from files.findings(prefix, topic)
    yield from old_checkpoints.findings(CHECKPOINTS)
    yield from old_shared.findings(SHARED_OBJECTS)
    if shown:
        yield finding(Kind.FILES_UNKNOWN, shown[0], count=unknown, shown=", ".join(shown))
    if probes:
        yield finding(Kind.LEFTOVERS, PROBE_DIRECTORY, problem=f"{probes} objects of a probe of put-if-absent")
    yield from _unfinished_writes(store)


def count_unreferenced(store: ObjectStore, prefix: str, is_one: Callable[[str], bool]) -> Unreferenced:
    """Count the objects below a prefix for which ``is_one`` returns True."""
    count = Unreferenced()
    for info in store.list(prefix):
        if is_one(info.path):
            count.add(info, store.clock.now_ms())
    return count


def _names(state: StoreState) -> set[str]:
    return {topic.topic for topic in state.topics.values()}


def _shared_objects(state: StoreState) -> tuple[set[str], int]:
    """Return the shared objects that the state names, and the newest time of those that vacuum would delete (ms)."""
    named = {position.path for position in shared_positions(state).values()}
    return named, newest_deletable_ms(state, state.pending_deletions)


def _topics(state: StoreState) -> set[str]:
    """Return the directories of existing topics, and of deleted topics whose files wait for their deletion."""
    return {topic.prefix for topic in state.topics.values()} | {each.prefix for each in state.pending_deletions}


def _unfinished_writes(store: ObjectStore) -> Iterator[Finding]:
    """Find interrupted writes and unfinished multipart uploads, which a LIST does not show."""
    found = store.leftovers() if isinstance(store, LocalStore) else ()
    leftovers = [each for each in found if each.last_modified_ms < store.clock.now_ms() - LEFTOVER_AGE_MS]
    if leftovers:
        size = sum(each.size for each in leftovers)
        problem = f"{len(leftovers)} temporary files of dead writers, {size} bytes"
        yield finding(Kind.LEFTOVERS, leftovers[0].path, problem=problem)
    uploads = list(store.unfinished_uploads())
    if uploads:
        yield finding(Kind.UPLOADS_UNFINISHED, uploads[0], count=len(uploads))
