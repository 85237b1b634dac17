"""Engines that read an Iceberg table. Each returns partition, offset and the given columns of all rows, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.table_engines import Row, duckdb_with, rows_of_table

# Polars warns if the faster planner is not installed.
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
_JARS = Path(__file__).parents[2] / ".cache" / "iceberg-tools" / "jars"
EXTENSIONS = ("avro", "iceberg")
"""The extensions with which DuckDB reads the tables."""


def spark_session(warehouse: str, configuration: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with Iceberg's own runtime.

    Args:
        warehouse: the directory of a catalog named ``files``.
        configuration: further settings of the session.
    """
    return (
        SparkSession.builder.master("local[2]")
        .config(map=dict(configuration or {}))
        .config("spark.jars", ",".join(map(str, _JARS.glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.files", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.files.type", "hadoop")
        .config("spark.sql.catalog.files.warehouse", warehouse)
        .config("spark.sql.catalog.files.cache-enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def static_table(root: str, options: Mapping[str, str] | None = None) -> StaticTable:
    """Open a table by its directory with PyIceberg.

    Args:
        options: how PyIceberg reaches an object store.
    """
    return StaticTable.from_metadata(root, dict(options or {}))


def snapshot_ids(root: str, options: Mapping[str, str] | None = None) -> dict[int, int]:
    """Return the snapshot of each version, by the number of the version, which is the sequence number."""
    snapshots = static_table(root, options).snapshots()
    return {each.sequence_number: each.snapshot_id for each in snapshots if each.sequence_number is not None}


def by_pyiceberg(
    root: str, snapshot: int | None, columns: Iterable[str], options: Mapping[str, str] | None = None
) -> list[Row]:
    return _rows(static_table(root, options).scan(snapshot_id=snapshot).to_arrow(), columns)


def by_polars(
    root: str,
    snapshot: int | None,
    columns: Iterable[str],
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[Row]:
    """Read with the native reader of Polars.

    Args:
        options: how PyIceberg reaches an object store for the metadata.
        storage_options: how Polars reaches it for the rows.
    """
    table = static_table(root, options)
    frame = pl.scan_iceberg(table, snapshot_id=snapshot, reader_override="native", storage_options=storage_options)
    return _rows(frame.collect().to_arrow(), columns)


def by_duckdb(root: str, snapshot: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with DuckDB's Iceberg extension."""
    return rows_by_duckdb(duckdb_with(*EXTENSIONS), root, snapshot, columns)


def rows_by_duckdb(
    connection: duckdb.DuckDBPyConnection, root: str, snapshot: int | None, columns: Iterable[str]
) -> list[Row]:
    """Read with DuckDB's Iceberg extension over a connection."""
    at = "" if snapshot is None else f", snapshot_from_id = {snapshot}::ubigint"
    return _rows(connection.execute(f"select * from iceberg_scan('{root}'{at})").to_arrow_table(), columns)


def by_spark(session: SparkSession, root: str, snapshot: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with Iceberg's own connector."""
    reader = session.read.format("iceberg")
    if snapshot is not None:
        reader = reader.option("versionAsOf", snapshot)
    return _rows(reader.load(root).toArrow(), columns)


def stream(spark: SparkSession, root: str, out: str, directory: Path, **options: str) -> None:
    """Take all new snapshots of a table."""
    (
        spark.readStream.format("iceberg")
        .options(**options)
        .load(root)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(out)
        .awaitTermination(120)
    )


def take_available(spark: SparkSession, root: str, out: str, directory: Path) -> None:
    """Do the same as ``stream``, in the way of a stream that runs for ever.

    With the trigger ``availableNow`` Iceberg's connector loads the first snapshot of the stream at each start.
    """
    query = (
        spark.readStream.format("iceberg")
        .load(root)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start(out)
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def taken(spark: SparkSession, out: str) -> list[tuple[int, int]]:
    rows = spark.read.parquet(out).selectExpr("_topic_partition", "_base_offset + _offset_delta as o").collect()
    return sorted((row[0], row[1]) for row in rows)


def _rows(table: pa.Table, columns: Iterable[str]) -> list[Row]:
    return rows_of_table(table, "_topic_partition", columns)
