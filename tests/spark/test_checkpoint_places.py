"""Two drivers whose checkpoints have one name, in two working directories."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.spark.driver_process import DriverProcess, StartDriver
from tests.spark.streams import make_topics, numbers, produce

DRIVER = """
    import os, sys, time
    from pathlib import Path

    directory, root = sys.argv[1:]
    os.chdir(directory)
    from tests.spark.local_spark import start_session

    spark = start_session(Path(directory))
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    rows = rows.select("n").writeStream.format("eoslog").option("topic", "out")
    stream = rows.option("checkpointLocation", "checkpoint").start(root)
    stream.processAllAvailable()
    Path("first").touch()
    while not Path("go on").exists():
        time.sleep(0.1)
    stream.processAllAvailable()
    stream.stop()
"""

pytestmark = pytest.mark.pyspark("4.1")


def wait_for(path: Path, driver: DriverProcess) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, driver.output
        assert driver.processes(), driver.output
        time.sleep(0.1)


@pytest.mark.slow
def test_two_queries_with_relative_checkpoints_both_go_on(start_driver: StartDriver, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = make_topics(root)
    produce(store, 0, 20)
    drivers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drivers.append(start_driver(DRIVER, str(tmp_path / name), root))
        wait_for(tmp_path / name / "first", drivers[-1])
    produce(store, 20, 30)
    for name, driver in zip(("one", "two"), drivers, strict=True):
        (tmp_path / name / "go on").touch()
        assert driver.wait(orphans_s=3) == 0, driver.output

    ids = {json.loads((tmp_path / name / "checkpoint/metadata").read_text())["id"] for name in ("one", "two")}
    assert len(ids) == 2
    assert numbers(store) == sorted([*range(30), *range(30)])
