"""Engines that read a Delta table. Each returns partition, offset and the topic's columns of all rows, in order."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.s3.servers import S3Server

Row = tuple[Any, ...]
_JARS = Path(__file__).parents[2] / ".cache" / "delta-tools" / "jars"
_OFFSET = "_base_offset + _offset_delta"
_PLACE = ("_partition", "_base_offset", "_offset_delta")


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
    """Read with delta-rs."""
    return _rows(deltalake.DeltaTable(root, version=version).to_pyarrow_table(), columns)


def by_polars(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with Polars through delta-rs. Its native reader lacks the values of partition columns."""
    return _rows(pl.read_delta(root, version=version, use_pyarrow=True).to_arrow(), columns)


def by_native_polars(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read only the topic's columns with the native reader of Polars."""
    rows = pl.scan_delta(root, version=version).select(*columns).collect().to_arrow()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """Connect to DuckDB with its Delta extension."""
    connection = duckdb.connect()
    _load(connection, "delta")
    connection.execute("set timezone = 'UTC'")
    return connection


def duckdb_on_s3(server: S3Server) -> duckdb.DuckDBPyConnection:
    """Connect to DuckDB with its Delta extension and access to an S3 server."""
    connection = duckdb_with_delta()
    _load(connection, "httpfs")
    variables = server.variables()
    connection.execute(
        f"create secret (type s3, key_id '{variables['AWS_ACCESS_KEY_ID']}', "
        f"secret '{variables['AWS_SECRET_ACCESS_KEY']}', region '{variables['AWS_REGION']}', "
        f"endpoint '{server.endpoint_url.removeprefix('http://')}', url_style 'path', use_ssl false)"
    )
    return connection


def _load(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Load an extension of DuckDB, which comes as a Python package."""
    directory = Path(import_module(f"duckdb_extension_{extension}").__file__ or "").parent
    connection.execute(f"load '{next(directory.rglob(f'{extension}.duckdb_extension'))}'")


def by_duckdb(root: str, version: int | None, columns: Iterable[str]) -> list[Row]:
    """Read with DuckDB's Delta extension."""
    return rows_by_duckdb(duckdb_with_delta(), root, version, columns)


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
    names = list(columns)
    found = [
        (row["_partition"], row["_base_offset"] + row["_offset_delta"], *(row[name] for name in names))
        for row in table.select([*_PLACE, *names]).to_pylist()
    ]
    return sorted(found)
