"""The clock of a memory store, moved by the test."""

from __future__ import annotations


class Clock:
    """A ``wall_clock`` of a memory store: one millisecond later at each look."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms
