"""What a mutation is: a rule, the code without it, and which histories look there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.focus import Focus

__all__ = ["MUTATIONS", "Focus", "Mutation", "instead_of", "method", "mutation"]


_MUTANTS = "tests.simulation.mutations."
"""They call the originals."""


@dataclass(frozen=True)
class Mutation:
    """A variant of the protocol that breaks its promises."""

    name: str
    rule: str
    """The rule that is left out."""
    breaks: str
    """What comes of it."""
    applied: Callable[[], AbstractContextManager[None]]
    focus: Focus | None
    """None if no history reaches it."""
    unit_test: str | None
    """For what no history reaches: the test that catches it, from ``tests/``."""
    shows: str | None = None
    """What a history's error must say to be a catch (a regular expression); None: any error is one."""


MUTATIONS: dict[str, Mutation] = {}
"""All there are, by name."""


def mutation(
    focus: Focus | None = None, *, unit_test: str | None = None, shows: str | None = None
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], AbstractContextManager[None]]]:
    """Make a generator function a mutation. Its docstring tells the rule that is left out, a colon, what breaks."""

    def register(function: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        rule, colon, breaks = (function.__doc__ or "").strip().partition(": ")
        assert colon, f"{function.__name__}: the docstring tells the rule, a colon, what breaks"
        applied = contextmanager(function)
        MUTATIONS[function.__name__] = Mutation(function.__name__, rule, breaks, applied, focus, unit_test, shows)
        return applied

    return register


@contextmanager
def instead_of(original: Any, mutant: Any) -> Iterator[None]:
    """Put ``mutant`` wherever a module of the product or of the tests has this very function."""
    with ExitStack() as patches:
        found = 0
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in ("eoslog", "tests", "pyspark_eoslog") or name.startswith(_MUTANTS):
                continue
            for attribute, value in list(vars(module).items()):
                if value is original:
                    patches.enter_context(mock.patch.object(module, attribute, mutant))
                    found += 1
                elif isinstance(value, dict) and name.startswith("eoslog"):
                    changed = {key: mutant for key, each in value.items() if each is original}
                    if changed:
                        patches.enter_context(mock.patch.dict(value, changed))
                        found += len(changed)
        assert found, f"{original} is nowhere"
        yield


@contextmanager
def method(owner: Any, name: str, mutant: Any) -> Iterator[None]:
    """Put ``mutant`` in the place of an attribute of a class or of a module."""
    with mock.patch.object(owner, name, mutant):
        yield
