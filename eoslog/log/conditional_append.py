"""Conditional append: put the same bytes to the same slot until it is known which record has the slot.

A put without an answer may land at any later moment. So the writer concludes nothing from a missing answer, and never
moves to the next slot before it knows that this slot is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eoslog.errors import CommitStateUnknown, CorruptRecord, EosLogError, StoreUnavailable, UnsupportedFormat
from eoslog.log.replica import Replica
from eoslog.log.slots import SlotRecord, decode_line, first_line, slot_path
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome

_BACKOFF = Backoff(first_ms=5, longest_ms=2_000)


class _Occupant(NamedTuple):
    """The content of a slot."""

    body: bytes
    record: SlotRecord


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
        path = slot_path(slot)
        deadline = self._deadline(deadline_ms)
        may_have_landed = False
        attempt = 0
        while True:
            try:
                self._environment.reached("log.slot.before_put")
                outcome = self._store.put_if_absent(path, body)
                if outcome is PutOutcome.CREATED:
                    self._environment.reached("log.slot.claimed")
                    return None
            except StoreUnavailable:
                # No answer. Only the slot itself tells whether the put landed, so the next put asks for it.
                may_have_landed = True
            except EosLogError as error:
                # This refusal says nothing about an earlier put that got no answer.
                if may_have_landed:
                    raise self.unknown(slot, append_id) from error
                raise
            else:
                if outcome is PutOutcome.EXISTS:
                    try:
                        found = self._occupant(slot, deadline)
                    except UnsupportedFormat:
                        raise
                    except EosLogError as error:
                        raise self.unknown(slot, append_id) from error
                    if found is None:
                        # A record was in the slot, and has been deleted since. It may have been this record.
                        raise self.unknown(slot, append_id)
                    # The object store's client may retry internally, and then see its own put as a lost race.
                    if found.record.append_id == append_id:
                        self._environment.reached("log.slot.own_record_found")
                        return None
                    self._environment.reached("log.slot.lost")
                    return found.body
            if self._environment.monotonic_ms() > deadline:
                if may_have_landed:
                    raise self.unknown(slot, append_id)
                raise StoreUnavailable(
                    f"{self._store.url} refused every put of slot {slot} until the time was up. Nothing was appended"
                )
            attempt += 1
            self.back_off(attempt, deadline)

    def _occupant(self, slot: int, deadline: int) -> _Occupant | None:
        """Read a slot. Read a damaged record again until the deadline: the answer may have been cut short."""
        attempt = 0
        while True:
            try:
                body = self._store.get(slot_path(slot)).body
                # The record may hold requests of this process. The fold acknowledges them, so it must be durable.
                self._store.make_durable(slot_path(slot))
                return _Occupant(body, decode_line(first_line(body), slot))
            except ObjectNotFound:
                return None
            except (StoreUnavailable, CorruptRecord):
                if self._environment.monotonic_ms() > deadline:
                    raise
            attempt += 1
            self.back_off(attempt, deadline)

    def append_id_of(self, slot: int, deadline_ms: int | None = None) -> str | None:
        """Return the append id of the record in a slot; None if the slot is empty."""
        occupant = self._occupant(slot, self._deadline(deadline_ms))
        return None if occupant is None else occupant.record.append_id

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
        successor = self._occupant(slot + 1, self._deadline(deadline_ms))
        return successor is not None and successor.record.prev == append_id

    def _deadline(self, deadline_ms: int | None) -> int:
        """Return the earlier of the callers' deadline and the log's own limit (elapsed time, ms)."""
        own_ms = self._environment.monotonic_ms() + self._timeout_ms
        return own_ms if deadline_ms is None else min(own_ms, deadline_ms)

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
        wait_ms = _BACKOFF.pause_ms(attempt, self._environment.jitter())
        if deadline_ms is not None:
            wait_ms = max(0, min(wait_ms, deadline_ms + 1 - self._environment.monotonic_ms()))
        self._environment.sleep_ms(wait_ms)
