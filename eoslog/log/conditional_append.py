"""Claiming a slot: the same bytes are put to the same slot until it is known whose it is.

A put that was not answered may land at any later moment, so nothing is concluded from silence, and nobody moves on to
the next slot before this one is known to be taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eoslog.errors import CommitStateUnknown, CorruptRecord, EosLogError, StoreUnavailable, UnsupportedFormat
from eoslog.log.replica import Replica
from eoslog.log.slot_paths import slot_path
from eoslog.log.slot_record import SlotRecord, decode_line, first_line
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome

_LONGEST_BACKOFF_MS = 2_000
_FIRST_BACKOFF_MS = 5


class _Occupant(NamedTuple):
    """What stands in a slot."""

    body: bytes
    record: SlotRecord


class ConditionalAppend:
    """Puts slots of one log, and reads who has them."""

    def __init__(self, store: ObjectStore, environment: Environment, timeout_ms: int) -> None:
        self._store = store
        self._environment = environment
        self._timeout_ms = timeout_ms

    def put_until_known(self, slot: int, body: bytes, token: str, *, deadline_ms: int | None = None) -> bytes | None:
        """Put a slot until its fate is known. None: ours. Else what stands there.

        Args:
            deadline_ms: the end of its callers' patience (elapsed time); it shortens the log's own, and one put is
                sent in any case.
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
                may_have_landed = True
            except EosLogError as error:
                if may_have_landed:
                    raise self.unknown(slot, token) from error
                raise
            else:
                if outcome is PutOutcome.EXISTS:
                    try:
                        found = self._occupant(slot, deadline)
                    except UnsupportedFormat:
                        raise
                    except EosLogError as error:
                        raise self.unknown(slot, token) from error
                    if found is None:
                        # Deleted meanwhile: whose it was, even this one's, nobody can tell.
                        raise self.unknown(slot, token)
                    if found.record.token == token:
                        self._environment.reached("log.slot.own_record_found")
                        return None
                    self._environment.reached("log.slot.lost")
                    return found.body
            if self._environment.monotonic_ms() > deadline:
                if may_have_landed:
                    raise self.unknown(slot, token)
                raise StoreUnavailable(f"{self._store.url} kept refusing to create slot {slot}; nothing was appended")
            attempt += 1
            self.back_off(attempt, deadline)

    def _occupant(self, slot: int, deadline: int) -> _Occupant | None:
        """What stands in a slot. It is read again while it cannot be understood: the answer may have been cut short."""
        attempt = 0
        while True:
            try:
                body = self._store.get(slot_path(slot)).body
                return _Occupant(body, decode_line(first_line(body), slot))
            except ObjectNotFound:
                return None
            except (StoreUnavailable, CorruptRecord):
                if self._environment.monotonic_ms() > deadline:
                    raise
            attempt += 1
            self.back_off(attempt, deadline)

    def token_of(self, slot: int, deadline_ms: int | None = None) -> str | None:
        """The token of what stands in a slot; None if nothing does."""
        occupant = self._occupant(slot, self._deadline(deadline_ms))
        return None if occupant is None else occupant.record.token

    def continues(self, replica: Replica[Any], slot: int, token: str, deadline_ms: int | None = None) -> bool:
        """Whether the record of ``slot`` is one of the log's, not one in a name that was deleted before it was put."""
        slots = replica.slots_from(slot)
        if slots != list(range(slot, slot + len(slots))):
            return False
        if len(slots) == 1:
            return True
        successor = self._occupant(slot + 1, self._deadline(deadline_ms))
        return successor is not None and successor.record.prev == token

    def _deadline(self, deadline_ms: int | None) -> int:
        """The end of the callers' patience, or of the log's own if that is earlier (elapsed time)."""
        own_ms = self._environment.monotonic_ms() + self._timeout_ms
        return own_ms if deadline_ms is None else min(own_ms, deadline_ms)

    def unknown(self, slot: int, token: str) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"{self._store.url}: what became of the put of slot {slot} is not known; it may have landed or land later. "
            "Repeat the same call of a producer: its work is recognised and never done twice. Any other append: "
            "Store.resolve(error)",
            slot=slot,
            token=token,
        )

    def back_off(self, attempt: int, deadline_ms: int | None = None) -> None:
        """Wait before the next attempt, not beyond a deadline."""
        longest = min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS * 2 ** min(attempt - 1, 10))
        wait_ms = longest * self._environment.jitter()
        if deadline_ms is not None:
            wait_ms = max(0, min(wait_ms, deadline_ms + 1 - self._environment.monotonic_ms()))
        self._environment.sleep_ms(wait_ms)
