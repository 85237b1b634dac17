"""A log of rules alone, and a world of processes over one object store: what the scenarios are told in."""

from __future__ import annotations

import pytest

from eoslog.store import Store
from tests.conformance.end_to_end import LAYOUTS, Stage
from tests.unit.state.histories import History
from tests.unit.support.world import World


@pytest.fixture
def history() -> History:
    """The rules without a store: the topic ``t`` with two partitions."""
    return History()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> Store:
    """A process whose store has the topic ``t`` of Kafka records, in two partitions."""
    store = world.process()
    store.admin.create_topic("t", partitions=2)
    return store


@pytest.fixture(params=LAYOUTS)
def stage(world: World, request: pytest.FixtureRequest) -> Stage:
    """The topics ``topic1`` and ``topic2`` with four partitions each, in every layout."""
    return Stage(world, request.param)
