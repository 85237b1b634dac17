"""The simulation of a log alone: each append and its slot, among all faults."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from eoslog.log.log import Log
from tests.depth import sweep
from tests.simulation.ledger import Outcome
from tests.simulation.log_services import check_seen
from tests.simulation.log_simulation import simulation_of
from tests.simulation.plan import LOG_HISTORIES, Plan
from tests.simulation.simulation import Result
from tests.simulation.world import Violation

STEPS = 200
BLOCKS = range(0, 400, 100)
RARE = (
    "a deleted slot's name was taken",
    "append repeated",
    "cut read detected",
    "fault: own success told as another's",
    "late put found its place taken",
    "late put landed",
    "log.checkpoint.overtaken",
    "log.slot.lost",
    "log.slot.own_record_found",
    "log.slot.stale_win_refused",
    "slots were deleted",
    "told: CommitStateUnknown",
    "unknown outcome resolved",
)


@cache
def result_of(seed: int) -> Result:
    return simulation_of(Plan.of_log(seed, STEPS)).run()


@pytest.mark.parametrize("first", sweep(BLOCKS, quick=BLOCKS[:2]))
def test_each_name_lies_in_the_slot_that_its_append_returned_among_all_faults(first: int) -> None:
    assert all(result_of(seed).slots > 1 for seed in range(first, first + BLOCKS.step))


@pytest.mark.slow
def test_the_seeds_of_a_log_reach_every_rare_event() -> None:
    marks: Counter[str] = Counter()
    for seed in range(BLOCKS.stop):
        marks += result_of(seed).marks

    assert not [name for name in RARE if not marks[name]]


@pytest.mark.parametrize("seed", range(len(LOG_HISTORIES)))
def test_a_seed_of_a_log_repeats_itself_exactly(seed: int) -> None:
    assert result_of(seed).trace == simulation_of(Plan.of_services("log", seed, STEPS)).run().trace


def test_the_seeds_detect_a_wrong_winner_of_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "winner", lambda log, slot, timeout_ms=None: "nobody")

    assert any("was told to be aborted" in str(violation_of(seed)) for seed in range(BLOCKS.stop))


def violation_of(seed: int) -> Violation | None:
    try:
        simulation_of(Plan.of_log(seed, STEPS)).run()
    except Violation as violation:
        return violation
    return None


@pytest.mark.parametrize(
    ("outcome", "seen", "is_right"),
    [
        (Outcome.COMMITTED, {"a": 1}, True),
        (Outcome.COMMITTED, {}, False),
        (Outcome.ABORTED, {}, True),
        (Outcome.ABORTED, {"a": 1}, False),
        (Outcome.UNKNOWN, {"a": 1}, True),
        (Outcome.UNKNOWN, {}, True),
    ],
)
def test_the_check_compares_the_names_in_the_log_with_the_outcomes_of_their_appends(
    outcome: Outcome, seen: dict[str, int], is_right: bool
) -> None:
    try:
        check_seen({"a": outcome}, seen)
    except Violation:
        assert not is_right
    else:
        assert is_right
