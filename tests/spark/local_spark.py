"""The local Spark session that tests and victim drivers use, and the environment its Python workers need."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]

# Two cores and three attempts for each task: "local[2]" alone gives up at the first failure.
MASTER = "local[2,3]"
# Spark's own classes are not verified: it would take a seventh of the start.
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUICK_TO_START = f"{_UNVERIFIED} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def python_environment() -> dict[str, str]:
    """The variables with which Spark's workers run this interpreter and find the package, set before the JVM starts."""
    own = [REPOSITORY, REPOSITORY / "spark_ext", REPOSITORY / "tests" / "spark" / "crash_points"]
    path = [*map(str, own), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(os.pathsep.join(path).split(os.pathsep))),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # No test needs rows to outlive the machine.
        "EOSLOG_LOCAL__FSYNC": "false",
    }


def start_session(directory: Path, settings: Mapping[str, str] | None = None, *, master: str = MASTER) -> SparkSession:
    """A session that keeps its files in ``directory``; ``settings`` override its configuration.

    The variables of ``python_environment`` must be set before.
    """
    from pyspark.sql import SparkSession

    configuration = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        # Its processes live for seconds: the second compiler and a parallel collector cost them more than they give.
        "spark.driver.extraJavaOptions": QUICK_TO_START,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
    } | dict(settings or {})
    builder = SparkSession.builder.master(master).appName("eoslog-tests")
    for key, value in configuration.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
