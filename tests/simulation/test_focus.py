"""Each focus keeps every promise, and makes its situation common enough for a few histories."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pages import REPOSITORY
from tests.simulation.focus import FOCUSES
from tests.simulation.log_simulation import simulation_of
from tests.simulation.plan import Plan
from tests.simulation.situations import SITUATIONS

SEEDS = range(20)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOCUSES)
def test_a_focus_reaches_its_situation_and_no_promise_is_broken(name: str) -> None:
    marks: Counter[str] = Counter()

    for seed in SEEDS:
        marks += simulation_of(Plan.of_services(name, seed, FOCUSES[name].steps)).run().marks

    assert marks[SITUATIONS[name]]


def test_make_test_deep_runs_every_focus() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")

    assert f"for focus in {' '.join(FOCUSES)};" in makefile
