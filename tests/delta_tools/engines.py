"""Engines that read a Delta table. Each returns partition, offset and the topic's columns of all rows, in order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.table_engines import Row, duckdb_with, rows_of_table

_JARS = Path(__file__).parents[2] / ".cache" / "delta-tools" / "jars"
EXTENSIONS = ("delta",)
"""The extensions with which DuckDB reads the tables."""


def spark_session() -> SparkSession:
    """Start Spark with Delta's own connector."""
    jars = [str(jar) for jar in _JARS.glob("*.jar") if jar.name.startswith(("delta-", "unitycatalog-"))]
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def by_delta_rs(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    return _rows(deltalake.DeltaTable(root, version=version).to_pyarrow_table(), columns)


def by_polars(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with Polars through delta-rs. Its native reader lacks the values of partition columns."""
    return _rows(pl.read_delta(root, version=version, use_pyarrow=True).to_arrow(), columns)


def by_native_polars(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read only the topic's columns with the native reader of Polars."""
    rows = pl.scan_delta(root, version=version).select(*columns).collect().to_arrow()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def by_duckdb(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with DuckDB's Delta extension."""
    return rows_by_duckdb(duckdb_with(*EXTENSIONS), root, version, columns)


def rows_by_duckdb(
    connection: duckdb.DuckDBPyConnection, root: str, version: int | None, columns: Iterable[str]
) -> list[Row]:
    """Read with DuckDB's Delta extension over a connection."""
    at = "" if version is None else f", version = {version}"
    return _rows(connection.execute(f"select * from delta_scan('{root}'{at})").to_arrow_table(), columns)


def by_spark(session: SparkSession, root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with Delta's own connector."""
    reader = session.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return _rows(reader.load(root).toArrow(), columns)


def _rows(table: pa.Table, columns: Iterable[str]) -> list[Row]:
    return rows_of_table(table, "_partition", columns)
