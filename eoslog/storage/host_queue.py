"""The queue in which the processes of one host wait for their turn to append to a local store.

The queue is a hint. Put-if-absent alone decides which record a slot gets. The queue saves the processes races that they
would lose, and gives each its turn. The kernel wakes the next process at once. No process waits for longer than a
second: if the holder of the turn was stopped, the others go on without it.
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
    # A lock belongs to the open file. A forked child shares that file, so the lock would outlive the parent.
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


class HostQueue:
    """Two advisory locks, which the kernel releases when their holder dies.

    The holder of the lock ``turn`` appends. The holder of the lock ``queue`` is next. Without the lock ``queue``, the
    process that has just appended would mostly get ``turn`` again: the waiting processes must first wake up.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._abandoned: _Wait | None = None
        """A wait that was given up after a second, until it ends: probably the holder of the turn is stopped. While it
        goes on, this process does not wait again."""

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait for this process's turn, at most a second. The context's value is True if it was not free at once."""
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
        """Open the two lock files. Return None if this process may not write to the store."""
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
        """Take the turn if no process has it or waits for it. Return whether that succeeded."""
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
        # A thread waits, because ``flock`` has no time limit.
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
        """End the turn. A wait that still goes on ends when the turn comes, and gives the turn up."""
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
