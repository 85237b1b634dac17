"""The store's time goes on with elapsed time and never follows a host's clock."""

from __future__ import annotations

from eoslog.store.clock import StoreClock
from eoslog.store.environment import Environment


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
