"""A large run that misses what it must come by fails, and says what that is."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.simulation import run
from tests.simulation.plan import SERVICES
from tests.simulation.reached import FEWEST_SEEDS, FEWEST_STEPS, REACHED, not_reached


@pytest.fixture
def levels() -> Iterator[None]:
    """A run silences the product's loggers."""
    loggers = [logging.getLogger(name) for name in ("eoslog", "pyspark_eoslog")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


def a_run_that_reached_all(services: str) -> dict[str, int]:
    return dict.fromkeys(REACHED[services].marks, 1)


@pytest.mark.parametrize("services", SERVICES)
def test_a_run_that_reached_all_lacks_nothing(services: str) -> None:
    rows = REACHED[services].acknowledged_rows

    assert not list(not_reached(services, FEWEST_SEEDS, FEWEST_STEPS, a_run_that_reached_all(services), rows))


@pytest.mark.parametrize("services", SERVICES)
def test_each_mark_that_is_missing_is_told(services: str) -> None:
    assert "fault: death" in REACHED[services].marks
    for mark in REACHED[services].marks:
        marks = a_run_that_reached_all(services) | {mark: 0}

        assert list(not_reached(services, FEWEST_SEEDS, FEWEST_STEPS, marks, 10**6)) == [mark]


def test_too_few_acknowledged_rows_are_told() -> None:
    marks = a_run_that_reached_all("mixed")

    (told,) = not_reached("mixed", FEWEST_SEEDS, FEWEST_STEPS, marks, REACHED["mixed"].acknowledged_rows - 1)

    assert "acknowledged rows" in told


@pytest.mark.parametrize(("seeds", "steps"), [(FEWEST_SEEDS - 1, FEWEST_STEPS), (FEWEST_SEEDS, FEWEST_STEPS - 1)])
def test_of_a_small_run_nothing_is_asked(seeds: int, steps: int) -> None:
    assert not list(not_reached("mixed", seeds, steps, {}, 0))


@pytest.mark.parametrize(("marks", "exit_code"), [(a_run_that_reached_all("log"), 0), ({"fault: death": 1}, 1)])
def test_a_large_run_fails_by_what_it_missed(
    monkeypatch: pytest.MonkeyPatch, levels: None, marks: dict[str, int], exit_code: int
) -> None:
    def seeds_of_one_block(seeds: range, steps: int, services: str, jobs: int) -> Iterator[run.Tally]:
        tally = run.Tally(seeds=len(seeds))
        tally.marks.update(marks)
        yield tally

    monkeypatch.setattr(run, "run_in_processes", seeds_of_one_block)

    done = CliRunner().invoke(run.main, ["--services", "log", "--seeds", str(FEWEST_SEEDS), "--steps", "100"])

    assert done.exit_code == exit_code
    assert ("not reached: fault: pause" in done.output) == bool(exit_code)
