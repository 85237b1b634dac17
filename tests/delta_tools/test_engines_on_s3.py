"""DuckDB reads a published topic on a real S3 server, over HTTP."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb_extension_httpfs", reason="run: make delta-tools")

import eoslog
from tests.delta_tools.engines import EXTENSIONS, rows_by_duckdb
from tests.published_history import COLUMNS, published_versions
from tests.s3.servers import S3Server
from tests.table_engines import duckdb_on_s3

pytestmark = pytest.mark.s3


def test_each_version_is_the_snapshot_in_duckdb(real_server: S3Server) -> None:
    url = f"s3://{real_server.new_bucket()}/store"
    versions = published_versions(eoslog.connect(url, **real_server.options()))
    connection = duckdb_on_s3(real_server, *EXTENSIONS)

    for version, rows in versions.items():
        assert rows_by_duckdb(connection, f"{url}/t", version, COLUMNS.names) == rows
    assert rows_by_duckdb(connection, f"{url}/t", None, COLUMNS.names) == versions[max(versions)]
