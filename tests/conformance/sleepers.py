"""Processes that fall asleep, or die, at a named point of a step, while others go on."""

from __future__ import annotations

from collections.abc import Callable

from eoslog.client.store import Store


class Died(BaseException):
    """The process is gone."""


def asleep_at(process: Store, point: str, meanwhile: Callable[[], object]) -> list[str]:
    """Let ``meanwhile`` happen when the process comes to ``point`` for the first time. Returns what was slept at."""
    reached = process.environment.reached
    slept: list[str] = []

    def sleep_once(at: str) -> None:
        reached(at)
        if at == point and not slept:
            slept.append(at)
            meanwhile()

    process.environment.reached = sleep_once  # type: ignore[method-assign]
    return slept


def dies_at(process: Store, point: str) -> None:
    """The process dies when it comes to ``point``."""

    def die() -> None:
        raise Died

    asleep_at(process, point, die)
