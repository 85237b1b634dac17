"""Processes that fall asleep, or die, at a named point of a step, while others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.unit.support.clock import Clock


class Died(BaseException):
    """The process is gone."""


def die() -> NoReturn:
    raise Died


class At(Environment):
    """Does something when the process comes to a named point for the n-th time."""

    def __init__(self, point: str, action: Callable[[], object], times: int = 1) -> None:
        self._point = point
        self._action = action
        self._left = times
        self.points: list[str] = []

    def reached(self, crash_point: str) -> None:
        self.points.append(crash_point)
        if crash_point == self._point:
            self._left -= 1
            if self._left == 0:
                self._action()


class Mortal(Environment):
    """Dies when it comes to a point for the n-th time; has no threads, and the time of ``clock`` if there is one."""

    def __init__(self, point: str = "", times: int = 1, clock: Clock | None = None) -> None:
        self._point = point
        self._left = times
        self._clock = clock

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() if self._clock is None else self._clock.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        if self._clock is not None:
            self._clock.now_ms += max(1, int(duration_ms))

    def reached(self, crash_point: str) -> None:
        if crash_point == self._point:
            self._left -= 1
        # The dead do nothing more: not even what closes a producer on the way out.
        if self._point and self._left <= 0:
            raise Died

    def background(self, work: Callable[[], None]) -> None:
        work()


def asleep_at(process: Store, point: str, meanwhile: Callable[[], object], nth: int = 1) -> list[str]:
    """Let ``meanwhile`` happen when the process comes to ``point`` for the nth time. Returns what was slept at."""
    reached = process.environment.reached
    left = nth
    slept: list[str] = []

    def sleep_once(at: str) -> None:
        nonlocal left
        reached(at)
        if at == point:
            left -= 1
            if left == 0:
                slept.append(at)
                meanwhile()

    process.environment.reached = sleep_once  # type: ignore[method-assign]
    return slept


def dies_at(process: Store, point: str, nth: int = 1) -> None:
    """The process dies when it comes to ``point`` for the nth time."""
    asleep_at(process, point, die, nth)


def awake(process: Store) -> None:
    """Whatever the process did not come to, it passes from now on."""
    vars(process.environment).pop("reached", None)
