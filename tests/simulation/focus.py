"""Histories that look at one part of the protocol: the services and the faults that lead there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Focus:
    """The services and faults of some histories; everything else is what each seed plans."""

    services: tuple[str, ...]
    """Names of services, kind and number; a name that stands there twice has a twin."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Rates that every history has; the others are those that the seed plans."""
    steps: int = 300
    """Among faults."""
    has_queue: bool = False
    """Whether the processes run on one host and queue up before they append."""
    embeds_files: bool = True
    """Whether data files may be in records and shared objects."""


FOCUSES: Mapping[str, Focus] = {
    "uploads": Focus(("job0", "focus-vacuum0", "focus-vacuum1"), {"pause": 0.05}),
    "replacements": Focus(
        ("table0", "writer0", "focus-compactor0", "focus-compactor1", "focus-compactor2"), {"pause": 0.02}, 600
    ),
    "replicas": Focus(
        ("log-slow-writer0", "log-reader0", "log-reader1", "log-upkeep0", "log-upkeep1"), {"pause": 0.01}
    ),
    "races": Focus(
        (
            "log-fast-writer0",
            "log-fast-writer1",
            "log-fast-writer2",
            "log-fast-writer3",
            "log-fast-writer4",
            "log-upkeep0",
        ),
        {"pause": 0.01},
    ),
    "threads": Focus(
        ("log-threads0", "log-threads1", "log-fast-writer0", "log-upkeep0"),
        {"pause": 0.005, "interrupt": 0.003},
        400,
    ),
    "racing-clients": Focus(
        (
            "fast-writer0",
            "fast-writer0",
            "fast-writer1",
            "fast-writer2",
            "fast-writer3",
            "fast-idempotent0",
            "fast-idempotent1",
            "fast-idempotent2",
            "fast-two-phase0",
        ),
        {"pause": 0.01},
        1_000,
    ),
    "queue": Focus(
        (*(f"log-fast-writer{number}" for number in range(5)), "log-threads0", "log-upkeep0"),
        {"pause": 0.005},
        600,
        has_queue=True,
    ),
    "queue-clients": Focus(
        (
            "fast-writer0",
            "fast-writer0",
            "fast-writer1",
            "fast-writer2",
            "fast-idempotent0",
            "fast-idempotent1",
            "fast-two-phase0",
        ),
        {"pause": 0.005},
        1_000,
        has_queue=True,
    ),
    "append-services": Focus(
        (
            "log-append-service0",
            "log-append-service1",
            *(f"log-fast-writer{number}" for number in range(4)),
            "log-threads0",
            "log-upkeep0",
        ),
        {"pause": 0.003},
        800,
    ),
    "append-service-clients": Focus(
        (
            "fast-append-service0",
            "fast-append-service1",
            "fast-writer0",
            "fast-writer0",
            "fast-writer1",
            "fast-idempotent0",
            "fast-idempotent1",
            "fast-two-phase0",
        ),
        {"pause": 0.003},
        1_000,
    ),
    "publications": Focus(
        ("writer0", "table0", "focus-publisher0", "focus-publisher1", "focus-publisher2"), {"pause": 0.02}, 600
    ),
    "fences": Focus(("focus-writer0", "focus-writer0", "focus-writer0"), {"pause": 0.05}),
}
"""What regular seeds seldom reach, by the name of the focus (``--services``)."""
