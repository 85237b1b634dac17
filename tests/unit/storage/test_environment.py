"""Time, randomness and names come from the environment alone, so that a simulation can decide all of them."""

from __future__ import annotations

import ast
from pathlib import Path

import eoslog

_ROOT = Path(eoslog.__file__).parent
_THE_ONE = _ROOT / "storage" / "environment.py"
_MODULES = {"time", "uuid", "random", "secrets"}
_CALLS = {"now", "utcnow", "today", "urandom", "getrandbits"}


def test_nothing_but_the_environment_asks_the_host_for_time_or_chance() -> None:
    found = [
        f"{path.relative_to(_ROOT)}:{line}: {what}"
        for path in sorted(_ROOT.rglob("*.py"))
        if path != _THE_ONE
        for line, what in _asked_of_the_host(ast.parse(path.read_text()))
    ]

    assert found == []


def test_the_search_finds_what_it_looks_for() -> None:
    assert {what for _, what in _asked_of_the_host(ast.parse(_THE_ONE.read_text()))} == {"time", "random", "urandom"}
    assert list(_asked_of_the_host(ast.parse("x = datetime.now()"))) == [(1, "now")]
    assert list(_asked_of_the_host(ast.parse("from uuid import UUID, uuid4"))) == [(1, "uuid")]


def _asked_of_the_host(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names if name.name in _MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            # The class by itself makes no new id.
            if (node.module, [each.name for each in node.names]) != ("uuid", ["UUID"]):
                found.append((node.lineno, node.module))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
            found.append((node.lineno, node.func.attr))
    return found
