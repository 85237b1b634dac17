"""The queue of the processes of one host that append to one local store: in turn, and woken at once.

It is a hint. Put-if-absent alone decides which record a slot gets. The queue spares the processes races that they would
lose, and gives each its turn. No process waits for long: if the holder of the turn was stopped, the others go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator

_PATIENCE_S = 1.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_held: set[int] = set()
"""Descriptors of this process that may hold a lock."""


def _close_inherited() -> None:
    # A lock belongs to the open file, which a forked child shares: it would outlive the death of the parent.
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


class HostQueue:
    """Two advisory locks, which the kernel releases when their holder dies.

    The holder of the lock ``turn`` appends. The holder of the lock ``queue`` is the next. Without the second lock the
    process that has just appended would mostly be faster than those that must wake up first, and have all the turns.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._abandoned: _Wait | None = None
        """A wait that took too long, until it ends: its process was stopped while it had its turn."""

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait for this process's turn, for a second at most. The value tells whether it had to wait."""
        wait = _Wait.opened(self._directory)
        if wait is None:
            yield False
            return
        try:
            if wait.begins_at_once():
                yield False
            elif self._abandoned is not None and not self._abandoned.is_over:
                yield True
            else:
                self._abandoned = None if wait.lasts_for(_PATIENCE_S) else wait
                yield True
        finally:
            wait.leave()


class _Wait:
    """One process's wait for its turn, and then its turn."""

    def __init__(self, queue: int, turn: int) -> None:
        self._queue, self._turn = queue, turn
        self._mutex = threading.Lock()
        self._is_queued = False
        self._is_waiting = False
        self._is_left = False
        self._began = threading.Event()
        self._closed = False

    @classmethod
    def opened(cls, directory: str) -> _Wait | None:
        """None where the store cannot be written to."""
        descriptors: list[int] = []
        try:
            for name in ("queue", "turn"):
                descriptors.append(os.open(os.path.join(directory, name), _FLAGS, 0o666))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        _held.update(descriptors)
        return cls(*descriptors)

    @property
    def is_over(self) -> bool:
        return self._closed

    def begins_at_once(self) -> bool:
        """Whether nobody has the turn, nor waits for it."""
        try:
            fcntl.flock(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_queued = True
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return True

    def lasts_for(self, patience_s: float) -> bool:
        """Wait for the turn. False if it did not come in time."""
        # A thread waits, because a lock cannot be waited for with a time limit.
        self._is_waiting = True
        try:
            threading.Thread(target=self._wait, daemon=True, name="eoslog-turn").start()
        except RuntimeError:  # the interpreter exits
            self._is_waiting = False
            return False
        return self._began.wait(patience_s)

    def _wait(self) -> None:
        with contextlib.suppress(OSError):
            if not self._is_queued:
                fcntl.flock(self._queue, fcntl.LOCK_EX)
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        with self._mutex:
            self._is_waiting = False
            self._began.set()
            if self._is_left:
                self._close()

    def leave(self) -> None:
        """End the turn. If the wait goes on, it ends as soon as the turn comes."""
        with self._mutex:
            self._is_left = True
            if not self._is_waiting:
                self._close()

    def _close(self) -> None:
        for descriptor in (self._turn, self._queue):
            if descriptor in _held:
                _held.discard(descriptor)
                # Unlock before closing: a child that is being forked may have a copy, which would keep the lock.
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)
        self._closed = True
