"""The Python examples of ``docs/spark.md`` are one program, which runs as it stands in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import REPOSITORY, fenced_blocks
from tests.spark.driver_process import StartDriver

RUN_IN_A_DIRECTORY = """
    import os, runpy, sys
    os.chdir(sys.argv[1])
    runpy.run_path("page.py", run_name="__main__")
"""


@pytest.mark.slow
def test_the_examples_of_the_page_run_and_what_they_assert_is_so(start_driver: StartDriver, tmp_path: Path) -> None:
    directory = tmp_path / "fresh"
    directory.mkdir()
    blocks = fenced_blocks(REPOSITORY / "docs/spark.md", "python")
    (directory / "page.py").write_text("\n".join(blocks))

    driver = start_driver(RUN_IN_A_DIRECTORY, str(directory))
    code = driver.wait(timeout_s=600)

    assert code == 0, driver.output
    assert "[EOSLOG_REPLAYED]" in driver.output
