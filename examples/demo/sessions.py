"""Spark for the demo: two local cores, and the settings of ``conf/spark-defaults.conf``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]


def spark_environment() -> dict[str, str]:
    """The variables that a driver needs before its JVM starts."""
    return {
        "SPARK_CONF_DIR": str(REPOSITORY / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """What the JVM prints from its start on goes to a file, so that it does not tear the progress bars."""
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def start_spark(work: Path) -> SparkSession:
    """A session that keeps its own files below ``work``."""
    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("eoslog-demo")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(work / "spark"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
    )
    with _output_to(work / "spark.log"):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
