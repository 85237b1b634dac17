"""The notebook runs from its first cell to its last; its cells assert what they show. It is kept without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.pages import REPOSITORY
from tests.spark.local_spark import python_environment

NOTEBOOK = REPOSITORY / "examples/notebook/exactly_once.ipynb"


def test_the_notebook_is_kept_without_outputs_for_any_python() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)
        assert not cell.metadata


@pytest.mark.slow
def test_the_notebook_runs_and_each_cell_proves_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in python_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(shutil.copy(NOTEBOOK, tmp_path), as_version=4)

    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()

    shown = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "assert" in "".join(cell.source for cell in notebook.cells)
    assert shown[-1] == "each row is there once\n"
    assert any("micro-batch 0: " in text for text in shown)
    assert list(tmp_path.glob("eoslog-*")) == []
