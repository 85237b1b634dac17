"""A call that is held at one of its requests, so that another thread can be seen to meet it there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import StoredObject
from eoslog.store import Store

T = TypeVar("T")
LONGEST_WAIT_S = 60
"""After so long a test that waits for a thread has failed."""


class HoldingStore(MemoryStore):
    """A store that holds the next GET after ``hold`` until it is let go."""

    def __init__(self) -> None:
        super().__init__(Environment())
        self._is_held = threading.Event()
        self._may_go_on = threading.Event()
        self._holds = False

    def get(self, path: str) -> StoredObject:
        if self._holds:
            self._holds = False
            self._is_held.set()
            assert self._may_go_on.wait(LONGEST_WAIT_S)
        return super().get(path)

    @contextmanager
    def holding(self, work: Callable[[], T]) -> Iterator[Future[T]]:
        """Do ``work`` in a thread of its own, which is held at its first GET until the block ends."""
        self._is_held.clear()
        self._may_go_on.clear()
        self._holds = True
        with ThreadPoolExecutor(1, thread_name_prefix="holder") as threads:
            doing = threads.submit(work)
            try:
                assert self._is_held.wait(LONGEST_WAIT_S)
                yield doing
            finally:
                self._may_go_on.set()
            doing.exception(LONGEST_WAIT_S)


def holding_store() -> Store:
    return Store(HoldingStore(), Environment())


def held(store: Store, work: Callable[[], T]) -> AbstractContextManager[Future[T]]:
    """``HoldingStore.holding`` of a store that ``holding_store`` made."""
    assert isinstance(store.object_store, HoldingStore)
    return store.object_store.holding(work)


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Do ``work`` in several threads that begin together. Returns what each returned."""
    begin = threading.Barrier(count)

    def begun() -> T:
        begin.wait(LONGEST_WAIT_S)
        return work()

    with ThreadPoolExecutor(count) as threads:
        return [each.result(LONGEST_WAIT_S) for each in [threads.submit(begun) for _ in range(count)]]
