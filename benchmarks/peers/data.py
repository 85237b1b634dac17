"""The rows that all systems write: five columns, made by arithmetic, the same in Spark and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRIERS = 1_000
FILES = 8
VALUE_BYTES = 100


def arrow_rows(count: int) -> pa.Table:
    """Rows as an Arrow table."""
    ids = np.arange(count)
    return pa.table(
        {
            "id": ids,
            "carrier": np.char.add("C", (ids * 7919 % CARRIERS).astype(str)),
            "miles": (ids * 104_729 % 2_600).astype(np.int32),
            "delay": (ids * 15_485_863 % 10_007) / 7,
            "note": np.char.add("flight ", ids.astype(str)),
        }
    )


def spark_rows(spark: SparkSession, count: int) -> DataFrame:
    """The same rows as a frame of ``FILES`` partitions."""
    return spark.range(0, count, 1, FILES).selectExpr(
        "id",
        f"concat('C', CAST(id * 7919 % {CARRIERS} AS STRING)) AS carrier",
        "CAST(id * 104729 % 2600 AS INT) AS miles",
        "(id * 15485863 % 10007) / 7 AS delay",
        "concat('flight ', CAST(id AS STRING)) AS note",
    )


def values(count: int) -> pa.Table:
    """Kafka records with only a value."""
    return pa.table({"value": pa.array(list(payloads(count)), pa.binary())})


def payloads(count: int) -> Iterator[bytes]:
    """The values of records: a number, filled up to ``VALUE_BYTES``."""
    for number in range(count):
        yield b"%0*d" % (VALUE_BYTES, number)


def megabytes(directory: Path) -> float:
    """The size of all files below a directory (MB)."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6
