"""Rebuilding: a ``.txnindex`` or ``.snapshot`` that is missing or damaged is put back, byte for byte as it was.

No state and no reader depends on these files. The content of a ``.txnindex`` stands in the segment's index too. That of
a ``.snapshot`` follows from the segment before it (``derived_snapshot``). The entry that names a file proves that it is
the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import check_file, read_file
from eoslog.format.producer_snapshot import (
    count_of,
    decode_producer_snapshot,
    encode_producer_snapshot,
    producer_of,
    snapshot_entries,
)
from eoslog.format.segment_index import decode_txnindex_copy, read_segment_index
from eoslog.log.log import Log
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import ProducerState, SealedSegment
from eoslog.state.segment_start import producers_after
from eoslog.state.store_state import StoreState
from eoslog.state.topics import topic_named
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore


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
        CorruptRecord: a file cannot be put back, because nothing else in the store has its content. All others were put
            back. A dry run lists it instead.
    """
    found = put_back_derived_files(log, store, environment, topic, dry_run=dry_run)
    lost = [each for each in found if not each.restored]
    if lost and not dry_run:
        raise CorruptRecord(
            f"{len(lost)} files of topic {topic} cannot be rebuilt, the first is {lost[0].path} ({lost[0].problem}): "
            "nothing else in the store has their content; bring the objects back from a backup or an earlier version"
        )
    return found


def put_back_derived_files(
    log: Log[StoreState], store: ObjectStore, environment: Environment, topic: str, *, dry_run: bool = False
) -> list[DamagedFile]:
    """As ``rebuild_derived_files``; a file that cannot be put back is in the answer, and is no error."""
    found: list[DamagedFile] = []
    for place, sealed in log.read(lambda state, slot: _sealed(state, topic)):
        for position, segment in enumerate(sealed):
            damaged = list(_damaged_files(store, topic, place, segment))
            if not dry_run:
                damaged = [
                    replace(each, restored=_put_back(store, environment, sealed[: position + 1], each))
                    for each in damaged
                ]
            if damaged and _is_there(log, place, segment):
                found += damaged
    return found


def derived_snapshot(store: ObjectStore, sealed: Sequence[SealedSegment]) -> bytes | None:
    """The content of the last segment's ``.snapshot``, as it follows from the segments before.

    A snapshot is the one before it and the batches of the segment between them, without producers that expired
    meanwhile. Which ones expired stands nowhere, only how many: those that wrote last are taken to be left.

    Args:
        sealed: the segments of a partition up to this one.

    Returns:
        The file that the log names, or None if it cannot be derived: segments before were dropped or are damaged, or
        other producers expired.
    """
    body: bytes | None = None
    first = len(sealed) - 1
    while sealed[first].base_offset > 0 and body is None:
        if first == 0:
            return None
        first -= 1
        body = _intact(store, sealed[first].snapshot)
    if body is None:
        body = encode_producer_snapshot([])
    for before, after in pairwise(sealed[first:]):
        try:
            entries = decode_producer_snapshot(body, before.snapshot.path)
            batches = read_segment_index(store, before.index)
        except CorruptRecord:
            return None
        known = {entry.producer_id: producer_of(entry) for entry in entries}
        producers = _newest(producers_after(known, batches, lambda batch: True), count_of(after.snapshot.length))
        body = encode_producer_snapshot(snapshot_entries(producers))
        if not _is_what_the_log_says(body, after.snapshot):
            return None
    return body


def _intact(store: ObjectStore, file: FileReference) -> bytes | None:
    try:
        return read_file(store, file)
    except CorruptRecord:
        return None


def _newest(producers: Mapping[int, ProducerState], count: int) -> list[ProducerState]:
    return sorted(producers.values(), key=lambda producer: producer.last_timestamp, reverse=True)[:count]


def _sealed(state: StoreState, topic: str) -> list[tuple[PartitionId, tuple[SealedSegment, ...]]]:
    return [(place, state.partitions[place].sealed) for place in topic_named(state, topic).partition_ids()]


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


def _put_back(
    store: ObjectStore, environment: Environment, sealed: Sequence[SealedSegment], damaged: DamagedFile
) -> bool:
    """Put back a file of the last of these segments. False if nothing has its content."""
    segment = sealed[-1]
    file = {"index": None, "txnindex": segment.txnindex, "snapshot": segment.snapshot}[damaged.kind]
    body = derived_snapshot(store, sealed) if damaged.kind == "snapshot" else _txnindex_copy(store, segment)
    if file is None or body is None or not _is_what_the_log_says(body, file):
        return False
    store.put(file.path, body)
    environment.reached("segment.rebuild.file_written")
    return _is_what_the_log_says(store.get(file.path).body, file)


def _txnindex_copy(store: ObjectStore, segment: SealedSegment) -> bytes | None:
    try:
        return decode_txnindex_copy(read_file(store, segment.index), segment.index.path)
    except CorruptRecord:
        return None
