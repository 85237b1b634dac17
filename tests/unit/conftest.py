from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace

from eoslog.store import Store
from tests.unit.support.recorded import Recorded
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


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """What this process records as a program that has configured a tracer provider."""
    found = Recorded()
    # The API sets a provider only once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    yield found
    found.provider.shutdown()
