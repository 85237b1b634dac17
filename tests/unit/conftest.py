from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from eoslog.store import Store
from tests.unit.support.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> Store:
    """A store with the topic ``t`` of Kafka records, in two partitions."""
    store = world.process()
    store.admin.create_topic("t", partitions=2)
    return store


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads are switched as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
