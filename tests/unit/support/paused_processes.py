"""Processes that fall asleep, or die, at a named point of a step, while others go on."""

from __future__ import annotations

from collections.abc import Callable

from eoslog.store import Store


class Died(BaseException):
    """The process is gone."""


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

    def die() -> None:
        raise Died

    asleep_at(process, point, die, nth)


def awake(process: Store) -> None:
    """Whatever the process did not come to, it passes from now on."""
    vars(process.environment).pop("reached", None)
