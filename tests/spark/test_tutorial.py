"""The tutorial's examples are one program. Its commands then run on the store that the program made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import REPOSITORY, fenced_blocks
from tests.spark.driver_process import StartDriver

PAGE = REPOSITORY / "docs/tutorial.md"
RUN_IN_A_DIRECTORY = """
    import os, runpy, sys
    os.chdir(sys.argv[1])
    runpy.run_path("page.py", run_name="__main__")
"""


@pytest.mark.pyspark("4.1")
def test_the_examples_and_commands_of_the_tutorial_run(start_driver: StartDriver, tmp_path: Path) -> None:
    directory = tmp_path / "fresh"
    directory.mkdir()
    (directory / "page.py").write_text("\n".join(fenced_blocks(PAGE, "python")))

    driver = start_driver(RUN_IN_A_DIRECTORY, str(directory))
    code = driver.wait()

    assert code == 0, driver.output
    commands = [line[2:] for block in fenced_blocks(PAGE, "console") for line in block.splitlines()]
    assert len(commands) == 6
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", "eoslog.cli.main", *shlex.split(command)[1:]],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            timeout=120,
            check=True,
        )
