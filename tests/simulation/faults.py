"""Which faults a run meets: each seed chooses its own few, so that rare combinations come up."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

LONG_PAUSES_MS = (2_000, 30_000, 120_000, 900_000, 2_400_000, 3_000_000, 7_200_000, 100_000_000)
CLOCK_JUMPS_MS = (-86_400_000, -7_200_000, -60_000, 60_000, 7_200_000, 86_400_000)
LATE_BY_MS = (50, 500, 5_000, 60_000, 600_000, 3_600_000, 40_000_000, 10_000_000_000)
"""The last of them is longer than slots are kept, and than any maintenance at the end takes."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities per request or stop."""

    lost_answer: float = 0.0
    """The put took effect, and the connection was reset."""
    slow_down: float = 0.0
    """503: nothing happened."""
    internal_error: float = 0.0
    """500: half of the time the put took effect."""
    late_put: float = 0.0
    """A time-out now, the effect at any later moment."""
    twice: float = 0.0
    """The put took effect and was sent again at once: its own success is reported as somebody else's."""
    again_later: float = 0.0
    """The put took effect, and a copy of it arrives at any later moment."""
    conflict: float = 0.0
    """S3's 409: nothing happened, as another put of the name was under way."""
    failed_read: float = 0.0
    cut_read: float = 0.0
    """A read gives fewer bytes than there are, and no error."""
    death: float = 0.0
    pause: float = 0.0
    """The process stands still for seconds to a day."""
    suspend: float = 0.0
    """Of those pauses: its own clock stood still, too."""
    clock_jump: float = 0.0
    """The host's time of day is set, forwards or back."""
    unordered_lists: bool = False
    interrupt: float = 0.0
    """Of a process with threads: Ctrl-C (``KeyboardInterrupt``) meets one thread, and the process goes on."""
    lost_worker: float = 0.0
    """Of Spark: a task's worker is lost at each attempt, or the one that has committed, by the job."""

    @classmethod
    def swarm(cls, chooser: random.Random) -> Faults:
        """A random subset of the faults, each at a random rate."""

        def rate(most: float) -> float:
            return chooser.choice((0.0, 0.0, most / 10, most / 3, most))

        return cls(
            lost_answer=rate(0.1),
            slow_down=rate(0.1),
            internal_error=rate(0.1),
            late_put=rate(0.05),
            twice=rate(0.05),
            again_later=rate(0.05),
            conflict=rate(0.1),
            failed_read=rate(0.05),
            cut_read=rate(0.03),
            death=rate(0.01),
            pause=rate(0.005),
            suspend=chooser.choice((0.0, 0.5)),
            clock_jump=rate(0.02),
            unordered_lists=chooser.random() < 0.3,
        )

    def with_spark(self, chooser: random.Random) -> Faults:
        """These, and what Spark adds."""
        return replace(self, lost_worker=chooser.choice((0.0, 0.1, 0.3)))
