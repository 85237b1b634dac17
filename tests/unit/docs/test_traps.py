"""Each trap of ``docs/evidence/traps.md`` is there once, and the tests that it names are in the tree."""

from __future__ import annotations

import ast
import re

import pytest

from tests.pages import REPOSITORY, table_rows

PAGE = REPOSITORY / "docs" / "evidence" / "traps.md"
TABLES = ("spark", "producers", "log", "readers", "files")
ROWS = [row for table in TABLES for row in table_rows(PAGE, table)]


def test_every_trap_has_its_number_once() -> None:
    assert sorted(int(number) for number, *_ in ROWS) == list(range(1, len(ROWS) + 1))


@pytest.mark.parametrize("row", ROWS, ids=[number for number, *_ in ROWS])
def test_the_tests_that_a_trap_names_are_there(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`", row[-1])

    assert named
    for path, _, test in (name.partition("::") for name in named):
        module = ast.parse((REPOSITORY / "tests" / path).read_text(encoding="utf-8"))
        functions = [each.name for each in module.body if isinstance(each, ast.FunctionDef)]
        assert (test or "test_") in (functions if test else [name[:5] for name in functions])
