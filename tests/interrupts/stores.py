"""Stores in memory whose objects are copied, because a test that creates each store anew would take much longer."""

from __future__ import annotations

from collections.abc import Mapping

from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store


def empty_store() -> Store:
    """A store in memory without objects."""
    environment = Environment()
    return Store(MemoryStore(environment), environment)


def objects_of(store: Store) -> dict[str, bytes]:
    """The objects of a store, by path."""
    objects = store.object_store
    return {info.path: objects.get(info.path).body for info in objects.list("")}


def store_of(objects: Mapping[str, bytes]) -> Store:
    """A new store with these objects."""
    store = empty_store()
    for path, body in objects.items():
        store.object_store.put(path, body)
    return store
