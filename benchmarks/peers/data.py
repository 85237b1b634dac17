"""The rows that all systems write. Most values are by chance, because regular ones compress as real ones never do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRIERS = 1_000
FILES = 8
VALUE_BYTES = 100


def arrow_rows(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    carriers = np.array([f"C{number}" for number in range(CARRIERS)])
    return pa.table(
        {
            "id": np.arange(count),
            "carrier": carriers[random.integers(0, CARRIERS, count)],
            "miles": random.integers(0, 2_600, count, dtype=np.int32),
            "delay": random.normal(10, 30, count),
            "note": np.char.add("flight ", random.integers(0, 1 << 40, count).astype(str)),
        }
    )


def spark_rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows of the same kind as a frame of ``FILES`` partitions. It has the same rows each time."""
    return spark.range(0, count, 1, FILES).selectExpr(
        "id",
        f"concat('C', CAST(pmod(xxhash64(id, 1), {CARRIERS}) AS STRING)) AS carrier",
        "CAST(pmod(xxhash64(id, 2), 2600) AS INT) AS miles",
        "pmod(xxhash64(id, 3), 1000000007) / 7 AS delay",
        "concat('flight ', CAST(pmod(xxhash64(id, 4), 1099511627776) AS STRING)) AS note",
    )


def values(count: int) -> pa.Table:
    """Kafka records with only a value."""
    return pa.table({"value": pa.array(list(payloads(count)), pa.binary())})


def payloads(count: int) -> Iterator[bytes]:
    """The values of records: hexadecimal digits by chance, which compress to a half. They are the same each time."""
    random = Random(7)
    for _ in range(count):
        yield random.randbytes(VALUE_BYTES // 2).hex().encode()


def megabytes(directory: Path) -> float:
    """The size of all files below a directory (MB)."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6
