"""The common parts of the engines that read Delta and Iceberg tables: DuckDB's connection, and the order of rows."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tests.s3.servers import S3Server

Row = tuple[Any, ...]


def duckdb_with(*extensions: str) -> duckdb.DuckDBPyConnection:
    """Connect to DuckDB with extensions, which come as Python packages."""
    connection = duckdb.connect()
    for extension in extensions:
        directory = Path(import_module(f"duckdb_extension_{extension}").__file__ or "").parent
        connection.execute(f"load '{next(directory.rglob(f'{extension}.duckdb_extension'))}'")
    connection.execute("set timezone = 'UTC'")
    return connection


def duckdb_on_s3(server: S3Server, *extensions: str) -> duckdb.DuckDBPyConnection:
    """Connect to DuckDB with extensions and access to an S3 server."""
    connection = duckdb_with(*extensions, "httpfs")
    variables = server.variables()
    connection.execute(
        f"create secret (type s3, key_id '{variables['AWS_ACCESS_KEY_ID']}', "
        f"secret '{variables['AWS_SECRET_ACCESS_KEY']}', region '{variables['AWS_REGION']}', "
        f"endpoint '{server.endpoint_url.removeprefix('http://')}', url_style 'path', use_ssl false)"
    )
    return connection


def rows_of_table(table: pa.Table, partition: str, columns: Iterable[str]) -> list[Row]:
    """Return partition, offset and the given columns of all rows, in order.

    Args:
        partition: the name of the column with the partition.
    """
    names = list(columns)
    found = [
        (row[partition], row["_base_offset"] + row["_offset_delta"], *(row[name] for name in names))
        for row in table.select([partition, "_base_offset", "_offset_delta", *names]).to_pylist()
    ]
    return sorted(found)
