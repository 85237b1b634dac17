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
from collections.abc import Callable, Iterator

from eoslog.storage.environment import Environment

PATIENCE_MS = 1000
"""The longest wait for a turn."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_open_waits: set[_Wait] = set()
"""Waits of this process whose lock files are open."""


def _close_inherited() -> None:
    # A lock belongs to the open file. A forked child shares that file, so the lock would outlive the parent.
    for wait in list(_open_waits):
        wait.close_descriptors(is_forked=True)


class HostQueue:
    """Two advisory locks, which the kernel releases when the process that holds them dies.

    The process that holds the lock ``turn`` appends. The process that holds the lock ``queue`` is next. Without the
    lock ``queue``, the process that has just appended would usually get ``turn`` again, because the others must first
    wake up.
    """

    def __init__(self, directory: str, environment: Environment, check: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            check: is called before a process queues up. It may raise an error.
        """
        self._directory = directory
        self._environment = environment
        self._check = check
        self._abandoned: _Wait | None = None
        """A wait that has ended, but whose thread still waits for a lock. Probably the process that has the lock is
        stopped, so this process does not wait again until that thread has ended."""

    @contextlib.contextmanager
    def place(self, deadline_ms: int | None = None) -> Iterator[Place]:
        """Queue up. The context's end gives up the place, and the turn if it has come.

        Args:
            deadline_ms: until when to wait at most (elapsed time, ms). No wait is longer than a second.
        """
        self._check()
        wait = _Wait.opened(self._directory)
        if wait is None:
            # This process may not create the lock files. It appends without a turn, and put-if-absent decides.
            yield Place(self._environment, None, must_wait=False)
            return
        try:
            if wait.begins_at_once():
                yield Place(self._environment, None, must_wait=False)
            elif (self._abandoned is not None and not self._abandoned.is_closed) or not wait.start():
                yield Place(self._environment, None, must_wait=True)
            else:
                yield Place(self._environment, wait, must_wait=True, deadline_ms=deadline_ms)
        finally:
            wait.leave()
            if not wait.is_closed:
                self._abandoned = wait


class Place:
    """A place in the queue."""

    def __init__(
        self, environment: Environment, wait: _Wait | None, must_wait: bool, deadline_ms: int | None = None
    ) -> None:
        self.must_wait = must_wait
        """Whether another process had the turn. Then other processes have probably appended."""
        self._environment = environment
        self._wait = wait
        end_ms = environment.monotonic_ms() + PATIENCE_MS
        self._end_ms = end_ms if deadline_ms is None else min(end_ms, deadline_ms)

    @property
    def is_behind(self) -> bool:
        """Whether at least two processes are before this one."""
        return self._wait is not None and not self._wait.is_next.is_set()

    def wait_to_be_next(self) -> None:
        """Wait until only the process that has its turn is before this one."""
        if self._wait is not None:
            self._wait_for(self._wait.is_next)

    def wait_for_turn(self) -> None:
        if self._wait is not None:
            self._wait.wants_turn.set()
            self._wait_for(self._wait.began)

    def _wait_for(self, event: threading.Event) -> None:
        left_ms = max(0, self._end_ms - self._environment.monotonic_ms())
        self._environment.wait_for(event, left_ms / 1000)


class _Wait:
    """One wait of this process for its turn, and the turn that follows.

    A thread waits for the locks, because ``flock`` has no time limit. Nobody can stop that thread while it waits for a
    lock. So it waits for ``turn`` only when it is asked to: otherwise a process that has left the queue could get the
    turn.
    """

    def __init__(self, queue: int, turn: int) -> None:
        self.is_next = threading.Event()
        """Set when this process holds the lock ``queue``."""
        self.wants_turn = threading.Event()
        """Set when the thread may wait for the lock ``turn``, or when the wait has ended."""
        self.began = threading.Event()
        """Set when this process has its turn."""
        self.is_closed = False
        self._queue, self._turn = queue, turn
        self._mutex = threading.Lock()
        self._waits_for_lock = False
        """Whether the thread is in ``flock``, or about to be. Then only the thread may close the descriptors."""
        self._is_left = False

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
        wait = cls(*descriptors)
        _open_waits.add(wait)
        return wait

    def begins_at_once(self) -> bool:
        """Take the turn if no process has it or waits for it. Return True on success."""
        try:
            fcntl.flock(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_next.set()
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return True

    def start(self) -> bool:
        """Begin to wait. Return False if no thread can start, because the interpreter exits."""
        self._waits_for_lock = True
        try:
            threading.Thread(target=self._run, daemon=True, name="eoslog-turn").start()
        except RuntimeError:
            self._waits_for_lock = False
            return False
        return True

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            if not self.is_next.is_set():
                fcntl.flock(self._queue, fcntl.LOCK_EX)
        if not self._has_waited(self.is_next):
            return
        self.wants_turn.wait()
        with self._mutex:
            if self.is_closed:
                return
            self._waits_for_lock = True
        with contextlib.suppress(OSError):
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        self._has_waited(self.began)

    def _has_waited(self, event: threading.Event) -> bool:
        """Report that the thread has a lock. Return False if the caller has left: then the lock is released again."""
        with self._mutex:
            self._waits_for_lock = False
            if self._is_left:
                self.close_descriptors()
            event.set()
            return not self._is_left

    def leave(self) -> None:
        """Give up the place or end the turn. If the thread waits for a lock, it releases the lock when it gets it."""
        with self._mutex:
            self._is_left = True
            if not self._waits_for_lock:
                self.close_descriptors()
        self.wants_turn.set()

    def close_descriptors(self, *, is_forked: bool = False) -> None:
        """Release the locks and close their files.

        Args:
            is_forked: True in a forked child, where the locks are the parent's. They stay locked.
        """
        if self.is_closed:
            return
        self.is_closed = True
        _open_waits.discard(self)
        for descriptor in (self._turn, self._queue):
            if not is_forked:
                # Unlock before closing: a child that is being forked may have a copy, which would keep the lock.
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


os.register_at_fork(after_in_child=_close_inherited)
