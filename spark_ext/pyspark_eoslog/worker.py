"""The Python worker process of Spark: its environment, and the stores that it keeps open between calls.

This package uses its process only through this module. So the simulation can run many workers in one process.

A worker serves many calls of Spark. In between, a store may be deleted and another one created at the same URL. So the
id of a kept store is checked before it is used.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from eoslog import Store, connect
from eoslog.errors import EosLogError, NotAStore, StoreUnavailable, StoreVanished
from eoslog.session.description import DESCRIPTION_PATH, read_description
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.opening import open_object_store
from pyspark_eoslog.options import StoreLocation

_SINK_RUNNER = "pyspark.sql.worker.python_streaming_sink_runner"
"""The module of worker processes that only commit and abort."""
_DAEMON = "pyspark.daemon"
"""The program whose forked children serve one call of Spark after another."""
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable by which Spark's workers leave tracebacks out of the errors that they report."""
_PATIENCE_MS = 120_000
_BACKOFF = Backoff(first_ms=100, longest_ms=5_000)
T = TypeVar("T")


@dataclass(slots=True)
class HeldStore:
    store: Store
    verified_ms: int | None = None
    """The elapsed time of this process at which the store's id and state were last known to be current (ms)."""


class Worker:
    """One worker process. Spark uses it again and again, for one call after another."""

    def __init__(self, environment: Environment | None = None) -> None:
        self.environment = environment or Environment()
        self.id = self.environment.new_id()
        """A unique name of the process."""
        self.stores: dict[StoreLocation, HeldStore] = {}
        self.object_stores: dict[StoreLocation, ObjectStore] = {}
        """Object stores of tasks, which need no log."""

    @property
    def only_commits(self) -> bool:
        """True if Spark uses this process only for commits and aborts of micro-batches."""
        return _SINK_RUNNER in sys.modules

    def connect(self, location: StoreLocation) -> Store:
        """Return a new connection to the store at a location."""
        options: dict[str, Any] = dict(location.options)
        store = connect(location.url, **options)
        self._settle()
        return store

    def open_object_store(self, location: StoreLocation) -> ObjectStore:
        """Return the object store at a location, without opening the log."""
        store = open_object_store(location.url, self.environment, **dict(location.options))
        self._settle()
        return store

    def _settle(self) -> None:
        """Exempt from garbage collection what this process has loaded, if Spark uses it again and again.

        Spark's daemon collects all garbage after each call. With the modules of eoslog the collection takes longer than
        a call of a micro-batch, and the next step of the micro-batch waits for the core.
        """
        if self.stores or self.object_stores:
            # Once is enough. A store that is opened later may replace another one, and must stay collectable.
            return
        if _program() == _DAEMON:
            gc.freeze()

    def forget_stores(self) -> None:
        """Close all stores, as in a process that has just started."""
        self.stores.clear()
        self.object_stores.clear()


_workers: dict[int, Worker] = {}
"""Workers by process id. So a forked child never uses stores of its parent."""
_acting: ContextVar[Worker | None] = ContextVar("worker", default=None)


def this_worker() -> Worker:
    """Return the worker of the current process."""
    acting = _acting.get()
    if acting is not None:
        return acting
    process_id = os.getpid()
    return _workers.get(process_id) or _workers.setdefault(process_id, Worker())


@contextmanager
def acting_as(worker: Worker) -> Iterator[None]:
    """Act as another worker within this context. Used by the simulation."""
    token = _acting.set(worker)
    try:
        yield
    finally:
        _acting.reset(token)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of eoslog so that Spark reports only their messages, without causes and tracebacks.

    A traceback would hide the message, which names the problem and the remedy. Other errors are bugs, so they keep
    their tracebacks.
    """
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            "a Python worker of Spark has not enough memory. Raise spark.executor.pyspark.memory (a task of eoslog "
            f"needs up to 1g) or leave it unset, and on the driver PYSPARK_PLANNER_MEMORY_MB. {error}".strip()
        ) from error
    except EosLogError as error:
        if _program().startswith("pyspark."):
            # Spark's worker reports this error and ends. So no later error loses its traceback.
            os.environ[_HIDE_TRACEBACK] = "1"
        raise error from None


def _program() -> str:
    """Return the module that this process runs as its program; an empty text if it does not run a module."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if main is None else str(main.name)


def object_store(location: StoreLocation) -> ObjectStore:
    """Return the object store for a task, which does not read the log."""
    worker = this_worker()
    if location not in worker.object_stores:
        found = worker.object_stores[location] = worker.open_object_store(location)
        # Without this check a task's upload would create a removed directory again. Accept any store here, because the
        # commit checks the id.
        found.watch(DESCRIPTION_PATH, lambda description: True)
    return worker.object_stores[location]


def verified_store(location: StoreLocation) -> Store:
    """Return the store that exists at this location now. One request checks the id of the store that is kept open."""
    held = _hold(location)
    try:
        is_same = read_description(held.store.object_store).store_id == held.store.describe().store_id
    except StoreVanished:
        is_same = False
    if is_same:
        return held.store
    store = _reopen(location).store
    # If the store was removed, this raises NotAStore. A caller may then create a store.
    read_description(store.object_store)
    return store


def new_store(location: StoreLocation) -> Store:
    """Return a store that does not exist yet. It is created with its first topic."""
    return _reopen(location).store


def is_verified(location: StoreLocation, age_ms: int) -> bool:
    """Return True if the id of the kept store was checked less than ``age_ms`` ago."""
    verified_ms = _hold(location).verified_ms
    return verified_ms is not None and this_worker().environment.monotonic_ms() - verified_ms < age_ms


def recently_verified_store(location: StoreLocation, age_ms: int, *, may_vanish: bool = False) -> tuple[Store, bool]:
    """Return the store, and True if its state is older than ``age_ms`` and must be refreshed.

    Args:
        may_vanish: send the request that checks the store's id in any case. A caller that can create the store must
            learn that it was removed.
    """
    if is_verified(location, age_ms) and not may_vanish:
        return _hold(location).store, False
    now_ms = this_worker().environment.monotonic_ms()
    store = verified_store(location)
    if is_verified(location, age_ms):
        # The check found the same store, and its known state is recent enough.
        return store, False
    _hold(location).verified_ms = now_ms
    return store, True


def store_with_id(location: StoreLocation, store_id: str) -> Store:
    """Return the store of this id, without a request if it is already open.

    Raises:
        NotAStore: another store is at this location.
    """
    store = _hold(location).store
    if store.describe().store_id != store_id:
        store = _reopen(location).store
    if store.describe().store_id != store_id:
        raise NotAStore(f"{store.url}: the store was replaced by another while the job ran; nothing was committed")
    return store


def mark_current(location: StoreLocation) -> None:
    """Note that an append has just shown that the known state is current."""
    _hold(location).verified_ms = this_worker().environment.monotonic_ms()


def patiently(call: Callable[[], T]) -> T:
    """Repeat a call for two minutes while the object store does not answer. So a stream survives a short outage.

    Raises:
        StoreUnavailable: the object store did not answer within two minutes.
    """
    environment = this_worker().environment
    deadline_ms = environment.monotonic_ms() + _PATIENCE_MS
    for attempt in count(1):
        try:
            return call()
        except StoreUnavailable:
            if environment.monotonic_ms() > deadline_ms:
                raise
        environment.sleep_ms(_BACKOFF.pause_ms(attempt))
    raise AssertionError("the loop has no end")


def _hold(location: StoreLocation) -> HeldStore:
    return this_worker().stores.get(location) or _reopen(location)


def _reopen(location: StoreLocation) -> HeldStore:
    worker = this_worker()
    held = worker.stores[location] = HeldStore(worker.connect(location))
    return held
