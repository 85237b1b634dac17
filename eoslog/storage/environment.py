"""The services that the protocol takes from its process: time, sleep, randomness, background work.

Protocol code uses no other source for them, so that the simulation can control them.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from eoslog.storage.latch import Latch
from eoslog.storage.library_threads import run_to_its_end, start_thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: pauses between attempts that double from ``first_ms`` to ``longest_ms``."""

    first_ms: int
    longest_ms: int

    def pause_ms(self, failures: int, jitter: float = 1.0) -> float:
        """Return the pause after a failure (ms).

        Args:
            failures: the number of failures in a row, 1 or more.
            jitter: a factor from 0 to 1 that spreads the attempts of several processes.
        """
        return min(self.first_ms << min(failures - 1, 16), self.longest_ms) * jitter


class Environment:
    """The real process: monotonic time, sleep, the operating system's randomness, daemon threads."""

    def monotonic_ms(self) -> int:
        """Return the elapsed time since an arbitrary start (ms). It measures durations, never the time of day."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the elapsed time in ns. It is only for metrics: no decision depends on it."""
        return time.monotonic_ns()

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def wait_ms(self, duration_ms: float, wakeups: SimpleQueue[None]) -> None:
        """Sleep for up to ``duration_ms``. Return early once ``wakeups`` has an item, and leave the item there."""
        # A signal handler may put into a SimpleQueue at any time. Setting a threading.Event there could deadlock.
        try:
            wakeups.put(wakeups.get(timeout=duration_ms / 1000))
        except Empty:
            return

    def wait_for(self, event: threading.Event | Latch, patience_s: float | None = None) -> bool:
        """Wait until another thread of this process sets ``event``.

        Args:
            patience_s: the longest wait (s); None: no limit.

        Returns:
            True if the event is set.
        """
        return event.wait(None if patience_s is None else min(patience_s, threading.TIMEOUT_MAX))

    def new_id(self) -> str:
        """Return a name that is unique in the store (128 random bits, also unique after a fork)."""
        return os.urandom(16).hex()

    def jitter(self) -> float:
        """Return a random number in [0, 1), to spread retries."""
        return random.SystemRandom().random()

    def reached(self, crash_point: str) -> None:
        """Mark a failpoint: a named point between two steps, where tests stop the process. It does nothing else."""

    def background(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the background.

        Raises:
            RuntimeError: no thread can start, because the interpreter exits.
        """
        start_thread(work, "eoslog-background")

    uninterrupted = staticmethod(run_to_its_end)
    """Runs a step to its end, and returns its answer or raises its error.

    An exception from outside, such as Ctrl-C, ends only the wait of the caller (``library_threads``).
    """


def host_time_ms() -> int:
    """Return the host's time of day (ms since the epoch). Only a store on this host may use it as its clock."""
    return time.time_ns() // 1_000_000
