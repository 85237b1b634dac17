"""The tables of ``docs/evidence/mutations.md``: what each mutation leaves out, and which history catches it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.pages import REPOSITORY, table_rows
from tests.simulation.mutations.catalog import BY_HISTORIES, BY_UNIT_TESTS
from tests.simulation.mutations.hunt import Catch

PAGE = REPOSITORY / "docs" / "evidence" / "mutations.md"
_LONGEST_ERROR = 110
_HEAD = "| Mutation | The rule left out | What breaks | How it shows | Seed | Histories | Steps |"
_UNIT_HEAD = "| Mutation | The rule left out | What breaks | Caught by |"


class Recorded(NamedTuple):
    """What the page has of a mutation that was caught."""

    error: str
    seed: int
    histories: int
    steps: int


def recorded() -> dict[str, Recorded]:
    """The catches that the page has, by the mutation's name."""
    return {
        row[0].strip("`"): Recorded(row[3], int(row[4]), int(row[5]), int(row[6]))
        for row in table_rows(PAGE, "histories")
    }


def recorded_of(name: str, catch: Catch) -> Recorded:
    error = re.sub(r"\[EOSLOG_\w+\] ", "", catch.error).replace("|", "/")
    if len(error) > _LONGEST_ERROR:
        error = error[:_LONGEST_ERROR] + " …"
    return Recorded(error, catch.seed, catch.histories, BY_HISTORIES[name].focus.steps)


def record(name: str, catch: Catch | None) -> None:
    """Put a catch into the page's table, or take the mutation out that was not caught. Others may do so meanwhile."""
    with _alone():
        catches = {other: each for other, each in recorded().items() if other != name}
        if catch is not None:
            catches[name] = recorded_of(name, catch)
        _write(catches)


@contextmanager
def _alone() -> Iterator[None]:
    """Within it, no other process changes the page."""
    directory = os.open(PAGE.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _write(catches: dict[str, Recorded]) -> None:
    rows = [
        f"| `{name}` | {each.rule} | {each.breaks} | {found.error} | {found.seed} | {found.histories} | {found.steps} |"
        for name, each in BY_HISTORIES.items()
        if (found := catches.get(name)) is not None
    ]
    unit_rows = [
        f"| `{name}` | {each.rule} | {each.breaks} | `{each.unit_test}` |" for name, each in BY_UNIT_TESTS.items()
    ]
    text = PAGE.read_text(encoding="utf-8")
    text = _with_table(text, "histories", _HEAD, rows)
    text = _with_table(text, "unit tests", _UNIT_HEAD, unit_rows)
    aside = PAGE.with_name(f".{PAGE.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(PAGE)


def _with_table(text: str, name: str, head: str, rows: Iterable[str]) -> str:
    rule = "|---" * head.count(" | ") + "|---|"
    table = "\n".join([head, rule, *rows])
    mark = f"<!-- table: {name} -->\n"
    before, found, after = text.partition(mark)
    assert found, name
    return before + mark + table + "\n" + re.sub(r"\A(?:\|.*\n)*", "", after)
