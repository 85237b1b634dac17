"""Restoring a missing or damaged ``.txnindex`` or ``.snapshot``, byte for byte.

These files are for Kafka's tools: neither the state nor a reader depends on them. A segment's index repeats the
content of its ``.txnindex``. The content of a ``.snapshot`` follows from the segment before (``derived_snapshot``). The
checksum in the entry that names a file shows that the restored file is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import pairwise
from typing import Literal

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import check_file, read_file
from eoslog.format.kafka_files import (
    count_of,
    decode_producer_snapshot,
    encode_producer_snapshot,
    producer_of,
    snapshot_entries,
)
from eoslog.format.segment_index import read_segment_index
from eoslog.maintenance.segment_rewriting import are_named, txnindex_copy
from eoslog.session.session import Session
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import SealedSegment
from eoslog.state.sequences import producers_after
from eoslog.state.topics import topic_named
from eoslog.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """An index file of a segment that is missing or differs from its entry in the log."""

    topic: str
    partition: int
    base_offset: int
    """The first offset of the segment."""
    kind: Literal["index", "txnindex", "snapshot"]
    path: str
    problem: Literal["missing", "damaged"]
    restored: bool = False
    """True if the file is correct now. Always False in a dry run."""


def restore_index_files(session: Session, topic: str, *, dry_run: bool = False) -> list[DamagedFile]:
    """Check the index files of a topic's sealed segments, and restore the files whose content can be derived.

    Returns:
        The missing and damaged files. A file cannot be restored if no other object has its content.

    Raises:
        UnknownTopicOrPartition
    """
    found: list[DamagedFile] = []
    segments = session.log.read(
        lambda state, slot: {each: state.partitions[each].sealed for each in topic_named(state, topic).partition_ids()}
    )
    for partition_id, sealed in segments.items():
        for position, segment in enumerate(sealed):
            damaged = list(_damaged_files(session.object_store, topic, partition_id, segment))
            if not dry_run:
                damaged = [replace(each, restored=_restore(session, sealed[: position + 1], each)) for each in damaged]
            # A segment that was dropped meanwhile needs no files.
            if damaged and are_named(session, partition_id, [segment]):
                found += damaged
    return found


def derived_snapshot(store: ObjectStore, sealed: Sequence[SealedSegment]) -> bytes | None:
    """Derive the content of the last segment's ``.snapshot`` from the segments before it.

    A snapshot is the snapshot before it plus the batches of the segment between them, without producers that expired
    meanwhile. The log records how many producers are left, but not which. The function assumes that the producers that
    wrote last are left. The file's checksum shows whether that is true.

    Args:
        sealed: the segments of a partition up to this one.

    Returns:
        The content, or None if it cannot be derived: earlier segments were dropped or are damaged, or the assumption
        is wrong.
    """
    body: bytes | None = None
    first = len(sealed) - 1
    while sealed[first].base_offset > 0 and body is None:
        if first == 0:
            return None
        first -= 1
        with suppress(CorruptRecord):
            body = read_file(store, sealed[first].snapshot)
    if body is None:
        body = encode_producer_snapshot([])
    for before, after in pairwise(sealed[first:]):
        try:
            entries = decode_producer_snapshot(body, before.snapshot.path)
            batches = read_segment_index(store, before.index)
        except CorruptRecord:
            return None
        known = {entry.producer_id: producer_of(entry) for entry in entries}
        producers = producers_after(known, batches, lambda batch: True).values()
        left = nlargest(count_of(after.snapshot.length), producers, key=lambda producer: producer.last_timestamp)
        body = encode_producer_snapshot(snapshot_entries(left))
        if not _is_what_the_log_says(body, after.snapshot):
            return None
    return body


def _damaged_files(
    store: ObjectStore, topic: str, partition_id: PartitionId, segment: SealedSegment
) -> Iterator[DamagedFile]:
    files: list[tuple[Literal["index", "txnindex", "snapshot"], FileReference]] = [("index", segment.index)]
    if segment.txnindex is not None:
        files.append(("txnindex", segment.txnindex))
    files.append(("snapshot", segment.snapshot))
    bodies = store.get_many([file.path for _, file in files])
    for (kind, file), stored in zip(files, bodies, strict=True):
        if stored is not None and _is_what_the_log_says(stored.body, file):
            continue
        yield DamagedFile(
            topic=topic,
            partition=partition_id.partition,
            base_offset=segment.base_offset,
            kind=kind,
            path=file.path,
            problem="missing" if stored is None else "damaged",
        )


def _is_what_the_log_says(body: bytes, file: FileReference) -> bool:
    try:
        check_file(body, file.length, file.crc32c, file.path)
    except CorruptRecord:
        return False
    return True


def _restore(session: Session, sealed: Sequence[SealedSegment], damaged: DamagedFile) -> bool:
    """Restore a file of the last of these segments. Return False if no other object has its content."""
    store = session.object_store
    segment = sealed[-1]
    file = {"index": None, "txnindex": segment.txnindex, "snapshot": segment.snapshot}[damaged.kind]
    body: bytes | None = None
    with suppress(CorruptRecord):
        body = derived_snapshot(store, sealed) if damaged.kind == "snapshot" else txnindex_copy(store, segment)
    if file is None or body is None or not _is_what_the_log_says(body, file):
        return False
    store.put(file.path, body)
    session.environment.reached("segment.restore.file_written")
    return _is_what_the_log_says(store.get(file.path).body, file)
