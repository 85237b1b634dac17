"""Guards of objects that belong to one process or to one thread at a time.

A forked child has copies of its parent's objects. Among them are locks that another thread held during the fork,
sequences that the parent continues, and rows that the parent will write. So a client refuses to work in the child, or
opens its resources again. A call of a second thread fails at once instead of waiting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, TypeVar

from eoslog.errors import ConcurrentAccess, InvalidRequest, OpenedBeforeFork

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def forks() -> int:
    """Return the number of forks between this process and its first ancestor that imported this module.

    It identifies the process that opened an object, because every object was opened by this process or an ancestor.
    Unlike a process id it never repeats among ancestors, and it costs no system call.
    """
    return _forks


class HomeProcess:
    """The process that opened a client. Only that process may use it."""

    def __init__(self, client: str) -> None:
        """
        Args:
            client: the name of the client in error messages, such as ``producer``.
        """
        self._client = client
        self._process = _forks

    @property
    def is_this(self) -> bool:
        """False in a child that was forked since."""
        return self._process == _forks

    def check(self, call: str) -> None:
        """Refuse a user's call in a forked child.

        Raises:
            OpenedBeforeFork
        """
        if self._process != _forks:
            raise OpenedBeforeFork(
                f"{call}: this {self._client} belongs to the parent process. "
                f"Open another {self._client} in this process"
            )


def cannot_be_pickled(held: object, instead: str) -> InvalidRequest:
    """Return the error for pickling an object that belongs to one process.

    Args:
        instead: what to pass to the other process, and what to do there.
    """
    return InvalidRequest(f"a {type(held).__name__} belongs to its process and cannot be pickled: pass on {instead}")


class ProcessLock:
    """A lock that is free in a forked child, even if a thread of the parent held it during the fork."""

    def __init__(self) -> None:
        self._locks = {_forks: threading.Lock()}

    def __enter__(self) -> None:
        lock = self._locks.get(_forks)
        if lock is None:
            lock = self._locks.setdefault(_forks, threading.Lock())
        lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._locks[_forks].release()


T = TypeVar("T")


class Exclusive:
    """Admits the calls of one thread to an object (Kafka's ``KafkaConsumer.acquire``).

    Threads may use the object one after the other.
    """

    def __init__(self, what: str, advice: str, *, reentrant: bool) -> None:
        """
        Args:
            what: the object, as an error names it.
            advice: what the caller of a refused call should do, as a sentence.
            reentrant: True if a thread may make a call within another one, for example in a callback.
        """
        # Acquiring a lock is atomic: two threads never both succeed.
        self._lock = threading.RLock() if reentrant else threading.Lock()
        self._what = what
        self._advice = advice
        self._under_way: tuple[str, str] | None = None
        """The outermost call and its thread. Used only in error messages, so a slightly outdated value is harmless."""

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Make a call.

        Raises:
            ConcurrentAccess: another call is running. It is not disturbed.
        """
        if not self._lock.acquire(blocking=False):
            raise ConcurrentAccess(f"{name} is not allowed: {self._described()}. {self._advice}")
        outer = self._under_way
        try:
            if outer is None:
                self._under_way = name, threading.current_thread().name
            yield
        finally:
            self._under_way = outer
            self._lock.release()

    def _described(self) -> str:
        call, thread = self._under_way or ("a call", "another one")
        return f"{call} in thread {thread} is under way on this {self._what}"


class ExclusiveIterator(Iterator[T]):
    """Returns another iterator's items to one thread at a time. After an error, each call raises that error again.

    A plain generator has two problems. Two threads that advance it get Python's ``ValueError``. After an error it looks
    finished, so a caller that retries would mistake the first rows for all rows.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._home = HomeProcess("iterator")
        self._error: BaseException | None = None
        # Not reentrant: a callback of a read must not advance the read that calls it.
        self._exclusive = Exclusive("iterator", "Make an iterator for each thread.", reentrant=False)

    def __next__(self) -> T:
        """
        Raises:
            ConcurrentAccess: another thread is advancing the iterator.
            OpenedBeforeFork
        """
        # In a forked child the generator may be in the middle of a step of the parent.
        self._home.check("next()")
        with self._exclusive.call("next()"):
            if self._error is not None:
                raise self._error
            try:
                return next(self._items)
            except StopIteration:
                raise
            except BaseException as error:
                self._error = error
                raise

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and make an iterator there")

    def close(self) -> None:
        """End the iterator and release its items. It returns no more items."""
        with self._exclusive.call("close()"):
            self._items = iter(())
