"""The Python examples of ``docs/spark.md`` are one program, which runs as it stands in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import REPOSITORY, fenced_blocks
from tests.spark.driver_process import StartDriver, run_page


@pytest.mark.slow
def test_the_examples_of_the_page_run_and_what_they_assert_is_so(start_driver: StartDriver, tmp_path: Path) -> None:
    blocks = fenced_blocks(REPOSITORY / "docs/spark.md", "python")

    printed = run_page(start_driver, blocks, tmp_path / "fresh", timeout_s=600)

    assert "[EOSLOG_REPLAYED]" in printed
