"""A clock that tests move."""

from __future__ import annotations

from eoslog.storage.environment import Environment


class Clock(Environment):
    """The time of a host, and of a memory store if it is the store's ``wall_clock`` (ms)."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now
