"""How fast Spark reads a topic, against what cannot be beaten: each pair alternates in one run, and only ratios count.

``python -m benchmarks.spark_reads [rows] [rounds]``. ``EosLogTable.toDF`` is compared with Spark's own Parquet reader,
``format("eoslog")`` with a Python data source that does nothing but hand over what pyarrow reads of the same files. A
ratio of 1 is as fast; above it is faster. Each read is planned anew, which costs the same for any number of rows, so
give many. Rows go to Spark's ``noop`` sink. The last pairs compare ``format("eoslog")`` with ``toDF``: they say what it
costs that Spark prunes no columns and pushes no filters into a Python data source.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from rich.console import Console
from rich.progress import track

import eoslog
from eoslog.read.columns import POSITION_COLUMNS
from pyspark_eoslog import EosLogTable

FILES = 16
PARTITIONS = 4
SCHEMA = "id bigint, name string, amount double, at timestamp"
PLACE = "_topic string, _partition int, _offset bigint, _timestamp timestamp"
COLUMNS = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)


@dataclass(frozen=True)
class Files(InputPartition):
    """What one task of the bare source reads."""

    paths: Sequence[str]


class BareSource(DataSource):
    """The least that a Python data source can do with Parquet files."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return f"{SCHEMA}, {PLACE}" if "place" in self.options else SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return BareReader(self.options["files"].split("\n"), "place" in self.options)


class BareReader(DataSourceReader):
    def __init__(self, paths: Sequence[str], place: bool) -> None:
        self._paths = paths
        self._place = place

    def partitions(self) -> Sequence[InputPartition]:
        count = -(-len(self._paths) // PARTITIONS)
        return [Files(self._paths[first : first + count]) for first in range(0, len(self._paths), count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        for path in partition.paths:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=64 * 1024, columns=COLUMNS.names):
                columns = [
                    column if column.type == field.type else column.cast(field.type)
                    for column, field in zip(batch.columns, COLUMNS, strict=True)
                ]
                if not self._place:
                    yield pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
                    continue
                rows = batch.num_rows
                columns += [
                    pa.repeat("numbers", rows),
                    pa.repeat(pa.scalar(0, pa.int32()), rows),
                    columns[0],
                    columns[3],
                ]
                yield pa.RecordBatch.from_arrays(columns, names=[*COLUMNS.names, *POSITION_COLUMNS.names])


def main(rows: int, rounds: int) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("spark-reads").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(str(Path(directory) / "store"), fsync=False)
        files = _produce(store, rows)
        spark.dataSource.register(BareSource)
        table = EosLogTable.forPath(spark, store.url, "numbers")

        def source(**options: str) -> DataFrame:
            chosen = {"topic": "numbers", "minPartitions": str(PARTITIONS), **options}
            return spark.read.format("eoslog").options(**chosen).load(store.url)

        def plain() -> DataFrame:
            return spark.read.schema(SCHEMA).parquet(*files)

        def table_columns() -> DataFrame:
            return table.toDF(metadata_columns=False)

        def source_columns(**options: str) -> DataFrame:
            return source(metadataColumns="false", **options)

        def bare(**options: str) -> DataFrame:
            return spark.read.format("bare").option("files", "\n".join(files)).options(**options).load()

        pairs: dict[str, tuple[Callable[[], DataFrame], Callable[[], DataFrame]]] = {
            "toDF, the topic's columns": (table_columns, plain),
            "toDF, the topic's columns, count": (lambda: counted(table_columns()), lambda: counted(plain())),
            "toDF, the topic's columns, id alone": (
                lambda: table_columns().select("id"),
                lambda: plain().select("id"),
            ),
            "toDF, the topic's columns, a filter": (
                lambda: table_columns().where("id < 1000"),
                lambda: plain().where("id < 1000"),
            ),
            "toDF, with place": (table.toDF, plain),
            "toDF, id alone": (lambda: table.toDF().select("id"), lambda: plain().select("id")),
            "toDF, a filter": (lambda: table.toDF().where("id < 1000"), lambda: plain().where("id < 1000")),
            'format("eoslog"), the topic\'s columns': (source_columns, bare),
            'format("eoslog"), with place': (
                source,
                lambda: bare(place="true"),
            ),
            'format("eoslog") : toDF, all columns': (source_columns, table_columns),
            'format("eoslog") : toDF, count': (lambda: counted(source_columns()), lambda: counted(table_columns())),
            'format("eoslog") : toDF, id alone': (
                lambda: source_columns().select("id"),
                lambda: table_columns().select("id"),
            ),
            'format("eoslog") : toDF, columns=id': (
                lambda: source(columns="id"),
                lambda: table_columns().select("id"),
            ),
            'format("eoslog") : toDF, a filter': (
                lambda: source_columns().where("id < 1000"),
                lambda: table_columns().where("id < 1000"),
            ),
            'format("eoslog") : toDF, predicate=': (
                lambda: source_columns(predicate="id < 1000"),
                lambda: table_columns().where("id < 1000"),
            ),
        }
        console = Console()
        console.print(f"{rows:,} rows in {FILES} files: ratio p50 (min-max), and the time of the bare read p50")
        for name, (ours, least) in pairs.items():
            found = [
                _pair(ours, least, turn) for turn in track(range(rounds + 1), name, console=console, transient=True)
            ][1:]
            ratios = sorted(least_s / ours_s for ours_s, least_s in found)
            console.print(
                f"{name:40} {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
                f" {statistics.median(least_s for _, least_s in found):6.2f} s"
            )
    spark.stop()


def counted(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("count(*)")


def _produce(store: eoslog.Store, rows: int) -> list[str]:
    """Fill a topic, and tell the paths of its files."""
    store.admin.create_topic("numbers", schema=COLUMNS)
    each = rows // FILES
    with store.producer(buffer_bytes=1 << 40) as producer:
        for first in range(0, each * FILES, each):
            numbers = np.arange(first, first + each)
            columns = [
                pa.array(numbers),
                pa.array(numbers).cast(pa.string()),
                pa.array(numbers * 0.5),
                pa.array(numbers * 1000).cast(pa.timestamp("us", tz="UTC")),
            ]
            producer.send_table("numbers", pa.Table.from_arrays(columns, schema=COLUMNS))
            producer.flush()
    return [str(Path(store.url) / file.path) for file in store.scan("numbers").planned_files()]


def _pair(ours: Callable[[], DataFrame], least: Callable[[], DataFrame], turn: int) -> tuple[float, float]:
    """Both once, in seconds; who comes first changes from turn to turn."""
    if turn % 2:
        least_s = _time(least)
        return _time(ours), least_s
    return _time(ours), _time(least)


def _time(frame: Callable[[], DataFrame]) -> float:
    started = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    main(*(arguments + [8_000_000, 7][len(arguments) :]))
