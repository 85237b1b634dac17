"""The simulation of a topic that is deleted and created again: each life keeps its rows, and shows no other's."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.simulation.ledger import Ledger, Outcome, Sent, Work
from tests.simulation.plan import TOPIC_HISTORIES, Plan
from tests.simulation.recreated import Life, check_copied, check_shown
from tests.simulation.simulation import Result, Simulation
from tests.simulation.world import Violation

STEPS = 300
SEEDS = range(3 * len(TOPIC_HISTORIES))
RARE = (
    "recreated: topic deleted",
    "recreated: topic found gone",
    "recreated: acknowledged across lives",
    "recreated: read",
    "recreated: copied",
    "segment.vacuum.files_deleted",
)
SECOND = Life("b", created_slot=20, deleted_slot=30, loses_rows=False)


@cache
def result_of(seed: int) -> Result:
    return Simulation(seed, plan=Plan.of_topics(seed, STEPS)).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_life_of_a_topic_keeps_its_rows_whatever_fails(seed: int) -> None:
    assert result_of(seed).slots > 0


def test_the_seeds_of_recreated_topics_reach_every_rare_event() -> None:
    marks: Counter[str] = Counter()
    for seed in SEEDS:
        marks += result_of(seed).marks

    assert not [name for name in RARE if not marks[name]]


def test_of_mixed_seeds_every_tenth_is_one_of_topics() -> None:
    plans = [Plan.of_services("mixed", seed, STEPS) for seed in range(20)]

    assert [plan.seed for plan in plans if plan.services in TOPIC_HISTORIES] == [8, 18]


def a_ledger(**sent: Sent) -> Ledger:
    return Ledger(sent={value.encode(): each for value, each in sent.items()})


def a_row(sent_slot: int, ended_slot: int | None, outcome: Outcome = Outcome.COMMITTED, work: str = "w") -> Sent:
    return Sent(Work(work, outcome=outcome), 0, sent_slot, ended_slot)


@pytest.mark.parametrize(
    ("row", "shown", "problem"),
    [
        (a_row(5, 6), [(0, b"row")], "shows in a later life"),
        (a_row(21, 22), [], "is lost"),
        (a_row(21, 22), [(0, b"row"), (0, b"row")], "twice"),
        (a_row(21, 22), [(1, b"row")], "nobody sent there"),
        (a_row(21, None, Outcome.ABORTED), [(0, b"row")], "was aborted"),
    ],
)
def test_a_read_that_breaks_a_promise_is_told(row: Sent, shown: list[tuple[int, bytes]], problem: str) -> None:
    with pytest.raises(Violation, match=problem):
        check_shown(a_ledger(row=row), SECOND, shown, 25, whole=True)


@pytest.mark.parametrize("row", [a_row(5, 6), a_row(5, 22), a_row(21, 26), a_row(21, None, Outcome.UNKNOWN)])
def test_a_row_may_be_missing_that_a_life_need_not_show(row: Sent) -> None:
    check_shown(a_ledger(row=row), SECOND, [], 25, whole=True)


def test_an_open_transaction_may_hold_rows_back() -> None:
    check_shown(a_ledger(row=a_row(21, 22)), SECOND, [], 25)


def test_a_row_shows_in_one_life() -> None:
    ledger = a_ledger(row=a_row(5, None, Outcome.UNKNOWN))
    check_shown(ledger, Life("a", 1, 19, loses_rows=False), [(0, b"row")], 7)

    with pytest.raises(Violation, match="two lives"):
        check_shown(ledger, SECOND, [(0, b"row")], 25)


def test_a_transaction_shows_whole_within_a_life() -> None:
    first = a_row(21, None, Outcome.UNKNOWN)
    ledger = a_ledger(first=first, second=Sent(first.work, 0, 21))

    with pytest.raises(Violation, match="a part shows"):
        check_shown(ledger, SECOND, [(0, b"first")], 25, whole=True)


@pytest.mark.parametrize(
    ("consumed", "copied"), [([b"a"], []), ([], [b"a"]), ([b"a"], [b"a", b"a"]), ([], [b"old", b"old"])]
)
def test_each_consumed_row_must_be_copied_once(consumed: list[bytes], copied: list[bytes]) -> None:
    check_copied([b"a"], Counter([b"a", b"old"]), {b"a", b"b"})

    with pytest.raises(Violation):
        check_copied(consumed, Counter(copied), {b"a", b"b"})
