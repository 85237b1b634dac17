"""PyIceberg and DuckDB read a published topic on a real S3 server, over HTTP."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb_extension_httpfs", reason="run: make iceberg-tools")
pytest.importorskip("duckdb_extension_iceberg", reason="run: make iceberg-tools")

import eoslog
from tests.iceberg_tools.engines import by_pyiceberg, duckdb_on_s3, rows_by_duckdb, snapshot_ids
from tests.published_history import COLUMNS, published_versions
from tests.s3.servers import S3Server

pytestmark = pytest.mark.s3


def test_each_version_is_the_snapshot_in_duckdb_and_pyiceberg(real_server: S3Server) -> None:
    url = f"s3://{real_server.new_bucket()}/store"
    versions = published_versions(eoslog.connect(url, **real_server.options()), "iceberg")
    connection, root = duckdb_on_s3(real_server), f"{url}/__iceberg/t"
    variables = real_server.variables()
    options = {
        "s3.endpoint": real_server.endpoint_url,
        "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
        "s3.region": variables["AWS_REGION"],
        "s3.force-virtual-addressing": "false",
    }

    ids = snapshot_ids(root, options)
    for version, rows in versions.items():
        assert rows_by_duckdb(connection, root, ids[version], COLUMNS.names) == rows
        assert by_pyiceberg(root, ids[version], COLUMNS.names, options) == rows
    assert rows_by_duckdb(connection, root, None, COLUMNS.names) == versions[max(versions)]
