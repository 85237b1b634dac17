"""What the protocol takes from the process it runs in: elapsed time, sleep, randomness and background work.

Protocol code asks for all of it here, so that a simulator can hold it in its hand.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue


class Environment:
    """The real process: monotonic time, sleep, the operating system's randomness, daemon threads."""

    def monotonic_ms(self) -> int:
        """Elapsed milliseconds since an arbitrary start. It measures patience, never the time of day."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """As ``monotonic_ms``, in nanoseconds: it measures how long something took, and decides nothing."""
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

    def wait_for(self, event: threading.Event, patience_s: float | None = None) -> bool:
        """Wait until another thread of this process sets ``event``.

        Args:
            patience_s: for how long at most (seconds); None: without a limit.

        Returns:
            Whether it is set.
        """
        return event.wait(None if patience_s is None else min(patience_s, threading.TIMEOUT_MAX))

    def new_token(self) -> str:
        """A name that is drawn once in the life of a store (128 random bits, safe after a fork)."""
        return os.urandom(16).hex()

    def jitter(self) -> float:
        """A number in [0, 1) that spreads retries."""
        return random.SystemRandom().random()

    def reached(self, crash_point: str) -> None:
        """The process has come to a named point between two steps: tests stop it there. Nothing happens here."""

    def background(self, work: Callable[[], None]) -> None:
        """Run ``work`` off the caller's path."""
        threading.Thread(target=work, daemon=True, name="eoslog-background").start()


def host_time_ms() -> int:
    """The host's time of day (ms since the epoch). Only a store that lives on this host may take it for its clock."""
    return time.time_ns() // 1_000_000
