"""Conditional append: put a record into a slot, and read which record has a slot (see ``storage.conditional_put``)."""

from __future__ import annotations

from functools import partial
from typing import Any

from eoslog.errors import CommitStateUnknown
from eoslog.log.replica import Replica
from eoslog.log.slots import SlotRecord, decode_line, first_line, slot_path
from eoslog.storage.conditional_put import Lost, Unknown, Won, back_off, put_next, read_until_whole
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore


class ConditionalAppend:
    """Puts records into slots of one log, and reads which record has a slot."""

    def __init__(self, store: ObjectStore, environment: Environment, timeout_ms: int) -> None:
        self._store = store
        self._environment = environment
        self._timeout_ms = timeout_ms

    def put_until_known(
        self, slot: int, body: bytes, append_id: str, *, deadline_ms: int | None = None
    ) -> bytes | None:
        """Put a record into a slot, again and again until the outcome is known.

        Args:
            deadline_ms: when the callers give up (elapsed time, ms). ``LogConfig.commit_timeout_ms`` applies, too. At
                least one put is sent.

        Returns:
            None if this record has the slot; otherwise the bytes of the record that has it.

        Raises:
            CommitStateUnknown: the record may have landed, or may land later.
            StoreUnavailable: the record has not landed, and will not.
        """
        self._environment.reached("log.slot.before_put")
        outcome = put_next(
            self._store,
            self._environment,
            slot_path(slot),
            body,
            deadline_ms=self._deadline(deadline_ms),
            is_own=lambda found: _decoded(found, slot).append_id == append_id,
        )
        match outcome:
            case Won(was_found=False):
                self._environment.reached("log.slot.claimed")
                return None
            case Won():
                self._environment.reached("log.slot.own_record_found")
                return None
            case Lost(winner):
                self._environment.reached("log.slot.lost")
                return winner
            case Unknown(error):
                raise self.unknown(slot, append_id) from error

    def append_id_of(self, slot: int, deadline_ms: int | None = None) -> str | None:
        """Return the append id of the record in a slot; None if the slot is empty."""
        record = self._record_in(slot, deadline_ms)
        return None if record is None else record.append_id

    def continues(self, replica: Replica[Any], slot: int, append_id: str, deadline_ms: int | None = None) -> bool:
        """Return True if the record in ``slot`` is part of the log.

        It is not, if an earlier record of this slot was deleted before this one was put. Then the next slots continue
        the deleted record, not this one.
        """
        slots = replica.slots_from(slot)
        if slots != list(range(slot, slot + len(slots))):
            return False
        if len(slots) == 1:
            return True
        successor = self._record_in(slot + 1, deadline_ms)
        return successor is not None and successor.prev == append_id

    def unknown(self, slot: int, append_id: str) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"{self._store.url}: it is not known whether the put of slot {slot} landed; it may land later. After a "
            "producer's call, repeat that call: its work is never done twice. After any other append, call "
            "Store.resolve(error)",
            slot=slot,
            append_id=append_id,
        )

    def back_off(self, attempt: int, deadline_ms: int | None = None) -> None:
        """Wait before the next attempt, but not past the deadline."""
        back_off(self._environment, attempt, deadline_ms)

    def _record_in(self, slot: int, deadline_ms: int | None) -> SlotRecord | None:
        """Return the record in a slot; None if the slot is empty."""
        deadline = self._deadline(deadline_ms)
        decode = partial(_decoded, slot=slot)
        found = read_until_whole(self._store, self._environment, slot_path(slot), decode=decode, deadline_ms=deadline)
        return None if found is None else found[1]

    def _deadline(self, deadline_ms: int | None) -> int:
        """Return the earlier of the callers' deadline and the log's own limit (elapsed time, ms)."""
        own_ms = self._environment.monotonic_ms() + self._timeout_ms
        return own_ms if deadline_ms is None else min(own_ms, deadline_ms)


def _decoded(body: bytes, slot: int) -> SlotRecord:
    return decode_line(first_line(body), slot)
