"""The only clock of the protocol: the object store's time, learned from the ``Date`` of its answers.

The clocks of hosts differ, and a paused process does not notice that time has passed. So timeouts, expiry, retention
and freshness checks use this clock, never a host's.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from eoslog.storage.environment import Environment

_TOLERANCE_MS = 60_000
"""How far the clocks of one store's servers may differ (ms)."""


class Moment(NamedTuple):
    """A time, by the store's clock (ms since the epoch, 0 before its first answer) and by elapsed time (ms)."""

    date_ms: int
    monotonic_ms: int


class _Reading(NamedTuple):
    """The knowledge of the clock. Threads read it without a lock, so it is replaced as a whole."""

    date_ms: int = 0
    monotonic_ms: int = 0
    """The elapsed time of this process when that date arrived."""
    is_confirmed: bool = False
    """True if at least two answers agree on the time."""
    claimed_ms: int = 0
    """A later date that only the newest answer claims; 0 if there is none."""
    first_date_ms: int = 0
    """The date of the first answer. The next answer may correct it downwards."""


class _NewestAnswer(threading.local):
    """The date of each thread's own newest answer.

    It is kept per thread because an answer to another thread may have been delayed. A delayed answer has an old date
    and refutes nothing.
    """

    date_ms = 0


class StoreClock:
    """The store's time: the newest ``Date`` of its answers, plus the time that has elapsed in this process since then.

    A date may run ahead of elapsed time for two reasons: a server's clock is wrong, or this process was suspended and
    its elapsed time stood still. One answer cannot tell which. So the clock moves ahead only after a second answer
    confirms the date. Until then ``latest_claim_ms`` reports it to callers that must not trust an old time.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._reading = _Reading()
        self._newest_answer = _NewestAnswer()

    @property
    def last_date_ms(self) -> int:
        """The newest trusted date of an answer, 0 before the first. It is a lower bound of the store's time."""
        return self._reading.date_ms

    @property
    def latest_claim_ms(self) -> int:
        """The newest date that any answer claims, also one that no second answer has confirmed.

        The store's time may be this late. A freshness check uses this date: after a suspension the first answer must
        already expire what this process knows. The claim of an answer to this thread stands until the thread's next
        one.
        """
        known = self._reading
        return max(known.date_ms, known.claimed_ms, self._newest_answer.date_ms)

    def observe(self, date_ms: int) -> None:
        """Learn the date of an answer (ms since the epoch). A date older than the newest one is ignored."""
        self._newest_answer.date_ms = date_ms
        monotonic_ms = self._environment.monotonic_ms()
        while True:
            # No lock: a signal handler may interrupt this thread here, and its calls observe dates, too.
            known = self._reading
            learned = _learned(known, date_ms, monotonic_ms)
            # No other thread runs between this comparison and the assignment (``calls.py``).
            if self._reading is known:
                self._reading = learned
                return

    def now_ms(self) -> int:
        """Return the estimated time of the store (ms since the epoch); 0 before the first answer."""
        known = self._reading
        if known.date_ms == 0:
            return 0
        return known.date_ms + self._environment.monotonic_ms() - known.monotonic_ms

    def moment(self) -> Moment:
        """Return the present time. Callers take it before a request, as a lower bound of the time of the answer."""
        return Moment(self._reading.date_ms, self._environment.monotonic_ms())

    def dated(self, asked: Moment) -> Moment:
        """Return ``asked`` with a date.

        If no answer had arrived by then, the moment gets the date of the first answer. No date is later than the newest
        date of an answer.
        """
        known = self._reading
        return Moment(min(asked.date_ms or known.first_date_ms, known.date_ms), asked.monotonic_ms)

    def may_be_past(self, moment: Moment, duration_ms: int) -> bool:
        """Return True if more than ``duration_ms`` has passed since a moment, by elapsed time or any answer's date."""
        elapsed_ms = self._environment.monotonic_ms() - moment.monotonic_ms
        return elapsed_ms > duration_ms or self.latest_claim_ms - moment.date_ms > duration_ms


def _learned(known: _Reading, date_ms: int, monotonic_ms: int) -> _Reading:
    """Return the knowledge after an answer with this date."""
    if known.date_ms == 0 or (not known.is_confirmed and date_ms < known.date_ms - _TOLERANCE_MS):
        # If one of the first two dates is wrong, trust the earlier one: a clock that is behind only delays expiry and
        # deletion, a clock that is ahead would expire what is still in use.
        return _Reading(date_ms, monotonic_ms, first_date_ms=date_ms)
    if date_ms <= known.date_ms + monotonic_ms - known.monotonic_ms + _TOLERANCE_MS:
        # The date agrees with elapsed time. An older date confirms the reading but never sets the time back: answers
        # may arrive out of order. Agreement also drops an unconfirmed claim: the answer that claimed it was wrong.
        confirmed = known._replace(is_confirmed=True, claimed_ms=0)
        return confirmed if date_ms < known.date_ms else confirmed._replace(date_ms=date_ms, monotonic_ms=monotonic_ms)
    if known.claimed_ms and date_ms >= known.claimed_ms - _TOLERANCE_MS:
        # Two answers in a row run ahead of elapsed time. Trust the earlier date; the rest needs one more confirmation,
        # because the later date may come from a server with a wrong clock.
        earlier_ms = min(date_ms, known.claimed_ms)
        return _Reading(earlier_ms, monotonic_ms, True, date_ms, known.first_date_ms)
    # The first answer that runs ahead. It may be wrong, so remember its date and do not move the time.
    return known._replace(claimed_ms=date_ms)
