"""An older PySpark is refused with the version that is needed, and other formats of its sessions keep working."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
import pytest
from pyspark.sql.datasource import DataSource

from pyspark_eoslog.pyspark_version import OLDEST, check_pyspark

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
OLDER = ["3.4.1", "3.5.7", "3.5.0.dev4"]


@pytest.fixture
def fresh_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is imported anew within the test. Afterwards the modules from before are there again."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pyspark_eoslog"}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "pyspark.sql.worker", raising=False)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark_eoslog"]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize("version", OLDER)
def test_an_older_pyspark_is_refused_on_import(
    fresh_package: None, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)

    with pytest.raises(ImportError, match=rf"needs PySpark 4\.0 or later, found {version}\."):
        importlib.import_module("pyspark_eoslog")


@pytest.mark.parametrize("version", OLDER[1:])
def test_an_older_pyspark_may_look_up_formats_but_not_use_them(
    fresh_package: None, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker", ModuleType("pyspark.sql.worker"))

    source: Any = importlib.import_module("pyspark_eoslog").DefaultSource

    assert issubclass(source, DataSource)
    assert source.name() == "eoslog"
    with pytest.raises(ImportError, match=rf"needs PySpark 4\.0 or later, found {version}\."):
        source(options={})


@pytest.mark.parametrize("version", ["4.0.0", "4.1.1", "4.2.0.dev3", "4.10.1", "5.0.0"])
def test_this_and_later_versions_are_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)

    check_pyspark()


def test_the_extra_asks_for_the_version_that_the_check_needs() -> None:
    extra = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["spark"]
    (requirement,) = (each for each in extra if each.startswith("pyspark"))

    assert requirement.split(",")[0] == "pyspark>=" + ".".join(map(str, OLDEST))
