"""All mutations, by name."""

from __future__ import annotations

from tests.simulation.mutations import (
    deletion,
    gateway_security,
    gateways,
    group_coordinators,
    producers,
    publication,
    readers,
    records,
    segments,
    services,
    shared_objects,
    sharing,
    slots,
    streams,
    threads,
    topics,
    transaction_versions,
    transactions,
)
from tests.simulation.mutations.mutation import MUTATIONS, Mutation

MODULES = (
    slots,
    sharing,
    services,
    threads,
    deletion,
    producers,
    transactions,
    transaction_versions,
    gateways,
    group_coordinators,
    gateway_security,
    readers,
    records,
    shared_objects,
    segments,
    topics,
    streams,
    publication,
)
"""Those that register mutations, in the order of the page."""

BY_HISTORIES: dict[str, Mutation] = {name: each for name, each in MUTATIONS.items() if each.unit_test is None}
"""Those that histories of the simulation catch."""
BY_UNIT_TESTS: dict[str, Mutation] = {name: each for name, each in MUTATIONS.items() if each.unit_test is not None}
"""Those that no history reaches, so that a unit test catches them."""
