"""Shrinks a failing history: fewer steps, services and faults, as long as the same promise is broken.

What is left is found by trying: a part is taken out, the rest is run again, and the part stays out if the run still
fails in the same way. Each history is a plan, so that the shortened one can be run again as often as one likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from tests.simulation.faults import Faults
from tests.simulation.log_simulation import simulation_of
from tests.simulation.plan import Plan

T = TypeVar("T")
_MOST_RUNS = 400


@dataclass(frozen=True)
class Failure:
    """A history that broke a promise."""

    plan: Plan
    message: str
    events: tuple[str, ...]
    """What chance did in it."""
    lines: tuple[str, ...]
    """What happened, line by line."""
    steps_used: int
    """How many of the steps among faults were taken."""

    def history(self) -> str:
        """What happened while there were faults, and what it broke: time (ms), process, request or answer, fault."""
        end = next((at for at, line in enumerate(self.lines) if "no more faults" in line), len(self.lines))
        setting = f"seed {self.plan.seed}: {', '.join(self.plan.services)}; {self.plan.steps} steps"
        return "\n".join([setting, *self.lines[:end], self.message])

    @property
    def kind(self) -> str:
        """What was broken, without names and numbers, which differ from history to history."""
        return re.sub(r"b'[^']*'|[\w./-]*\d[\w./-]*|Counter\(.*|\[.*", "*", self.message.splitlines()[0])[:100]


def failure_of(plan: Plan) -> Failure | None:
    """Run a plan. None if it keeps every promise."""
    lines: list[str] = []
    simulation = simulation_of(plan, lines=lines)
    try:
        simulation.run()
    except Exception as error:
        world = simulation.world
        message = f"{type(error).__name__}: {error}"
        return Failure(plan, message, tuple(world.choices.events), tuple(lines), min(plan.steps, world.steps))
    return None


def shrink(failure: Failure, *, most_runs: int = _MOST_RUNS, report: Callable[[str], None] = lambda _: None) -> Failure:
    """The shortest history found that fails as this one does."""
    return _Shrinking(failure, most_runs, report).run()


class _Shrinking:
    def __init__(self, failure: Failure, most_runs: int, report: Callable[[str], None]) -> None:
        self._best = failure
        self._kind = failure.kind
        self._runs_left = most_runs
        self._report = report

    def run(self) -> Failure:
        self._shorten()
        self._drop_services()
        self._drop_fault_classes()
        self._drop_events()
        self._drop_services()
        self._shorten()
        return self._best

    def _still_fails(self, plan: Plan) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        found = failure_of(plan)
        if found is None or found.kind != self._kind:
            return False
        self._best = found
        best = found.plan
        self._report(f"{best.steps} steps, {len(best.services)} services, {len(found.events)} events")
        return True

    def _shorten(self) -> None:
        """Find by halving how many steps are enough."""
        enough, too_few = self._best.steps_used, 0
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            if self._still_fails(replace(self._best.plan, steps=middle)):
                enough = middle
            else:
                too_few = middle

    def _drop_services(self) -> None:
        services = self._best.plan.services

        def fails_with(some: Sequence[str]) -> bool:
            return bool(some) and self._still_fails(replace(self._best.plan, services=tuple(some)))

        fewest(services, fails_with)

    def _drop_fault_classes(self) -> None:
        for each in fields(Faults):
            value = getattr(self._best.plan.faults, each.name)
            if value:
                self._still_fails(
                    replace(self._best.plan, faults=replace(self._best.plan.faults, **{each.name: type(value)(0)}))
                )

    def _drop_events(self) -> None:
        def fails_with(some: Sequence[str]) -> bool:
            return self._still_fails(replace(self._best.plan, kept=frozenset(some)))

        # First all switches between processes or all faults at once, then one by one.
        events = self._best.events
        for word in (" switch ", " pause ", " clock jump "):
            rest = [event for event in events if word not in event]
            if len(rest) < len(events) and fails_with(rest):
                events = tuple(rest)
        fewest(events, fails_with)


def fewest(items: Sequence[T], fails_with: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subset of which none can be left out, found as Zeller's delta debugging does."""
    left = list(items)
    pieces = 2
    if left and fails_with([]):
        return []
    while len(left) >= 2:
        size = -(-len(left) // pieces)
        for at in range(0, len(left), size):
            rest = left[:at] + left[at + size :]
            if rest and fails_with(rest):
                left, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(left), pieces * 2)
    return left
