"""The README's Spark example runs as it stands, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import python_block
from tests.spark.driver_process import StartDriver

RUN_IN_A_DIRECTORY = """
    import os, runpy, sys
    os.chdir(sys.argv[1])
    runpy.run_path("example.py", run_name="__main__")
"""


@pytest.mark.pyspark("4.1")
def test_the_spark_example_runs_and_shows_the_long_flights(start_driver: StartDriver, tmp_path: Path) -> None:
    directory = tmp_path / "fresh"
    directory.mkdir()
    (directory / "example.py").write_text(python_block(with_spark=True))

    driver = start_driver(RUN_IN_A_DIRECTORY, str(directory))
    code = driver.wait()

    assert code == 0, driver.output
    assert "1576" in driver.output
    assert "719" not in driver.output
