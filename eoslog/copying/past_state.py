"""The state of a store after an older slot of its log, or at an earlier time.

The state is the fold of the slots that follow a checkpoint, as verification folds them. The search reads the slots from
the newest one downwards, and checks that each one continues the slot below. So it never folds a record that a paused
process put under the name of a deleted slot.

Slots above the wanted one may be damaged. The search passes over them. From the wanted slot down to a checkpoint it
requires every record, and the checkpoint must belong to the last of them. A record that a paused process put never
meets this rule: slots are deleted in ascending order, so the record below it was deleted, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eoslog.errors import CorruptRecord, OffsetOutOfRange
from eoslog.log.slots import CheckpointReference, SlotRecord, records_backwards, slot_path
from eoslog.read.time_travel import AsOf, iso_time
from eoslog.session.session import Session
from eoslog.session.store_machine import StoreMachine
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.store_state import StoreState
from eoslog.verification.log_checks import Fold, LoadedCheckpoint, load_checkpoint
from eoslog.verification.slot_checks import runs


class PastState(NamedTuple):
    """The state of a store after a slot."""

    state: StoreState
    slot: int
    append_id: str
    """The append id of the slot's record."""


def past_state(source: Session, newest: int, as_of: AsOf) -> PastState:
    """Return the state after a slot, or after the last slot that was put by a time.

    Args:
        source: the store.
        newest: the newest slot of its log.
        as_of: the slot, which is not after ``newest``, or the time. A slot counts by the log's time. If none of its
            entries has a time, it also counts by its date at the object store.

    Raises:
        OffsetOutOfRange: the log no longer has a checkpoint at or below the slot together with all slots that follow
            this checkpoint. The message names the oldest slot that can be copied.
        CorruptRecord: the log is damaged at the slot or between its checkpoint and the slot. If ``as_of`` is a time,
            damage above the slot raises this error, too.
        UnsupportedFormat: a newer version wrote the log.
    """
    return _Search(source, newest, as_of).run()


class _Search:
    """Reads the log downwards to the first checkpoint that holds an early enough state."""

    def __init__(self, source: Session, newest: int, as_of: AsOf) -> None:
        self._source = source
        self._store = source.object_store
        self._machine = StoreMachine()
        self._newest = newest
        self._as_of = as_of
        self._named: dict[int, CheckpointReference] = {}
        """The checkpoints that records name, by slot."""
        self._following: list[SlotRecord] = []
        """The wanted record and the records below it, as far as they were read, newest first."""
        self._oldest: SlotRecord | None = None
        """The oldest record that was read."""

    def run(self) -> PastState:
        for record in self._records():
            self._oldest = record
            for reference in (record.checkpoint, record.previous_checkpoint):
                if reference is not None:
                    self._named[reference.slot] = reference
            if self._is_later(record):
                # The log's time never runs backwards. So the records above this one are later, too.
                self._following.clear()
                continue
            self._following.append(record)
            loaded = self._state_at(record)
            if loaded is not None and self._is_later_state(loaded[1]):
                self._following.clear()
            elif loaded is not None:
                return self._folded(Fold(self._machine, [loaded]))
        if self._following and self._following[-1].slot == 0:
            fold = Fold(self._machine, [])
            fold.begin()
            return self._folded(fold)
        raise OffsetOutOfRange(self._refusal())

    def _records(self) -> Iterator[SlotRecord]:
        """Yield the records from the newest one downwards, without damaged ones above the wanted slot."""
        wanted, newest = self._as_of.slot, self._newest
        while True:
            ended = newest
            """The slot at which the records end: it is damaged or missing, or the record above does not continue it."""
            try:
                for record in records_backwards(self._store, newest):
                    yield record
                    ended = record.slot - 1
                below = ended if ended < newest else newest - 1
            except CorruptRecord:
                below = ended - 1
                if wanted is None or below < wanted:
                    raise
            if wanted is None or below < wanted:
                return
            newest = max((min(run.last, below) for run in runs(self._store) if run.first <= below), default=NO_SLOT)
            if newest < wanted:
                return

    def _is_later(self, record: SlotRecord) -> bool:
        """Return True if this record is surely after the wanted one."""
        slot, time_ms = self._as_of
        if slot is not None:
            return record.slot > slot
        assert time_ms is not None
        times = [time for entry in record.entries if isinstance(time := entry.get("time_ms"), int)]
        if times or self._following:
            return any(time > time_ms for time in times)
        # Some entries have no time, such as the deletion of a topic. The log's time does not tell whether they came
        # before the wanted time, but the date of their slot does.
        (stored,) = self._store.get_many([slot_path(record.slot)])
        return stored is not None and stored.last_modified_ms > time_ms

    def _is_later_state(self, loaded: LoadedCheckpoint) -> bool:
        """Return True if a checkpoint's state is after the wanted time. An earlier record may have a later time."""
        time_ms = self._as_of.time_ms
        return time_ms is not None and loaded.state is not None and loaded.state.time_ms > time_ms

    def _state_at(self, record: SlotRecord) -> tuple[CheckpointReference, LoadedCheckpoint] | None:
        """Return the checkpoint after a record; None if the log names none, or it was deleted or is damaged."""
        reference = self._named.get(record.slot)
        if reference is None:
            return None
        loaded = load_checkpoint(self._store, self._machine, reference)
        is_of_record = loaded.root is not None and loaded.root.append_id == record.append_id
        return (reference, loaded) if loaded.state is not None and is_of_record else None

    def _folded(self, fold: Fold) -> PastState:
        found = list(fold.pass_checkpoints(self._following[-1].slot))
        for record in reversed(self._following):
            if record.slot > fold.slot:
                found += fold.add(record)
        if found:
            raise CorruptRecord(f"{self._source.url}: {found[0].problem}. Run eoslog verify on the source")
        assert fold.state is not None
        return PastState(fold.state, fold.slot, self._following[0].append_id)

    def _refusal(self) -> str:
        slot, time_ms = self._as_of
        asked = f"slot {slot}" if slot is not None else f"the time {iso_time(time_ms or 0)}"
        reason = "older slots and checkpoints were deleted"
        if self._oldest is not None and self._oldest.slot == 0:
            reason = "the log began later"
        oldest = self._oldest_state()
        if oldest is None:
            return (
                f"{self._source.url}: the state at {asked} is not available: {reason}. Copy the newest slot: leave out "
                "the slot or timestamp"
            )
        return (
            f"{self._source.url}: the state at {asked} is not available: {reason}. The oldest slot that can be "
            f"copied is {oldest[0]}, of {iso_time(oldest[1])}. Copy this slot or a later one"
        )

    def _oldest_state(self) -> tuple[int, int] | None:
        """Return the oldest slot that can be copied, and its time (ms); None if only the newest state is left."""
        if self._oldest is not None and self._oldest.slot == 0:
            fold = Fold(self._machine, [])
            fold.begin()
            list(fold.add(self._oldest))
            return 0, fold.state.time_ms if fold.state is not None else 0
        for slot in sorted(self._named):
            if self._oldest is not None and slot >= self._oldest.slot:
                state = load_checkpoint(self._store, self._machine, self._named[slot]).state
                if state is not None:
                    return slot, state.time_ms
        return None
