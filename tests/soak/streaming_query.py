"""A Spark driver with two chained streaming queries: orders into copies, and copies into copies of copies."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.layout import COPIES, ORDERS, RECOPIES, Run
from tests.spark.local_spark import python_environment, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

HOPS = ((ORDERS, COPIES), (COPIES, RECOPIES))


def start_query(spark: SparkSession, run: Run, source: str, sink: str) -> StreamingQuery:
    """Every committed row of a topic into another one, from the beginning or the checkpoint on."""
    rows = spark.readStream.format("eoslog").options(subscribe=source, startingOffsets="earliest").load(run.url)
    return (
        rows.select("value")
        .writeStream.format("eoslog")
        .options(topic=sink, checkpointLocation=str(run.checkpoints / sink))
        .queryName(sink)
        .trigger(processingTime="1 second")
        .start(run.url)
    )


def work(run: Run, name: str, incarnation: int) -> None:
    """Keep both queries running; one that failed starts again, as a scheduler of jobs does it."""
    os.environ |= python_environment()
    spark = start_session(run.folder / "spark" / f"{name}.{incarnation}")
    running: dict[str, StreamingQuery] = {}
    while True:
        for source, sink in HOPS:
            query = running.get(sink)
            if query is not None and query.isActive:
                continue
            if query is not None:
                print(f"{sink} failed: {query.exception()}", flush=True)
            running[sink] = start_query(spark, run, source, sink)
        time.sleep(0.5)


if __name__ == "__main__":
    work(Run.load(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
