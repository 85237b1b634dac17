"""The queue in which processes of one host wait for their turn to append to a local store.

The queue is a hint: put-if-absent alone decides which record a slot gets. The queue avoids races that a process would
lose, and lets each process append in turn. The kernel wakes the next process at once. A process waits at most a second:
if the process that has the turn is stopped, the others continue without it.
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
    """Two advisory locks, which the kernel releases when the process that holds them dies.

    The process that holds the lock ``turn`` appends. The process that holds the lock ``queue`` is next. Without the
    lock ``queue``, the process that has just appended would usually get ``turn`` again, because the others must first
    wake up.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._abandoned: _Wait | None = None
        """The wait that this process gave up after a second. Probably the process that has the turn is stopped, so this
        process does not wait again until the abandoned wait ends."""

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Wait for this process's turn, at most a second. The context's value is True if it had to wait."""
        wait = _Wait.opened(self._directory)
        if wait is None:
            # This process may not create the lock files. It appends without a turn, and put-if-absent decides.
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
    """One wait of this process for its turn, and the turn that follows."""

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
        """Take the turn if no process has it or waits for it. Return True on success."""
        try:
            fcntl.flock(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_queued = True
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return True

    def lasts_for(self, patience_s: float) -> bool:
        """Wait for the turn. Return False if it did not come within ``patience_s`` seconds."""
        # A thread waits, because ``flock`` has no time limit.
        self._is_waiting = True
        try:
            threading.Thread(target=self._wait, daemon=True, name="eoslog-turn").start()
        except RuntimeError:  # no thread can start: the interpreter exits
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
            # The caller gave up before the turn came. Release it at once for the next process.
            if self._is_left:
                self._close()

    def leave(self) -> None:
        """End the turn. If the thread still waits, it releases the turn as soon as the turn comes."""
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
