"""The Python examples of a page run one after the other. Those of other engines run in their own directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import REPOSITORY, fenced_blocks, run_examples


@pytest.mark.parametrize(("page", "count"), [("delta", 3), ("iceberg", 3), ("python", 7)])
def test_the_examples_of_the_page_run(tmp_path: Path, page: str, count: int) -> None:
    blocks = fenced_blocks(REPOSITORY / f"docs/{page}.md", "python")
    assert len(blocks) == count

    run_examples(blocks, tmp_path)
