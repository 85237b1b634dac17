"""An event whose wait may be interrupted at any instruction."""

from __future__ import annotations

import threading
from collections import deque


class Latch:
    """A flag that is set once, and that threads wait for.

    An interrupt in ``threading.Event.wait`` may leave the event's lock locked, and then ``set`` waits for ever. Here
    each waiting thread has a lock of its own, and no code waits for a lock that an interrupted thread holds.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[threading.Lock] = deque()
        """A locked lock of each thread that waits."""

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake all threads that wait for it."""
        self._is_set = True
        while True:
            try:
                self._waiting.popleft().release()
            except IndexError:
                return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Args:
            timeout: the longest wait (s); None: no limit.

        Returns:
            True if the flag is set.
        """
        woken = threading.Lock()
        woken.acquire()
        self._waiting.append(woken)
        # The flag may have been set before ``set`` could see this thread.
        return self._is_set or woken.acquire(timeout=-1 if timeout is None else timeout) or self._is_set
