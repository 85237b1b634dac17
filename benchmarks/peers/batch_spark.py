"""Batch writes and scans through Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.data import FILES, megabytes, spark_rows
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import new_name, spark_session
from benchmarks.peers.sizes import Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Batches through Spark"
INTRO = """\
Each write makes a new table of {rows} rows from {files} tasks; the time has the making of the rows in it, which is
the same for all. Each read plans anew and hands its rows to Spark's `noop` sink. `data source` is `format("eoslog")`,
`toDF` is `EosLogTable.toDF()`, which has Spark's own Parquet reader read the files. The filter selects one row in a
thousand. Spark hands neither column choice nor filters to a data source written in Python, so the data source reads
all columns of all rows; its options `columns` and `predicate` would do it, but are not used here."""

SOURCE, TO_DF = "eoslog, data source", "eoslog, toDF"


@dataclass(frozen=True)
class Tables:
    """Writes and reads tables of each format below a directory."""

    spark: SparkSession
    directory: Path

    def write(self, system: str, frame: DataFrame, name: str) -> None:
        path = str(self.directory / name)
        match system:
            case "Parquet":
                frame.write.parquet(path)
            case "Delta":
                frame.write.format("delta").save(path)
            case "Iceberg":
                frame.writeTo(f"ice.db.{name}").create()
            case _:
                writer = frame.write.format("eoslog").option("topic", "t").option("createTopic", True)
                writer.mode("append").save(path)

    def read(self, system: str, name: str) -> DataFrame:
        path = str(self.directory / name)
        match system:
            case "Parquet":
                return self.spark.read.parquet(path)
            case "Delta":
                return self.spark.read.format("delta").load(path)
            case "Iceberg":
                return self.spark.table(f"ice.db.{name}")
            case "eoslog, toDF":
                from pyspark_eoslog import EosLogTable

                return EosLogTable.forPath(self.spark, path, "t").toDF(metadata_columns=False)
        source = self.spark.read.format("eoslog").option("topic", "t").option("metadataColumns", "false")
        return source.load(path)

    def place(self, system: str, name: str) -> Path:
        return self.directory / "iceberg" / "db" / name if system == "Iceberg" else self.directory / name


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"rows": f"{sizes.rows:,}", "files": str(FILES)}
    with spark_session(directory) as spark:
        frame = spark_rows(spark, sizes.rows)
        tables = Tables(spark, directory)
        names: dict[str, str] = {}

        def write(system: str) -> None:
            names[system] = new_name(system.split(",")[0])
            tables.write(system, frame, names[system])

        writers = ("Parquet", "Delta", "Iceberg", SOURCE)
        results.rounds("write", {system: partial(write, system) for system in writers}, sizes.rounds, warm=1)
        for system, name in names.items():
            results.add("write", system, {"MB on disk": megabytes(tables.place(system, name))})
        if SOURCE in names:
            names[TO_DF] = names[SOURCE]
        reads: Mapping[str, Callable[[DataFrame], object]] = {
            "scan, all columns": _drain,
            "scan, one column": lambda found: _drain(found.select("miles")),
            "count": lambda found: found.count(),
            "filter": lambda found: _drain(found.where(f"id < {sizes.rows // 1000}")),
        }
        for case, read in reads.items():
            works = {system: partial(_read, tables, system, name, read) for system, name in names.items()}
            results.rounds(case, works, sizes.rounds, warm=1)


def _read(tables: Tables, system: str, name: str, read: Callable[[DataFrame], object]) -> None:
    read(tables.read(system, name))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
