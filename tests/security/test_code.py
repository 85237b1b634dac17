"""The code cannot run what a store says: nothing of it unpickles, evaluates, or opens a shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.pages import REPOSITORY

SOURCES = [*(REPOSITORY / "eoslog").rglob("*.py"), *(REPOSITORY / "spark_ext").rglob("*.py")]
DANGEROUS_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle", "joblib"}
DANGEROUS_MODULES |= {"subprocess", "runpy", "code", "codeop", "ctypes", "xmlrpc", "telnetlib"}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"}
LAST_NAMES = {name.rpartition(".")[2] for name in DANGEROUS_CALLS}


def dangers_in(tree: ast.AST) -> Iterator[str]:
    """The names of dangerous modules that a module imports, and of dangerous functions that it calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if is_dangerous(name.name))
            case ast.ImportFrom(module=str(module)) if is_dangerous(module):
                yield module
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in LAST_NAMES:
                called = ast.unparse(node.func)
                if called in DANGEROUS_CALLS:
                    yield called


def is_dangerous(module: str) -> bool:
    return module == "importlib" or module.partition(".")[0] in DANGEROUS_MODULES


def test_nothing_that_could_run_stored_data_is_imported_or_called() -> None:
    found = [
        (str(source.relative_to(REPOSITORY)), danger)
        for source in SOURCES
        for danger in dangers_in(ast.parse(source.read_text(encoding="utf-8")))
    ]

    # It imports by name: modules of this package only, whose names are constants.
    assert found == [("eoslog/__init__.py", "importlib")]


@pytest.mark.parametrize(
    "code", ["import pickle", "from os import path; os.system('ls')", "from yaml import x", "eval('1')"]
)
def test_a_danger_is_found(code: str) -> None:
    assert len(list(dangers_in(ast.parse(code)))) == 1
