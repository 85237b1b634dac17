"""The Python process that Spark runs this code in: its environment, and the stores that it holds open between calls.

All that this package takes from its process it asks for here, so that a simulator can run many of them in one.
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
"""The module of processes that only commit and abort."""
_DAEMON = "pyspark.daemon"
"""The program whose forked children serve one call of Spark after another."""


@dataclass(slots=True)
class HeldStore:
    store: Store
    verified_ms: int | None = None
    """When its id and its tail were last known to be current, in elapsed time of this process."""


class Worker:
    """One worker process. Spark uses it again and again, for one call after another."""

    def __init__(self, environment: Environment | None = None) -> None:
        self.environment = environment or Environment()
        self.token = self.environment.new_token()
        """Names the process."""
        self.stores: dict[StoreLocation, HeldStore] = {}
        self.object_stores: dict[StoreLocation, ObjectStore] = {}
        """Object stores alone, of tasks."""

    @property
    def only_commits(self) -> bool:
        """Whether Spark uses it for nothing but commits and aborts of micro-batches."""
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
            # Once is enough. A store that is opened again in another's place must stay collectable.
            return
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name == _DAEMON:
            gc.freeze()

    def forget_stores(self) -> None:
        """Hold nothing, as a process that was just started."""
        self.stores.clear()
        self.object_stores.clear()


_workers: dict[int, Worker] = {}
"""By process id: a forked process holds nothing of its parent's."""
_acting: ContextVar[Worker | None] = ContextVar("worker", default=None)


def this_worker() -> Worker:
    """The process that the caller runs in."""
    acting = _acting.get()
    if acting is not None:
        return acting
    process_id = os.getpid()
    return _workers.get(process_id) or _workers.setdefault(process_id, Worker())


@contextmanager
def acting_as(worker: Worker) -> Iterator[None]:
    """Be another process meanwhile, in this context."""
    token = _acting.set(worker)
    try:
        yield
    finally:
        _acting.reset(token)
