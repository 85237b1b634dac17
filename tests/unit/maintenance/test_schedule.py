"""When each of several steps is due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eoslog.maintenance.coordinator import RETRY, Schedule


def test_all_are_due_at_once_in_the_order_given() -> None:
    schedule = Schedule({"b": 10, "a": 1000, "c": 5}, 100)

    taken = []
    for _ in range(3):
        name, due_ms = schedule.next_due()
        taken.append((name, due_ms))
        schedule.done(name, 100, 100)

    assert taken == [("b", 100), ("a", 100), ("c", 100)]


def test_a_step_is_due_an_interval_after_it_began() -> None:
    schedule = Schedule({"a": 1_000}, 0)

    schedule.done("a", 0, 300)
    assert schedule.next_due() == ("a", 1_000)
    schedule.done("a", 1_000, 5_000)
    assert schedule.next_due() == ("a", 5_000)


def test_a_step_that_failed_is_due_soon_and_then_ever_less_often() -> None:
    schedule = Schedule({"a": 10_000_000}, 0)

    waits = []
    for _ in range(9):
        schedule.failed("a", 0)
        waits.append(schedule.next_due()[1])

    assert waits == [RETRY.first_ms * factor for factor in (1, 2, 4, 8, 16, 32)] + [RETRY.longest_ms] * 3
    schedule.done("a", 0, 0)
    schedule.failed("a", 0)
    assert schedule.next_due() == ("a", RETRY.first_ms)


def test_a_failed_step_is_not_due_later_than_its_interval() -> None:
    schedule = Schedule({"a": 10}, 0)

    schedule.failed("a", 0)

    assert schedule.next_due() == ("a", 10)


@given(
    st.dictionaries(st.text(min_size=1), st.integers(1, 1_000), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=40),
)
def test_no_step_starves(intervals_ms: dict[str, int], runs: list[tuple[int, bool]]) -> None:
    """Whatever the steps take: of those that are due the one that waits longest comes next."""
    schedule, now_ms = Schedule(intervals_ms, 0), 0
    last_began = dict.fromkeys(intervals_ms, 0)
    for duration_ms, succeeds in runs:
        name, due_ms = schedule.next_due()
        began_ms = now_ms = max(now_ms, due_ms)
        assert all(due_ms <= last_began[each] + intervals_ms[each] + 500 * len(runs) for each in intervals_ms)
        now_ms += duration_ms
        last_began[name] = began_ms
        if succeeds:
            schedule.done(name, began_ms, now_ms)
        else:
            schedule.failed(name, now_ms)
        assert schedule.next_due()[1] <= now_ms + max(intervals_ms.values())
