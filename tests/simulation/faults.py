"""Which faults a run meets: each seed chooses its own few, so that rare combinations come up."""

from __future__ import annotations

import random
from dataclasses import dataclass

_LONG_PAUSES_MS = (2_000, 30_000, 120_000, 900_000, 7_200_000, 100_000_000)


@dataclass(slots=True)
class Faults:
    """Probabilities per request or stop."""

    on: bool = True
    lost_answer: float = 0.0
    """The put took effect, and nobody says so."""
    failed_before: float = 0.0
    """An error, and nothing happened."""
    late_put: float = 0.0
    """An error now, the effect at any later moment."""
    twice: float = 0.0
    """The put took effect and was sent again: its own success is reported as somebody else's."""
    conflict: float = 0.0
    """S3's 409."""
    failed_read: float = 0.0
    death: float = 0.0
    pause: float = 0.0
    """The process stands still for seconds to a day."""
    suspend: float = 0.0
    """Of those pauses: its own clock stood still, too."""
    unordered_lists: bool = False

    @classmethod
    def swarm(cls, chooser: random.Random) -> Faults:
        """A random subset of the faults, each at a random rate."""

        def rate(most: float) -> float:
            return chooser.choice((0.0, 0.0, most / 10, most / 3, most))

        return cls(
            lost_answer=rate(0.1),
            failed_before=rate(0.1),
            late_put=rate(0.05),
            twice=rate(0.05),
            conflict=rate(0.1),
            failed_read=rate(0.05),
            death=rate(0.01),
            pause=rate(0.005),
            suspend=chooser.choice((0.0, 0.5)),
            unordered_lists=chooser.random() < 0.3,
        )

    def pause_ms(self, chooser: random.Random) -> int:
        return chooser.choice(_LONG_PAUSES_MS) if chooser.random() < self.pause else 0
