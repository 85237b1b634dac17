"""A store in memory with the topics of a soak."""

from __future__ import annotations

import pytest

import eoslog
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.soak.layout import make_topics


@pytest.fixture
def store() -> eoslog.Store:
    environment = Environment()
    store = eoslog.Store(MemoryStore(environment), environment)
    make_topics(store)
    return store
