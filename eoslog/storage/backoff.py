"""Exponential backoff: pauses between attempts that double up to a limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` to ``longest_ms``."""

    first_ms: int
    longest_ms: int

    def pause_ms(self, failures: int, jitter: float = 1.0) -> float:
        """Return how long to wait after so many failures in a row (1 or more), in ms.

        Args:
            jitter: a factor from 0 to 1 that spreads the attempts of several processes.
        """
        return min(self.first_ms << min(failures - 1, 16), self.longest_ms) * jitter
