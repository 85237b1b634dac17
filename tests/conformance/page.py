"""``docs/evidence/conformance.md``, made of the scenarios and of the tests that are marked with them.

``python -m tests.conformance.page`` writes it, and with ``-`` as argument prints it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.differences import DIFFERENCES
from tests.conformance.scenarios import FAMILIES, SCENARIOS, Family

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
REPOSITORY = TESTS.parent
PAGE = REPOSITORY / "docs" / "evidence" / "conformance.md"
_HEAD = """# Conformance with Kafka

Kafka's own tests define its exactly-once semantics. For each of their scenarios this page has the rule in short, and
the tests that prove it here, named from `tests/`. A test of one unit is with the other tests of that unit in
`tests/unit/`, the others are in `tests/conformance/`. Brokers, replicas and leaders of Kafka correspond to the object
store and several processes on it. Loading a log corresponds to a process that opens the store. "Kafka" means
transaction version 2 (KIP-890). `make conformance` writes the page, and a test fails if the page differs from the
tests.
"""


class CollectedTest(NamedTuple):
    """A test of ``tests/conformance/``, or one of ``tests/unit/`` that answers Kafka."""

    path: str
    """From ``tests/``."""
    name: str
    scenarios: tuple[int, ...]
    """The scenarios that it proves, or has a part in."""
    further: tuple[str, ...]
    """The families to which it adds a rule beyond the scenarios."""

    @property
    def place(self) -> str:
        return f"{self.path}::{self.name}"

    @property
    def is_marked(self) -> bool:
        return bool(self.scenarios or self.further)

    @property
    def must_be_marked(self) -> bool:
        """Return True for each test of ``tests/conformance/`` but those of the page itself."""
        return self.path.startswith("conformance/") and self.path != "conformance/test_page.py"


def collect() -> list[CollectedTest]:
    """The tests that answer Kafka, by the marks in the text of their modules. No module is imported: it takes long."""
    found: list[CollectedTest] = []
    for path in [*HERE.glob("test_*.py"), *(TESTS / "unit").rglob("test_*.py")]:
        text = path.read_text(encoding="utf-8")
        # To parse the modules without such a mark takes most of the time.
        if path.parent == HERE or re.search(r"mark\.(scenario|further)\b", text):
            found += _tests_in(ast.parse(text), path.relative_to(TESTS).as_posix())
    return sorted((test for test in found if test.is_marked or test.must_be_marked), key=lambda test: test.place)


def _tests_in(module: ast.Module, path: str) -> Iterator[CollectedTest]:
    marks_of_all = [each.value for each in module.body if isinstance(each, ast.Assign) and _is_marks(each)]
    for each in module.body:
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            marks = [*marks_of_all, *each.decorator_list]
            numbers, names = (tuple(sorted(set(_arguments(marks, name)))) for name in ("scenario", "further"))
            yield CollectedTest(path, each.name, numbers, names)


def _is_marks(assignment: ast.Assign) -> bool:
    return ast.unparse(assignment.targets[0]) == "pytestmark"


def _arguments(marks: list[ast.expr], name: str) -> Iterator[Any]:
    """What the marks of a name are called with."""
    for node in (node for mark in marks for node in ast.walk(mark)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{name}":
            yield from map(ast.literal_eval, node.args)


def faults(tests: list[CollectedTest]) -> list[str]:
    """What is wrong with the marks: unknown numbers and families, and tests that state no scenario."""
    families = {family.name for family in FAMILIES}
    return [
        *(f"{test.place}: no scenario has number {n}" for test in tests for n in test.scenarios if n not in SCENARIOS),
        *(f"{test.place}: no family is {name!r}" for test in tests for name in test.further if name not in families),
        *(f"{test.place} has neither a scenario nor a family" for test in tests if not test.is_marked),
    ]


def unanswered(family: Family, tests: list[CollectedTest]) -> list[int]:
    """The numbers that have neither a test nor a reason."""
    proven = {number for test in tests for number in test.scenarios}
    return [each.number for each in family.scenarios if each.number not in proven and not each.reason]


def render(tests: list[CollectedTest]) -> str:
    return "\n".join([_HEAD, _summary(), *(line for family in FAMILIES for line in _section(family, tests))])


def _summary() -> str:
    reasons = sum(1 for scenario in SCENARIOS.values() if scenario.reason)
    left_out = f" {reasons} do not apply, for the reason in the table." if reasons else ""
    return (
        f"There are {len(SCENARIOS)} scenarios; missing numbers were left out.{left_out}\n"
        "*Here* marks a difference from Kafka.\n"
    )


def _section(family: Family, tests: list[CollectedTest]) -> Iterator[str]:
    yield f"## {family.name}\n"
    yield f"Kafka: {family.source}.\n"
    yield "| No. | Rule | Test, or why there is none |"
    yield "|---|---|---|"
    for scenario in family.scenarios:
        places = [f"`{test.place}`" for test in tests if scenario.number in test.scenarios]
        rule = scenario.rule
        if scenario.number in DIFFERENCES:
            rule += f".<br>*Here* {DIFFERENCES[scenario.number]}"
        yield f"| {scenario.number} | {rule} | {'<br>'.join(places) or scenario.reason or 'none'} |"
    further = [test for test in tests if family.name in test.further]
    if further:
        yield "\nFurther rules of this family:\n"
        yield from (f"- `{test.place}`" for test in further)
    yield ""


def main() -> None:
    page = render(collect())
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
