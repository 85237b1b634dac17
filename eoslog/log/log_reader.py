"""Reading a log: its slots, and its opening at the newest one.

An opening reads the newest record, the checkpoint that this record names, and the slots between them that the record
does not repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

from eoslog.errors import CorruptRecord, NotAStore
from eoslog.log.checkpoint import read_checkpoint
from eoslog.log.log_state import LogState
from eoslog.log.machine import Machine
from eoslog.log.slots import (
    GROUP_SIZE,
    LARGEST_RECORD_BYTES,
    SLOTS,
    CheckpointReference,
    SlotRecord,
    decode_line,
    decode_tail,
    first_line,
    slot_of,
    slot_path,
)
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.wording import without_code

S = TypeVar("S")
_logger = logging.getLogger(__name__)
_OPENED_AT_ONCE = 256


class LogReader(Generic[S]):
    """Reads one log. It keeps nothing of it."""

    def __init__(self, store: ObjectStore, machine: Machine[S]) -> None:
        self.store = store
        self.machine = machine

    def read(self, slots: Iterable[int]) -> list[bytes | None]:
        """Read slots; None for a missing one. Returned records are durable: no reader shows rows that may be lost."""
        paths = [slot_path(slot) for slot in slots]
        found: list[bytes | None]
        if len(paths) == 1:
            try:
                found = [self.store.get(paths[0]).body]
            except ObjectNotFound:
                return [None]
        else:
            found = [None if each is None else each.body for each in self.store.get_many(paths)]
        newest = max((path for path, body in zip(paths, found, strict=True) if body is not None), default=None)
        if newest is not None:
            self.store.make_durable(newest)
        return found

    def record_at(self, slot: int) -> SlotRecord | None:
        """Read a record that the caller can do without. Return None if it is missing or damaged."""
        body = self.read([slot])[0]
        try:
            return None if body is None else decode_line(first_line(body), slot)
        except CorruptRecord:
            return None

    def newest_slot(self) -> int:
        """Find the newest slot. This sends one LIST if the object store lists in order.

        Raises:
            NotAStore: no slot exists.
        """
        if self.store.lists_in_order:
            listed = self.store.list(SLOTS, limit=GROUP_SIZE)
        else:
            groups = sorted(self.store.list_directories(SLOTS))
            listed = self.store.list(f"{SLOTS}{groups[0]}/") if groups else iter(())
        slots = [slot for slot in (slot_of(info.path) for info in listed) if slot is not None]
        if not slots:
            raise NotAStore(f"{self.store.url} holds no log. Create a store there first")
        return max(slots)

    def slots_from(self, first: int) -> list[int]:
        """Return the slots that exist at or after ``first``, ascending."""
        found = []
        for info in self.store.list(SLOTS):
            slot = slot_of(info.path)
            if slot is None:
                continue
            if self.store.lists_in_order and slot // GROUP_SIZE < first // GROUP_SIZE:
                break
            if slot >= first:
                found.append(slot)
        return sorted(found)

    def open(self) -> tuple[LogState[S], list[SlotRecord]]:
        """Read the log from its newest record: that record, its checkpoint, and the slots between them.

        Returns:
            The state after the newest slot, and the records that were read, the oldest first.

        Raises:
            NotAStore, UnsupportedFormat, StoreUnavailable
            CorruptRecord: the log is damaged, or it changed while it was read.
        """
        newest = self.newest_slot()
        body = self.read([newest])[0]
        if body is None:
            raise CorruptRecord(f"slot {newest} was listed but is not there")
        if len(body) > LARGEST_RECORD_BYTES:
            raise CorruptRecord(f"the record of slot {newest} is larger than {LARGEST_RECORD_BYTES} bytes")
        line = first_line(body)
        record = decode_line(line, newest)
        opened: LogState[S] = LogState(self.store, self.machine)
        problem = self._load_checkpoint(opened, record)
        lines: dict[int, tuple[bytes, SlotRecord]] = {newest: (line, record)}
        for tail_line, tail_record in decode_tail(body, newest):
            lines[tail_record.slot] = (tail_line, tail_record)
        others = (slot for slot in range(opened.slot + 1, newest) if slot not in lines)
        # Read block by block. A forged slot with a huge number would otherwise make this list as long as that number.
        while block := list(islice(others, _OPENED_AT_ONCE)):
            for slot, found in zip(block, self.read(block), strict=True):
                if found is None:
                    missing_slot = f"slot {slot} is missing, though the log goes on to slot {newest}"
                    if problem is not None:
                        raise CorruptRecord(f"no checkpoint can be read ({without_code(problem)}), and {missing_slot}")
                    raise CorruptRecord(missing_slot)
                lines[slot] = (first_line(found), decode_line(first_line(found), slot))
        for slot in range(opened.slot + 1, newest + 1):
            slot_line, slot_record = lines[slot]
            if slot_record.prev != opened.append_id:
                raise CorruptRecord(f"the record of slot {slot} does not continue that of slot {slot - 1}")
            opened.fold(slot_record, slot_line)
        return opened, [lines[slot][1] for slot in sorted(lines)]

    def _load_checkpoint(self, opened: LogState[S], newest: SlotRecord) -> CorruptRecord | None:
        """Load the newest checkpoint that can be read. Leave the initial state if there is none.

        A record names two checkpoints. If neither can be read, the record at the older one names earlier ones, whose
        objects are kept for a while.

        Returns:
            The problem of the newest checkpoint, if no checkpoint could be read; otherwise None.
        """
        newest_problem: CorruptRecord | None = None
        tried: set[CheckpointReference] = set()
        record: SlotRecord | None = newest
        while record is not None:
            named = [each for each in (record.checkpoint, record.previous_checkpoint) if each is not None]
            untried = [each for each in named if each not in tried]
            for reference in untried:
                tried.add(reference)
                try:
                    state, root = read_checkpoint(self.store, self.machine, reference)
                except CorruptRecord as error:
                    _logger.warning("%s: %s", self.store.url, error)
                    newest_problem = newest_problem or error
                    continue
                previous = record.previous_checkpoint if reference == record.checkpoint else None
                opened.begin_at(reference, previous, state, root)
                return None
            record = self.record_at(min(each.slot for each in untried)) if untried else None
        if newest_problem is not None:
            _logger.warning("%s: no checkpoint can be read, the whole log is folded", self.store.url)
        return newest_problem
