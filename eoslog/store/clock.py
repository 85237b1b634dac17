"""The only clock of the protocol: the object store's, as its answers tell it."""

from __future__ import annotations

from eoslog.store.environment import Environment


class StoreClock:
    """The store's time: the newest ``Date`` seen in an answer, carried on by elapsed (never by wall-clock) time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._anchor_monotonic_ms = 0
        self.last_date_ms = 0
        """The newest date of an answer, 0 before the first: a lower bound of the store's time."""
        self.first_date_ms = 0
        """The date of the first answer."""

    def observe(self, date_ms: int) -> None:
        """Take in the date of an answer (ms since the epoch). An older date than the newest is ignored."""
        if self.first_date_ms == 0:
            self.first_date_ms = date_ms
        if date_ms >= self.last_date_ms:
            # The anchor first: a thread that reads in between sees an earlier time, never a later one.
            self._anchor_monotonic_ms = self._environment.monotonic_ms()
            self.last_date_ms = date_ms

    def now_ms(self) -> int:
        """The store's time, estimated (ms since the epoch)."""
        if self.last_date_ms == 0:
            return 0
        return self.last_date_ms + self._environment.monotonic_ms() - self._anchor_monotonic_ms
