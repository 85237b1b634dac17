"""What a store holds, read without trusting it: each slot, checkpoint or file is a section that may fail alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

import eoslog
from eoslog.cli.dump_lines import (
    Line,
    aborted_lines,
    batch_line,
    footer_lines,
    part_line,
    part_lines,
    producer_lines,
    root_line,
    slot_lines,
)
from eoslog.client.topics import partition_named
from eoslog.errors import CorruptRecord, EosLogError, InvalidRequest, OffsetOutOfRange
from eoslog.log.checkpoint import CheckpointPart, inline_body, read_root
from eoslog.log.paths import SLOTS, slot_of, slot_path
from eoslog.log.record import CheckpointReference, SlotRecord, decode_line, first_line
from eoslog.log.view import CHECKPOINT_ENTRY, decode_checkpoint_entry
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.names import TopicPartition
from eoslog.rules.partition_state import Batch, Partition, SealedSegment
from eoslog.rules.state import StoreState
from eoslog.segment.data_file import check_file, open_data_file
from eoslog.segment.producer_snapshot import decode_producer_snapshot
from eoslog.segment.segment_index import iterate_segment_index
from eoslog.segment.stored_file import read_file
from eoslog.segment.transaction_index import iterate_transaction_index
from eoslog.store.object_store import ObjectNotFound, ObjectStore

_SLOTS_AT_ONCE = 32


class Bounds(NamedTuple):
    """A range of slots or offsets, both ends inclusive; None leaves an end open."""

    first: int | None = None
    last: int | None = None


class Section(NamedTuple):
    """Something that is dumped as a whole, and that may be damaged without hindering what follows."""

    name: str
    lines: Iterator[Line]


def slots(store: eoslog.Store, bounds: Bounds) -> Iterator[Section]:
    """The slot records, a section each. The log is not folded, so a damaged one hides no other.

    Raises:
        NotAStore
        InvalidRequest: the log does not reach so far.
    """
    store.describe()
    newest = store.log.view.newest_slot()
    first = _oldest_slot(store.object_store, newest) if bounds.first is None else bounds.first
    last = newest if bounds.last is None else min(newest, bounds.last)
    if first > newest:
        raise InvalidRequest(f"there is no slot {first}: the newest one is {newest}")
    topics = _topic_names(store)
    for begin in range(first, last + 1, _SLOTS_AT_ONCE):
        wanted = range(begin, min(begin + _SLOTS_AT_ONCE, last + 1))
        found = store.object_store.get_many([slot_path(slot) for slot in wanted])
        for slot, stored in zip(wanted, found, strict=True):
            body = stored.body if stored is not None else None
            yield Section(slot_path(slot), _slot(slot, body, topics))


def checkpoints(store: eoslog.Store) -> Iterator[Section]:
    """The checkpoints that the newest slot names, the newest first: each root, then its parts.

    Raises:
        NotAStore, CorruptRecord
    """
    store.describe()
    newest = store.log.view.newest_slot()
    record = _record(newest, store.object_store.get(slot_path(newest)).body)
    for reference in _references(record):
        parts: list[CheckpointPart] = []
        yield Section(reference.path, _root(store.object_store, reference, parts))
        for part in parts:
            yield Section(f"{part.path or reference.path} ({part.name})", _part(store.object_store, part))


def partition_files(store: eoslog.Store, place: TopicPartition, bounds: Bounds, *, footers: bool) -> Iterator[Section]:
    """A partition's batches, aborted transactions and producers: of each sealed segment by its files, then the state's.

    Raises:
        UnknownTopicOrPartition, OffsetOutOfRange
    """
    partition: Partition = store.read(lambda state, slot: partition_named(state, place)[1].copy())
    first = partition.log_start_offset if bounds.first is None else bounds.first
    last = partition.high_watermark - 1 if bounds.last is None else bounds.last
    if partition.high_watermark and not 0 <= first < partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {place.topic}-{place.partition} has no offset {first}: it holds {partition.log_start_offset} "
            f"to {partition.high_watermark - 1}"
        )

    def within(batches: Iterable[Batch]) -> Iterator[Batch]:
        return (batch for batch in batches if batch.end_offset > first and batch.base_offset <= last)

    objects = store.object_store
    for segment in partition.sealed:
        if segment.end_offset <= first or segment.base_offset > last:
            continue
        yield from _segment(objects, segment, within, footers=footers)
    active = list(within(partition.active))
    name = f"{place.topic}-{place.partition}, in the state from offset {partition.segment_base_offset}"
    yield Section(f"batches of {name}", map(batch_line, active))
    if partition.aborted:
        yield Section(f"aborted transactions of {name}", aborted_lines(partition.aborted))
    if footers:
        yield from _footers(objects, active)


def _segment(
    objects: ObjectStore,
    segment: SealedSegment,
    within: Callable[[Iterable[Batch]], Iterator[Batch]],
    *,
    footers: bool,
) -> Iterator[Section]:
    index, txnindex, snapshot = segment.index, segment.txnindex, segment.snapshot

    def batches() -> Iterator[Batch]:
        return within(iterate_segment_index(read_file(objects, index), index.path))

    def in_index() -> Iterator[Line]:
        yield from map(batch_line, batches())

    def in_snapshot() -> Iterator[Line]:
        yield from producer_lines(decode_producer_snapshot(read_file(objects, snapshot), snapshot.path))

    def in_txnindex(file: FileReference) -> Iterator[Line]:
        yield from aborted_lines(iterate_transaction_index(read_file(objects, file), file.path))

    yield Section(index.path, in_index())
    if txnindex is not None:
        yield Section(txnindex.path, in_txnindex(txnindex))
    yield Section(snapshot.path, in_snapshot())
    if footers:
        try:
            yield from _footers(objects, batches())
        except CorruptRecord:
            return


def _footers(objects: ObjectStore, batches: Iterable[Batch]) -> Iterator[Section]:
    before: str | None = None
    for batch in batches:
        if batch.file is not None and batch.file.path != before:
            before = batch.file.path
            yield Section(batch.file.path, _footer(objects, batch.file))


def _footer(objects: ObjectStore, file: FileReference) -> Iterator[Line]:
    try:
        yield from footer_lines(open_data_file(pa.PythonFile(_StoredFile(objects, file), mode="r"), file.path))
    except ObjectNotFound:
        raise CorruptRecord(f"file {file.path} is missing from {objects.url}, though the log names it") from None


class _StoredFile(io.RawIOBase):
    """An object as a file of which only what is asked for is fetched."""

    def __init__(self, objects: ObjectStore, file: FileReference) -> None:
        self._objects = objects
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._file.length - self._at)
        wanted = rest if size < 0 else min(size, rest)
        body = self._objects.get_range(self._file.path, self._at, wanted) if wanted else b""
        self._at += len(body)
        return body


def _slot(slot: int, body: bytes | None, topics: dict[str, str]) -> Iterator[Line]:
    yield from slot_lines(_record(slot, body), topics)


def _record(slot: int, body: bytes | None) -> SlotRecord:
    if body is None:
        raise CorruptRecord(f"slot {slot} is not there: it was deleted, or the log is damaged")
    return decode_line(first_line(body), slot)


def _oldest_slot(objects: ObjectStore, newest: int) -> int:
    groups = objects.list_directories(SLOTS)
    listed = objects.list(f"{SLOTS}{max(groups)}/") if groups else iter(())
    return min((slot for slot in (slot_of(info.path) for info in listed) if slot is not None), default=newest)


def _topic_names(store: eoslog.Store) -> dict[str, str]:
    """The topics' names by their ids; none if the log cannot be folded, which a dump does not need."""

    def look(state: StoreState, slot: int) -> dict[str, str]:
        return {topic.topic_id: topic.topic for topic in state.topics.values()}

    try:
        return store.read(look)
    except EosLogError:
        return {}


def _references(record: SlotRecord) -> list[CheckpointReference]:
    own = [
        decode_checkpoint_entry(entry).reference for entry in record.entries if entry.get("type") == CHECKPOINT_ENTRY
    ]
    named = [*own, record.checkpoint, record.previous_checkpoint]
    return [reference for reference in dict.fromkeys(named) if reference is not None][:2]


def _root(objects: ObjectStore, reference: CheckpointReference, parts: list[CheckpointPart]) -> Iterator[Line]:
    root = read_root(objects, reference)
    parts += root.parts
    yield root_line(root)
    yield from map(part_line, root.parts)


def _part(objects: ObjectStore, part: CheckpointPart) -> Iterator[Line]:
    if part.path is None:
        yield from part_lines(part.name, inline_body(part))
        return
    try:
        body = objects.get(part.path).body
    except ObjectNotFound:
        raise CorruptRecord(f"checkpoint object {part.path} is missing") from None
    check_file(body, part.length, part.crc32c, part.path)
    yield from part_lines(part.name, body)
