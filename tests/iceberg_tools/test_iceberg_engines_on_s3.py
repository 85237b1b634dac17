"""PyIceberg, Polars, DuckDB and Spark read a published topic on a real S3 server, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("duckdb_extension_httpfs", reason="run: make iceberg-tools")
pytest.importorskip("duckdb_extension_iceberg", reason="run: make iceberg-tools")

from pyspark.sql import SparkSession

import eoslog
from tests.iceberg_tables import iceberg_versions
from tests.iceberg_tools.engines import (
    EXTENSIONS,
    by_polars,
    by_pyiceberg,
    by_spark,
    rows_by_duckdb,
    snapshot_ids,
    spark_session,
    stream,
    taken,
)
from tests.published_history import COLUMNS, History, published_versions
from tests.s3.servers import S3Server
from tests.table_engines import duckdb_on_s3

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def spark(real_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    variables = real_server.variables()
    session = spark_session(
        str(tmp_path_factory.mktemp("warehouse")),
        {
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": real_server.endpoint_url,
            "spark.hadoop.fs.s3a.endpoint.region": variables["AWS_REGION"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": variables["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": variables["AWS_SECRET_ACCESS_KEY"],
        },
    )
    yield session
    session.stop()


def options_of(server: S3Server) -> Mapping[str, str]:
    """Return how PyIceberg reaches a server."""
    variables = server.variables()
    return {
        "s3.endpoint": server.endpoint_url,
        "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
        "s3.region": variables["AWS_REGION"],
        "s3.force-virtual-addressing": "false",
    }


def storage_options_of(server: S3Server) -> Mapping[str, str]:
    """Return how Polars reaches a server."""
    variables = server.variables()
    return {
        "aws_endpoint_url": server.endpoint_url,
        "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        "aws_region": variables["AWS_REGION"],
        "aws_allow_http": "true",
    }


def test_each_version_is_the_snapshot_in_every_engine(real_server: S3Server, spark: SparkSession) -> None:
    url = f"s3://{real_server.new_bucket()}/store"
    versions = published_versions(eoslog.connect(url, **real_server.options()), "iceberg")
    connection, root = duckdb_on_s3(real_server, *EXTENSIONS), f"{url}/__iceberg/t"
    options, storage_options = options_of(real_server), storage_options_of(real_server)

    ids = snapshot_ids(root, options)
    for version, rows in versions.items():
        assert rows_by_duckdb(connection, root, ids[version], COLUMNS.names) == rows
        assert by_pyiceberg(root, ids[version], COLUMNS.names, options) == rows
        assert by_polars(root, ids[version], COLUMNS.names, options, storage_options) == rows
        assert by_spark(spark, root, ids[version], COLUMNS.names) == rows
    newest = versions[max(versions)]
    assert rows_by_duckdb(connection, root, None, COLUMNS.names) == newest
    assert by_spark(spark, root, None, COLUMNS.names) == newest


def test_a_stream_gets_every_row_once_while_the_table_is_written_and_compacted(
    real_server: S3Server, spark: SparkSession, tmp_path: Path
) -> None:
    url = f"s3://{real_server.new_bucket()}/store"
    history = History(url, 3, table_format="iceberg", **real_server.options())
    history.store.admin.publish("t")
    out = str(tmp_path / "out")

    for _ in range(3):
        history.run(40, removes=False)
        stream(spark, f"{url}/__iceberg/t", out, tmp_path)

    *_, (_, rows) = history.snapshots()
    assert taken(spark, out) == [row[:2] for row in rows]
    assert "replace" in {table.operation for table in iceberg_versions(history.store.object_store, "t")}
