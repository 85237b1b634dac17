"""A state machine alone, and a world of processes over one object store: what the scenarios are told in."""

from __future__ import annotations

import pytest

from tests.conformance.end_to_end import LAYOUTS, Stage
from tests.depth import sweep
from tests.unit.conftest import store, world
from tests.unit.state.conftest import history
from tests.unit.support.world import World

__all__ = ["history", "stage", "store", "world"]


@pytest.fixture(params=sweep(LAYOUTS, quick=["as written", "sealed but for its end"]))
def stage(world: World, request: pytest.FixtureRequest) -> Stage:
    """The topics ``topic1`` and ``topic2`` with four partitions each, in every layout."""
    return Stage(world, request.param)
