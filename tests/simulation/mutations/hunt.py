"""Histories that look for a mutation: the first one that it breaks."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from tests.simulation.log_simulation import make_starts, simulation_of
from tests.simulation.mutations.mutation import Focus, Mutation
from tests.simulation.plan import Plan
from tests.simulation.world import Violation

_BROKEN_CODE = (TypeError, AttributeError, NameError, ImportError)
"""They show that a mutation does not fit the code any more, and no promise that is broken."""


class Catch(NamedTuple):
    """How a mutation was caught."""

    seed: int
    histories: int
    """How many were run until then, this one among them."""
    error: str


def first_line(error: BaseException) -> str:
    """What an error says, on one line."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def run_history(seed: int, focus: Focus) -> str | None:
    """What was wrong with a history; None if nothing was.

    Raises:
        TypeError, AttributeError, NameError, ImportError: the code does not run; that breaks no promise.
    """
    try:
        simulation_of(Plan.of_focus(focus, seed, focus.steps)).run()
    except Exception as error:
        reason = error.__cause__ if isinstance(error, Violation) and error.__cause__ is not None else error
        if isinstance(reason, _BROKEN_CODE):
            raise
        return first_line(error)
    return None


def hunt(mutation: Mutation, *, first_seed: int = 0, most_histories: int) -> Catch | None:
    """Run histories under a mutation until one fails, and shows what it must; None if none does."""
    assert mutation.focus is not None
    # What histories begin with is made with all rules in their places.
    make_starts()
    with mutation.applied():
        for histories, seed in enumerate(itertools.count(first_seed), 1):
            error = run_history(seed, mutation.focus)
            if error is not None and re.search(mutation.shows or "", error):
                return Catch(seed, histories, error)
            if histories == most_histories:
                return None
    raise AssertionError
