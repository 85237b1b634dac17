"""The Python worker process of Spark: its environment, and the stores that it keeps open between calls.

This package uses its process only through this module. So the simulation can run many workers in one process.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.opening import open_object_store
from eoslog.store import Store, connect
from pyspark_eoslog.options import StoreLocation

_SINK_RUNNER = "pyspark.sql.worker.python_streaming_sink_runner"
"""The module of worker processes that only commit and abort."""
_DAEMON = "pyspark.daemon"
"""The program whose forked children serve one call of Spark after another."""


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
        options: dict[str, Any] = dict(location.options)
        store = connect(location.url, **options)
        self._settle()
        return store

    def open_object_store(self, location: StoreLocation) -> ObjectStore:
        store = open_object_store(location.url, self.environment, **dict(location.options))
        self._settle()
        return store

    def _settle(self) -> None:
        """Exempt from garbage collection what this process has loaded, if Spark uses it again and again.

        Spark's daemon collects all garbage after each call. For the modules of eoslog that takes longer than a call of
        a micro-batch, and the next step of the micro-batch waits for the core.
        """
        if self.stores or self.object_stores:
            # Once is enough. A store that is opened later may replace another one, and must stay collectable.
            return
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name == _DAEMON:
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
