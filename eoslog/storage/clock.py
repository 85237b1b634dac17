"""The only clock of the protocol: the object store's, as its answers tell it."""

from __future__ import annotations

import threading
from typing import NamedTuple

from eoslog.storage.environment import Environment
from eoslog.storage.process import ProcessLock

_TOLERANCE_MS = 60_000
"""How far the dates of a store's servers may lie apart, beside the time that elapsed between their answers."""


class _Reading(NamedTuple):
    """What the answers so far have told. Replaced as a whole, so that who looks never sees half of it."""

    date_ms: int = 0
    monotonic_ms: int = 0
    """When that date was taken in."""
    is_confirmed: bool = False
    """Whether more than one answer stands behind it."""
    claimed_ms: int = 0
    """A later date that only the newest answer claims, 0 if there is none."""


class _NewestAnswer(threading.local):
    """Of each thread: an answer that another thread takes in refutes nothing, it may have been on its way for long."""

    date_ms = 0


class StoreClock:
    """The store's time: the newest ``Date`` of its answers, carried on by elapsed (never by wall-clock) time.

    A date that runs ahead of elapsed time counts when a second answer confirms it: one wrong answer moves no time. To a
    process that was suspended the first answer tells that something is amiss, and the second what the time is.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._reading = _Reading()
        self._newest_answer = _NewestAnswer()
        self._taking_in = ProcessLock()
        self.first_date_ms = 0
        """The date of the first answer."""

    @property
    def last_date_ms(self) -> int:
        """The newest date of an answer, 0 before the first: a lower bound of the store's time."""
        return self._reading.date_ms

    @property
    def latest_claim_ms(self) -> int:
        """The newest date of an answer, even one that nothing else confirms yet: time may be as late.

        What an answer claims stands until this thread's next one.
        """
        known = self._reading
        return max(known.date_ms, known.claimed_ms, self._newest_answer.date_ms)

    def observe(self, date_ms: int) -> None:
        """Take in the date of an answer (ms since the epoch). An older date than the newest is ignored."""
        self._newest_answer.date_ms = date_ms
        with self._taking_in:
            self._take_in(date_ms, self._environment.monotonic_ms())

    def _take_in(self, date_ms: int, monotonic_ms: int) -> None:
        known = self._reading
        if known.date_ms == 0:
            self.first_date_ms = date_ms
            self._reading = _Reading(date_ms, monotonic_ms)
        elif not known.is_confirmed and date_ms < known.date_ms - _TOLERANCE_MS:
            # One of the first two is wrong: a time that comes too late harms nobody.
            self.first_date_ms = date_ms
            self._reading = _Reading(date_ms, monotonic_ms)
        elif date_ms <= known.date_ms + monotonic_ms - known.monotonic_ms + _TOLERANCE_MS:
            newest = (date_ms, monotonic_ms) if date_ms >= known.date_ms else (known.date_ms, known.monotonic_ms)
            self._reading = _Reading(*newest, is_confirmed=True)
        elif known.claimed_ms and date_ms >= known.claimed_ms - _TOLERANCE_MS:
            # Of two that run ahead the earlier counts, and what the newest claims beyond that waits for the next.
            earlier_ms = min(date_ms, known.claimed_ms)
            self._reading = _Reading(earlier_ms, monotonic_ms, is_confirmed=True, claimed_ms=date_ms)
        else:
            self._reading = known._replace(claimed_ms=date_ms)

    def now_ms(self) -> int:
        """The store's time, estimated (ms since the epoch)."""
        known = self._reading
        if known.date_ms == 0:
            return 0
        return known.date_ms + self._environment.monotonic_ms() - known.monotonic_ms
