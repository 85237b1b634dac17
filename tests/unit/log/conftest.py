from __future__ import annotations

import pytest

from tests.unit.log.world import World


@pytest.fixture
def world() -> World:
    """A world whose log has just been made."""
    world = World()
    world.created()
    return world
