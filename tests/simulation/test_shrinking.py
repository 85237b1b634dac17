"""A failing seed shrinks to a short history that fails in the same way, each time that it is run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eoslog.log.record_put import ConditionalAppend
from tests.simulation.plan import Plan
from tests.simulation.shrinking import Failure, failure_of, fewest, shrink

STEPS = 100


def test_a_failure_that_needs_two_of_many_shrinks_to_these_two() -> None:
    def fails_with(some: Sequence[int]) -> bool:
        return {3, 77} <= set(some)

    assert fewest(range(100), fails_with) == [3, 77]


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = Plan.of(5, STEPS)

    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.slow
def test_a_failing_seed_shrinks_to_a_short_history_that_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    _believe_that_every_slot_is_won(monkeypatch)
    failure = _first_failure()

    shortest = shrink(failure, most_runs=150)

    assert shortest.kind == failure.kind
    assert len(shortest.history().splitlines()) <= 80
    assert len(shortest.history()) < len(failure.history())
    assert failure_of(Plan.from_json(shortest.plan.to_json())) == shortest


def _believe_that_every_slot_is_won(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: whatever became of its put, a writer takes the slot for its own."""
    genuine = ConditionalAppend.put_until_known

    def put(self: ConditionalAppend, *arguments: object, **options: object) -> None:
        genuine(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ConditionalAppend, "put_until_known", put)


def _first_failure() -> Failure:
    for seed in range(100):
        failure = failure_of(Plan.of(seed, STEPS))
        if failure is not None:
            return failure
    raise AssertionError("no seed met the bug")
