"""The harness itself: what is killed is gone, what is left over is ended, and tasks are tried again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.driver_process import StartDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILL_THE_JVM_FROM_A_TASK = """
    import os, sys
    from pathlib import Path
    import psutil
    from tests.spark.local_spark import start_session

    def kill_the_jvm(_):
        process = psutil.Process()
        while process.name() != "java":
            process = process.parent()
        process.kill()

    spark = start_session(Path(sys.argv[1]))
    spark.sparkContext.parallelize([1], 1).foreach(kill_the_jvm)
    print("not reached")
"""

LEAVE_AN_ORPHAN = """
    import subprocess
    subprocess.Popen(["sleep", "1000"])
"""

HANG = """
    import time
    print("hanging", flush=True)
    time.sleep(1000)
"""


@pytest.mark.slow
def test_a_driver_whose_jvm_is_killed_by_a_worker_leaves_no_process(start_driver: StartDriver, tmp_path: Path) -> None:
    driver = start_driver(KILL_THE_JVM_FROM_A_TASK, str(tmp_path))

    code = driver.wait()

    assert code != 0
    assert "not reached" not in driver.output
    assert driver.processes() == []


def test_an_orphan_of_the_driver_is_killed(start_driver: StartDriver) -> None:
    driver = start_driver(LEAVE_AN_ORPHAN)

    assert driver.wait(orphans_s=0.5) == 0

    assert driver.processes() == []


def test_a_driver_that_does_not_end_is_killed_and_its_output_reported(start_driver: StartDriver) -> None:
    driver = start_driver(HANG)

    with pytest.raises(TimeoutError, match="hanging"):
        driver.wait(timeout_s=3)

    assert driver.processes() == []


def test_a_task_that_fails_is_tried_again(spark: SparkSession) -> None:
    def attempt(_: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 2:
            raise ValueError("first and second attempt fail")
        return context.attemptNumber()

    assert spark.sparkContext.parallelize([0], 1).map(attempt).collect() == [2]
