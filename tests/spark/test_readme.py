"""The README's Spark example runs as it stands, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import python_block
from tests.spark.driver_process import StartDriver, run_page


@pytest.mark.pyspark("4.1")
@pytest.mark.slow
def test_the_spark_example_runs_and_shows_the_long_flights(start_driver: StartDriver, tmp_path: Path) -> None:
    printed = run_page(start_driver, [python_block(with_spark=True)], tmp_path / "fresh")

    assert "1576" in printed
    assert "719" not in printed
