"""Published topics on a real S3 server, over HTTP: other engines read exactly the snapshots."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import eoslog
from tests.published_history import COLUMNS, published_versions
from tests.s3.servers import S3Server
from tests.unit.support.delta_tables import Row, rows_by_delta, rows_of_table

pytestmark = pytest.mark.s3


def by_delta_rs(root: str, version: int | None, options: dict[str, str]) -> list[Row]:
    return rows_by_delta(root, version, options)


def by_polars(root: str, version: int | None, options: dict[str, str]) -> list[Row]:
    """Read with Polars through delta-rs. Its native reader lacks the values of partition columns."""
    frame = pl.read_delta(root, version=version, storage_options=options, use_pyarrow=True)
    return rows_of_table(frame.to_arrow())


def by_native_polars(root: str, version: int | None, options: dict[str, str]) -> list[Row]:
    """Read only the topic's columns with the native reader of Polars."""
    frame = pl.scan_delta(root, version=version, storage_options=options).select(COLUMNS.names).collect()
    return sorted(frame.iter_rows())


@pytest.fixture(scope="module")
def published(real_server: S3Server) -> tuple[str, dict[int, list[Row]]]:
    """The root of a published topic, and the rows of its versions."""
    url = f"s3://{real_server.new_bucket()}/store"
    store = eoslog.connect(url, **real_server.options())
    return f"{url}/t", published_versions(store)


@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_native_polars])
def test_each_version_is_the_snapshot(
    real_server: S3Server,
    published: tuple[str, dict[int, list[Row]]],
    read: Callable[[str, int | None, dict[str, str]], list[Row]],
) -> None:
    root, versions = published
    options = real_server.variables() | {"AWS_ALLOW_HTTP": "true"}

    def expected(version: int) -> list[Row]:
        rows = versions[version]
        return sorted(row[2:] for row in rows) if read is by_native_polars else rows

    for version in versions:
        assert read(root, version, options) == expected(version)
    assert read(root, None, options) == expected(max(versions))


def test_a_coordinator_publishes_many_topics_with_few_requests(real_server: S3Server) -> None:
    store = eoslog.connect(f"s3://{real_server.new_bucket()}/store", **real_server.options())
    topics = [f"t{number}" for number in range(40)]
    for topic in topics:
        store.admin.create_topic(topic, config=eoslog.TopicConfig(publish="delta"))
    with store.producer() as producer:
        for topic in topics:
            producer.send(topic, b"v")
    coordinator = eoslog.Coordinator(store)

    first = coordinator.publish()
    before = store.requests.copy()
    second = coordinator.publish()

    assert sorted(each.topic for each in first) == sorted(topics)
    assert (second, store.requests - before) == ([], {"GET": 1})
