"""An older PySpark is refused with the version that is needed, and other formats of its sessions keep working."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.datasource import DataSource

from pyspark_eoslog.pyspark_version import OLDEST, check_pyspark, readable

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


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.0"])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.array([{"a": []}, None], pa.struct([("a", pa.list_(pa.list_(pa.string())))])),
        pa.array([None, []], pa.map_(pa.string(), pa.list_(pa.int64()))),
        pa.array([[["x"], []], None, [None, ["y", "z"]]], pa.list_(pa.list_(pa.string()))),
        pa.array([{"a": "x", "b": None}, None], pa.struct([("a", pa.string()), ("b", pa.list_(pa.int8()))])),
        pa.array([[("k", {"a": ["x"]})], None], pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.string()))]))),
    ],
    ids=lambda column: str(column.type),
)
def test_empty_lists_are_readable_though_spark_passes_no_offsets(
    monkeypatch: pytest.MonkeyPatch, column: Any, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    passed = column if version == "4.2.0" else without_empty_offsets(column)

    batch = readable(pa.record_batch([passed], names=["c"]))

    batch.validate(full=True)
    assert batch.column(0).to_pylist() == column.to_pylist()
    assert pa.concat_arrays([batch.column(0), column]).equals(pa.concat_arrays([column, column]))


def without_empty_offsets(array: Any) -> Any:
    """The array as Spark before 4.2 passes it: an empty array with offsets has an empty buffer of them."""
    buffers, kind = array.buffers(), array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        own, children = buffers, []
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        own, children = buffers[:2], [array.values]
    elif pa.types.is_struct(kind):
        own, children = buffers[:1], [array.field(index) for index in range(kind.num_fields)]
    else:
        return array
    if len(array) == 0 and len(own) > 1:
        own = [own[0], pa.py_buffer(b""), *own[2:]]
    parts = [without_empty_offsets(child) for child in children]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, parts)
