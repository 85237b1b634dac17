"""The code cannot run what a store says: nothing of it unpickles, evaluates, or opens a shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import REPOSITORY

SOURCES = [*(REPOSITORY / "eoslog").rglob("*.py"), *(REPOSITORY / "spark_ext").rglob("*.py")]
DANGEROUS_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle", "joblib"}
DANGEROUS_MODULES |= {"subprocess", "runpy", "code", "codeop", "ctypes", "xmlrpc", "telnetlib"}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"}
IMPORTS_BY_NAME = {"eoslog/__init__.py"}
"""The module that imports by name: modules of this package only, whose names are constants."""


def modules_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def calls_of(tree: ast.AST) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_there_is_code_to_look_at() -> None:
    assert len(SOURCES) > 150


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(REPOSITORY)))
def test_nothing_that_could_run_stored_data_is_imported_or_called(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))

    assert {name.partition(".")[0] for name in modules_of(tree)} & DANGEROUS_MODULES == set()
    assert set(calls_of(tree)) & DANGEROUS_CALLS == set()
    assert "importlib" not in modules_of(tree) or str(source.relative_to(REPOSITORY)) in IMPORTS_BY_NAME
