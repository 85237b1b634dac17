"""How much memory Spark's Python workers take to write and read a topic, at two sizes of data: it should be the same.

``python -m benchmarks.spark_memory [rows]``. The larger write has eight times as many rows, in one task each.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import eoslog
from pyspark_eoslog import topic_schema

TIMES = 8
POLL_S = 0.05


def main(rows: int) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").appName("spark-memory").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 65536)
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def frame(count: int) -> DataFrame:
        return spark.range(0, count, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 256) AS text", "id * 0.5 AS half")

    table = Table("partitions", "rows", "peak of a writing task (MiB)", "peak of a reading task (MiB)")
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(str(Path(directory) / "store"), fsync=False)
        for partitions in (1, 16):
            for count in (rows, TIMES * rows):
                topic = f"t{partitions}-{count}"
                schema = topic_schema(frame(1).schema)
                store.admin.create_topic(topic, partitions=partitions, schema=schema, key="id")
                with peak_rss() as write:
                    frame(count).write.format("eoslog").option("topic", topic).mode("append").save(store.url)
                with peak_rss() as read:
                    everything = spark.read.format("eoslog").option("topic", topic).load(store.url)
                    everything.write.format("noop").mode("overwrite").save()
                table.add_row(str(partitions), f"{count:,}", str(write() >> 20), str(read() >> 20))
    spark.stop()
    Console().print(table)


@contextmanager
def peak_rss() -> Iterator[Callable[[], int]]:
    """What the largest Python process below this one takes at most meanwhile (bytes)."""
    peak = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(POLL_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    if process.name().startswith("python"):
                        peak = max(peak, process.memory_info().rss)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak
    finally:
        over.set()
        watcher.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
