"""Rebuilding: a ``.txnindex`` or ``.snapshot`` that is missing or damaged is put back, byte for byte as it was.

No state and no reader depends on these files. Their content stands in the segment's index, so it does not matter
whether the segments before are still there; the entry that names a file proves that it is the same again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from eoslog.errors import CorruptRecord
from eoslog.log.log import Log
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import SealedSegment
from eoslog.rules.state import StoreState
from eoslog.rules.topics import topic_named
from eoslog.segment.data_file import check_file
from eoslog.segment.segment_index import DerivedFiles, decode_derived_files
from eoslog.segment.stored_file import read_file
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file beside a segment's rows that is not what the log says."""

    topic: str
    partition: int
    base_offset: int
    """The segment's."""
    kind: Literal["index", "txnindex", "snapshot"]
    path: str
    problem: Literal["missing", "damaged"]
    restored: bool = False
    """Whether it is now what the log says. Never in a dry run."""


def rebuild_derived_files(
    log: Log[StoreState], store: ObjectStore, environment: Environment, topic: str, *, dry_run: bool = False
) -> list[DamagedFile]:
    """Look at the index files of a topic's sealed segments, and put back what can be derived.

    Returns:
        What was found missing or damaged.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: an ``.index.parquet`` is missing or damaged. It holds what nothing else holds, so it cannot be
            rebuilt, nor the files beside it. All others were. A dry run lists it instead.
    """
    found: list[DamagedFile] = []
    for place, segment in log.read(lambda state, slot: _sealed(state, topic)):
        damaged = list(_damaged_files(store, topic, place, segment))
        if damaged and not dry_run:
            damaged = _restore(store, environment, segment, damaged)
        if damaged and _is_there(log, place, segment):
            found += damaged
    lost = [each for each in found if not each.restored]
    if lost and not dry_run:
        raise CorruptRecord(
            f"{len(lost)} files of topic {topic} cannot be rebuilt, the first is {lost[0].path} ({lost[0].problem}): "
            "a segment's index holds what nothing else in the store holds, and the files beside it need it; bring the "
            "object back from a backup or an earlier version"
        )
    return found


def _sealed(state: StoreState, topic: str) -> list[tuple[PartitionId, SealedSegment]]:
    return [
        (place, segment)
        for place in topic_named(state, topic).partition_ids()
        for segment in state.partitions[place].sealed
    ]


def _is_there(log: Log[StoreState], place: PartitionId, segment: SealedSegment) -> bool:
    """Whether the log still names the segment. One that was dropped or replaced meanwhile misses nothing."""

    def look(state: StoreState, slot: int) -> bool:
        partition = state.partitions.get(place)
        return partition is not None and segment in partition.sealed

    return log.read(look)


def _damaged_files(store: ObjectStore, topic: str, place: PartitionId, segment: SealedSegment) -> Iterator[DamagedFile]:
    files: list[tuple[Literal["index", "txnindex", "snapshot"], FileReference]] = [("index", segment.index)]
    if segment.txnindex is not None:
        files.append(("txnindex", segment.txnindex))
    files.append(("snapshot", segment.snapshot))
    bodies = store.get_many([file.path for _, file in files])
    for (kind, file), stored in zip(files, bodies, strict=True):
        if stored is None:
            yield DamagedFile(topic, place.partition, segment.base_offset, kind, file.path, "missing")
        elif not _is_what_the_log_says(stored.body, file):
            yield DamagedFile(topic, place.partition, segment.base_offset, kind, file.path, "damaged")


def _is_what_the_log_says(body: bytes, file: FileReference) -> bool:
    try:
        check_file(body, file.length, file.crc32c, file.path)
    except CorruptRecord:
        return False
    return True


def _restore(
    store: ObjectStore, environment: Environment, segment: SealedSegment, damaged: list[DamagedFile]
) -> list[DamagedFile]:
    if any(each.kind == "index" for each in damaged):
        return damaged
    try:
        derived = decode_derived_files(read_file(store, segment.index), segment.index.path)
    except CorruptRecord:
        return damaged
    return [replace(each, restored=_put_back(store, environment, segment, each, derived)) for each in damaged]


def _put_back(
    store: ObjectStore, environment: Environment, segment: SealedSegment, damaged: DamagedFile, derived: DerivedFiles
) -> bool:
    file = segment.snapshot if damaged.kind == "snapshot" else segment.txnindex
    body = derived.snapshot if damaged.kind == "snapshot" else derived.txnindex
    if file is None or not _is_what_the_log_says(body, file):
        return False
    store.put(file.path, body)
    environment.reached("segment.rebuild.file_written")
    return _is_what_the_log_says(store.get(file.path).body, file)
