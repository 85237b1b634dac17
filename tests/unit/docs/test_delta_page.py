"""The examples of the page on Delta tables run, one after the other. Those for Spark and DuckDB run in delta_tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import REPOSITORY, fenced_blocks


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = fenced_blocks(REPOSITORY / "docs/delta.md", "python")
    assert len(blocks) == 3

    subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        timeout=120,
        check=True,
    )
