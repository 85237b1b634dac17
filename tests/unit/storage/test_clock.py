"""The store's time goes on with elapsed time and never follows a host's clock."""

from __future__ import annotations

import threading

import pytest

from eoslog.storage.clock import Moment, StoreClock
from eoslog.storage.environment import Environment


class SteppedEnvironment(Environment):
    elapsed_ms = 7

    def monotonic_ms(self) -> int:
        return self.elapsed_ms


def test_before_the_first_answer_the_time_is_zero() -> None:
    assert StoreClock(SteppedEnvironment()).now_ms() == 0


def test_between_answers_elapsed_time_carries_on_the_newest_date() -> None:
    environment = SteppedEnvironment()
    clock = StoreClock(environment)

    clock.observe(1_000)
    environment.elapsed_ms += 250

    assert (clock.now_ms(), clock.last_date_ms) == (1_250, 1_000)


def test_an_older_date_is_ignored() -> None:
    environment = SteppedEnvironment()
    clock = StoreClock(environment)

    clock.observe(1_000)
    environment.elapsed_ms += 10
    clock.observe(400)

    assert (clock.now_ms(), clock.last_date_ms) == (1_010, 1_000)


NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000


def observed(*answers: int) -> StoreClock:
    """A clock after answers of these dates, among which no time elapsed."""
    clock = StoreClock(SteppedEnvironment())
    for date_ms in answers:
        clock.observe(date_ms)
    return clock


@pytest.mark.parametrize("before", [1, 2, 5])
@pytest.mark.parametrize("wrong_ms", [-30 * DAY_MS, -2 * 60_000, 2 * 60_000, 30 * DAY_MS])
def test_one_answer_with_a_wrong_date_moves_no_time(before: int, wrong_ms: int) -> None:
    answers = [NOW_MS] * before + [NOW_MS + wrong_ms]
    meanwhile, clock = observed(*answers), observed(*answers, NOW_MS, NOW_MS)

    assert meanwhile.now_ms() <= NOW_MS
    assert (clock.now_ms(), clock.latest_claim_ms) == (NOW_MS, NOW_MS)


@pytest.mark.parametrize("wrong_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_later_answers_correct_a_wrong_first_date(wrong_ms: int) -> None:
    clock = observed(NOW_MS + wrong_ms, NOW_MS, NOW_MS)

    assert (clock.now_ms(), clock.dated(Moment(0, 0)).date_ms) == (NOW_MS, min(NOW_MS, NOW_MS + wrong_ms))


def test_a_right_answer_between_wrong_ones_prevents_their_confirmation() -> None:
    clock = observed(NOW_MS, NOW_MS, NOW_MS + DAY_MS, NOW_MS, NOW_MS + DAY_MS)

    assert clock.now_ms() == NOW_MS


def test_of_two_answers_that_run_ahead_the_earlier_date_counts() -> None:
    assert observed(NOW_MS, NOW_MS, NOW_MS + 2 * DAY_MS, NOW_MS + 9 * DAY_MS).now_ms() == NOW_MS + 2 * DAY_MS


def test_a_suspended_process_knows_the_time_at_its_second_answer() -> None:
    clock = observed(NOW_MS, NOW_MS, NOW_MS + DAY_MS)
    assert (clock.last_date_ms, clock.latest_claim_ms) == (NOW_MS, NOW_MS + DAY_MS)

    clock.observe(NOW_MS + DAY_MS)

    assert clock.last_date_ms == clock.latest_claim_ms == NOW_MS + DAY_MS


def test_a_process_that_was_suspended_twice_suspects_the_time_after_the_second() -> None:
    clock = observed(NOW_MS, NOW_MS, NOW_MS + 2 * 60_000, NOW_MS + DAY_MS)

    assert (clock.last_date_ms, clock.latest_claim_ms) == (NOW_MS + 2 * 60_000, NOW_MS + DAY_MS)


def test_another_threads_older_answer_does_not_erase_a_claim() -> None:
    clock = observed(NOW_MS, NOW_MS, NOW_MS + DAY_MS)
    other = threading.Thread(target=clock.observe, args=(NOW_MS,))
    other.start()
    other.join()

    assert (clock.last_date_ms, clock.latest_claim_ms) == (NOW_MS, NOW_MS + DAY_MS)
