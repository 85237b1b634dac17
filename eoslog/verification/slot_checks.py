"""Checks of the slots: which of them exist, and whether each record can be read and is there once."""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.slots import (
    LARGEST_RECORD_BYTES,
    SLOTS,
    SlotRecord,
    decode_line,
    decode_tail,
    first_line,
    slot_of,
    slot_path,
)
from eoslog.state.partition_state import NO_SLOT
from eoslog.storage.object_store import ObjectStore, StoredObject
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Kind, finding
from eoslog.wording import without_code

_MOST_ADJOINING_ORPHANS = 16
"""Look for orphan records only in this many slots above the oldest one. A broken chain further up is damage, because
only a few paused processes put orphan records."""

SLOTS_AT_ONCE = 16


def of_slot(kind: Kind, slot: int, **message: Any) -> Finding:
    """Return a finding about the record of a slot."""
    return finding(kind, slot_path(slot), slot=slot, **message)


class Run(NamedTuple):
    """Consecutive slots without a gap."""

    first: int
    last: int


def runs(store: ObjectStore) -> list[Run]:
    """Return the existing slots, ascending. Slots that are put or deleted meanwhile may be missing or included."""
    found: list[Run] = []
    for slot in _ascending(store):
        if not found or slot > found[-1].last:
            _append(found, Run(slot, slot))
    return found


def newest_slot(store: ObjectStore) -> int:
    """Return the newest slot that a LIST shows; ``NO_SLOT`` if there is none."""
    found = runs(store)
    return found[-1].last if found else NO_SLOT


def with_unlisted(store: ObjectStore, found: list[Run]) -> list[Run]:
    """Return the runs, plus slots in the gaps between them that exist nevertheless.

    A LIST while slots are put may contain a slot but not the slot before it.
    """
    whole: list[Run] = []
    for run in found:
        if whole:
            for slot in _there(store, range(whole[-1].last + 1, run.first)):
                _append(whole, Run(slot, slot))
        _append(whole, run)
    return whole


def _append(found: list[Run], run: Run) -> None:
    if found and run.first == found[-1].last + 1:
        found[-1] = Run(found[-1].first, run.last)
    else:
        found.append(run)


def _there(store: ObjectStore, gap: range) -> Iterator[int]:
    """Yield the slots of a gap that can be read, from its beginning on.

    It stops after a group of missing slots, because a gap may be very wide.
    """
    for begin in range(0, len(gap), SLOTS_AT_ONCE):
        wanted = gap[begin : begin + SLOTS_AT_ONCE]
        stored = store.get_many([slot_path(each) for each in wanted])
        there = [slot for slot, each in zip(wanted, stored, strict=True) if each is not None]
        if not there:
            return
        yield from there


def _ascending(store: ObjectStore) -> Iterator[int]:
    # Numbers of groups descend, so the largest number has the oldest slots.
    for group in sorted(store.list_directories(SLOTS), reverse=True):
        listed = (slot_of(info.path) for info in store.list(f"{SLOTS}{group}/"))
        yield from sorted(slot for slot in listed if slot is not None)


class Layout(NamedTuple):
    """The runs by their meaning. Slots below ``floor`` may have been deleted."""

    orphans: list[Run]
    """Orphan records, which paused processes put into slots that had been deleted."""
    lost: list[Run]
    """Gaps below ``floor`` that no deletion can have made."""
    missing: list[Run]
    """Gaps that reach ``floor`` or slots above it."""
    kept: list[Run]
    """The slots of the log."""


def layout(found: list[Run], floor: int, is_of_log: Callable[[Run], bool]) -> Layout:
    """Separate the log's slots from orphan records below them, and find the gaps.

    Args:
        found: the existing slots, ascending.
        floor: slots below it may have been deleted, in ascending order.
        is_of_log: returns True if a run below ``floor`` certainly belongs to the log. Then none above it was deleted.
    """
    needed = next((index for index, run in enumerate(found) if run.last >= floor), len(found))
    begin = needed
    if needed < len(found):
        begin = next((index for index, run in enumerate(found[:needed]) if is_of_log(run)), needed)
    kept = found[begin:]
    gaps = [Run(before.last + 1, after.first - 1) for before, after in itertools.pairwise(kept)]
    if kept and kept[0].first > floor:
        gaps.insert(0, Run(floor, kept[0].first - 1))
    lost = [gap for gap in gaps if gap.last < floor]
    return Layout(found[:begin], lost, gaps[len(lost) :], kept)


def without_adjoining_orphans(slots: Layout, floor: int, store: ObjectStore) -> Layout:
    """Also separate orphan records directly below the oldest slot of the log. The log does not continue them.

    Slots are deleted in ascending order. So while slot 0 exists, no slot was deleted and there are no orphan records.
    """
    if not slots.kept or slots.kept[0].first == 0:
        return slots
    first, last = slots.kept[0]
    lowest = range(first, min(first + _MOST_ADJOINING_ORPHANS, floor, last) + 1)
    bodies = store.get_many([slot_path(slot) for slot in lowest])
    records = [_record(slot, stored) for slot, stored in zip(lowest, bodies, strict=True)]
    broken = [
        below.slot
        for below, above in itertools.pairwise(records)
        if below is not None and above is not None and above.prev != below.append_id
    ]
    if not broken:
        return slots
    orphans = Run(first, broken[-1])
    return slots._replace(orphans=[*slots.orphans, orphans], kept=[Run(orphans.last + 1, last), *slots.kept[1:]])


def _record(slot: int, stored: StoredObject | None) -> SlotRecord | None:
    """Return a slot's record; None if it is missing or damaged. A later pass over all slots reports that."""
    try:
        return None if stored is None else decode_line(first_line(stored.body), slot)
    except (CorruptRecord, UnsupportedFormat):
        return None


_RECORDS_KEPT = 1000


class Records:
    """Reads records in the order of their slots."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._before: deque[SlotRecord] = deque(maxlen=_RECORDS_KEPT)

    def read(self, slot: int, body: bytes) -> tuple[SlotRecord | None, list[Finding]]:
        """Return a record, or None if it cannot be decoded, and the findings about its bytes.

        Raises:
            UnsupportedFormat: a newer version wrote the record.
        """
        try:
            record, repeated = _decoded_at_last(self._store, slot, body)
        except CorruptRecord as error:
            self.skip()
            return None, [of_slot(Kind.SLOT_DAMAGED, slot, problem=without_code(error))]
        found = list(self._unlike(slot, repeated))
        self._before.append(record)
        return record, found

    def skip(self) -> None:
        """Skip a missing slot. The tails of later records can then be compared only with records after it."""
        self._before.clear()

    def _unlike(self, slot: int, repeated: list[SlotRecord]) -> Iterator[Finding]:
        known = {record.slot: record for record in self._before}
        for record in repeated:
            if record.slot in known and known[record.slot] != record:
                yield of_slot(Kind.SLOT_TAIL_DIFFERS, slot, repeated=record.slot)
                return


def append_id_of(store: ObjectStore, slot: int) -> str | None:
    """Return the append id of a slot's record now; None if there is no record."""
    stored = store.get_many([slot_path(slot)])[0]
    try:
        return None if stored is None else _decoded_at_last(store, slot, stored.body)[0].append_id
    except CorruptRecord:
        return None


def _decoded_at_last(store: ObjectStore, slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    """Return a record and the records that it repeats. On an error read it again, as an answer may be cut short."""
    for _ in range(READS_BEFORE_REPORT - 1):
        try:
            return _decoded(slot, body)
        except CorruptRecord:
            stored = store.get_many([slot_path(slot)])[0]
            body = body if stored is None else stored.body
    return _decoded(slot, body)


def _decoded(slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    if len(body) > LARGEST_RECORD_BYTES:
        raise CorruptRecord(f"the record of slot {slot} is larger than {LARGEST_RECORD_BYTES} bytes")
    record = decode_line(first_line(body), slot)
    if not body.endswith(b"\n"):
        raise CorruptRecord(f"the record of slot {slot} is cut short")
    return record, [each for _, each in decode_tail(body, slot)]


_BYTES_KEPT = 8
_NO_APPEND_ID = 0


class AppendIds:
    """The append ids of slots, in the order of the slots. Eight bytes of each are kept."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept = array("Q")

    def add(self, record: SlotRecord | None) -> None:
        """Add the record of the next slot; None if it cannot be read."""
        self._kept.append(_NO_APPEND_ID if record is None else int(record.append_id[: 2 * _BYTES_KEPT], 16))

    def repeated(self, runs: list[Run]) -> Iterator[Finding]:
        """Yield a finding for each record with the append id of another record.

        Args:
            runs: the slots whose records were added.
        """
        slots = np.concatenate([np.arange(run.first, run.last + 1, dtype=np.int64) for run in runs])
        append_ids = np.frombuffer(self._kept, dtype=np.uint64)
        order = np.argsort(append_ids, kind="stable")
        same = np.flatnonzero(
            (append_ids[order][1:] == append_ids[order][:-1]) & (append_ids[order][1:] != _NO_APPEND_ID)
        )
        for index in same.tolist():
            first, second = int(slots[order[index]]), int(slots[order[index + 1]])
            if append_id_of(self._store, first) == append_id_of(self._store, second) is not None:
                yield of_slot(Kind.SLOT_APPEND_ID_REPEATED, second, first=first)
