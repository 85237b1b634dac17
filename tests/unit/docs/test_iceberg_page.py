"""The examples of the page on Iceberg tables run, one after the other. Those of other engines run in iceberg_tools."""

from __future__ import annotations

from pathlib import Path

from tests.pages import REPOSITORY, fenced_blocks, run_examples


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = fenced_blocks(REPOSITORY / "docs/iceberg.md", "python")
    assert len(blocks) == 3

    run_examples(blocks, tmp_path)
