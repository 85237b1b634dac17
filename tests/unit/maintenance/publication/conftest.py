"""A store with a published topic."""

from __future__ import annotations

import pytest

from eoslog import Store
from tests.unit.maintenance.publication.published_topics import (
    create,
)
from tests.unit.support.world import World


@pytest.fixture
def store(world: World) -> Store:
    """A store with the published topic ``t`` of columns, in one partition."""
    store = world.process()
    create(store)
    return store
