"""The examples of the page on Python engines run, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import REPOSITORY, fenced_blocks


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = fenced_blocks(REPOSITORY / "docs/python.md", "python")
    assert len(blocks) > 5

    subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        timeout=120,
        check=True,
    )
