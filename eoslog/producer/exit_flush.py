"""Flushing producers when the interpreter exits.

Rows without a transaction are written, within a time limit. Rows in an open transaction are not: only the application
knows whether it is complete. A warning counts the lost rows.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

from eoslog.storage.environment import Environment
from eoslog.storage.library_threads import spend_exit_time


class Flushable(Protocol):
    """A producer."""

    def _flush_at_exit(self, left_ms: int) -> None: ...
    def _warn_at_exit(self) -> None: ...


_environment = Environment()
_holders: set[Flushable] = set()
"""Producers with unsettled rows. The set keeps a producer alive that the program has dropped."""
_left_ms = 10_000
"""How long the exit may still take, for all producers of the process together."""


def add(producer: Flushable) -> None:
    """Register a producer that holds unsettled rows."""
    _holders.add(producer)


def discard(producer: Flushable) -> None:
    """Unregister a producer that holds none."""
    _holders.discard(producer)


def _flush_all() -> None:
    """Flush all producers, in a thread that is left behind when the time is over: a request may never be answered."""
    global _left_ms
    if not _holders or _left_ms <= 0:
        return
    flushing = threading.Thread(target=_flush_each, args=(tuple(_holders),), daemon=True, name="eoslog-exit")
    began_ms = _environment.monotonic_ms()
    try:
        flushing.start()
    except RuntimeError:  # some versions of Python start no thread during the exit
        _flush_each(tuple(_holders))
    else:
        flushing.join(_left_ms / 1000)
    spent_ms = _environment.monotonic_ms() - began_ms
    _left_ms -= spent_ms
    spend_exit_time(spent_ms)
    if _is_child_of_multiprocessing():
        # A child of multiprocessing does not call functions registered with atexit, so warn here.
        _warn()


def _flush_each(producers: Sequence[Flushable]) -> None:
    for producer in producers:
        producer._flush_at_exit(_left_ms)


def _flush_and_warn() -> None:
    try:
        # Flush again: threads and exit functions of the program may have sent rows since.
        _flush_all()
    finally:
        # Warn also if Ctrl-C ends the wait: no row is lost silently.
        _warn()


def _warn() -> None:
    for producer in tuple(_holders):
        producer._warn_at_exit()


def _is_child_of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _register() -> None:
    # Runs after all threads except daemons have ended.
    atexit.register(_flush_and_warn)
    # Registration fails with RuntimeError if this is first imported during the exit. Then the function above must do.
    with contextlib.suppress(RuntimeError):
        # _flush_all runs when the main thread has ended and before Python's thread pools shut down. The S3 client
        # resolves host names in a pool, so it cannot connect later. Such functions run in the reverse order of their
        # registration: the pools are imported first, so that theirs runs after this one.
        import concurrent.futures.thread  # noqa: F401

        threading._register_atexit(_flush_all)  # type: ignore[attr-defined]


_register()
