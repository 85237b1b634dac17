"""The simulation: seeds among faults keep every promise, repeat themselves exactly, and reach what is rare."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.simulation.run import Result, Simulation

SEEDS = range(24)
RARE = (
    "answer lost",
    "late put landed",
    "late put found its place taken",
    "own success reported as another's",
    "micro-batch replayed",
    "prepared transaction found after a restart",
    "consistent read",
    "snapshot read",
    "segment.merge.replaced",
    "segment.compact.cleaned",
    "segment.vacuum.files_deleted",
)


@cache
def result_of(seed: int) -> Result:
    return Simulation(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_no_promise_is_broken(seed: int) -> None:
    assert result_of(seed).acknowledged_rows > 0


def test_a_seed_repeats_itself_exactly() -> None:
    assert Simulation(3).run().trace == Simulation(3).run().trace


def test_what_is_rare_comes_up() -> None:
    marks: Counter[str] = Counter()
    for seed in SEEDS:
        marks += result_of(seed).marks

    assert not [name for name in RARE if not marks[name]]
