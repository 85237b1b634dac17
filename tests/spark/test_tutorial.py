"""The tutorial's examples are one program. Its commands then run on the store that the program made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import REPOSITORY, fenced_blocks, run_commands
from tests.spark.driver_process import StartDriver, run_page

PAGE = REPOSITORY / "docs/tutorial.md"


@pytest.mark.slow
@pytest.mark.pyspark("4.1")
def test_the_examples_and_commands_of_the_tutorial_run(start_driver: StartDriver, tmp_path: Path) -> None:
    directory = tmp_path / "fresh"

    run_page(start_driver, fenced_blocks(PAGE, "python"), directory)

    assert run_commands(PAGE, directory) == 6
