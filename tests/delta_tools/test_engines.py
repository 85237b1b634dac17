"""Published topics in other engines: each reads exactly the rows of the snapshot at the slot of each version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb_extension_delta", reason="run: make delta-tools")

import pyarrow as pa
from pyspark.sql import SparkSession

import eoslog
from eoslog import TopicConfig
from eoslog.maintenance.publication import Publisher
from tests.delta_logs import check_versions, rows_by_stream, versions
from tests.delta_tools.engines import (
    EXTENSIONS,
    by_delta_rs,
    by_duckdb,
    by_native_polars,
    by_polars,
    by_spark,
    spark_session,
)
from tests.pages import REPOSITORY, fenced_blocks
from tests.published_history import COLUMNS, History
from tests.table_engines import duckdb_with


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session()
    yield session
    session.stop()


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("seed", range(6))
def test_each_version_is_the_snapshot_in_every_engine(tmp_path: Path, seed: int, cleanup_policy: str) -> None:
    history = History(str(tmp_path), seed, cleanup_policy)
    history.run(60)

    check_versions(history.store.object_store, "t")
    for version, rows in history.snapshots():
        values = sorted(row[2:] for row in rows)
        assert by_delta_rs(history.root, version, COLUMNS.names) == rows
        assert by_polars(history.root, version, COLUMNS.names) == rows
        assert by_duckdb(history.root, version, COLUMNS.names) == rows
        assert by_native_polars(history.root, version, COLUMNS.names) == values


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact,delete"])
def test_each_version_is_the_snapshot_in_spark(tmp_path: Path, spark: SparkSession, cleanup_policy: str) -> None:
    history = History(str(tmp_path), 7, cleanup_policy)
    history.run(40)

    for version, rows in history.snapshots():
        assert by_spark(spark, history.root, version, COLUMNS.names) == rows
    newest = max(version for version, _ in history.snapshots())
    assert by_spark(spark, history.root, None, ["key"]) == by_spark(spark, history.root, newest, ["key"])


@pytest.fixture
def withdrawn(tmp_path: Path) -> tuple[str, dict[int | None, list[Any]]]:
    """A table of a topic that was unpublished and is published again: its root, and the rows of its last versions."""
    history = History(str(tmp_path), 1)
    history.run(20, removes=False)
    *_, (version, rows) = history.snapshots()
    history.store.admin.alter_topic("t", publish="none")
    Publisher.of(history.store).release_files("t", "delta")
    history.store.admin.alter_topic("t", publish="delta")
    assert history.store.admin.publish("t")[0].version == version + 3
    return history.root, {version: rows, version + 1: rows, version + 2: [], version + 3: rows, None: rows}


@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_duckdb])
def test_a_table_that_was_withdrawn_has_its_rows_again_in_every_engine(
    withdrawn: tuple[str, dict[int | None, list[Any]]], read: Any
) -> None:
    root, last = withdrawn

    for version, rows in last.items():
        assert read(root, version, COLUMNS.names) == rows


def test_a_table_that_was_withdrawn_has_its_rows_again_in_spark(
    withdrawn: tuple[str, dict[int | None, list[Any]]], spark: SparkSession
) -> None:
    root, last = withdrawn

    for version, rows in last.items():
        assert by_spark(spark, root, version, COLUMNS.names) == rows


def test_a_stream_gets_every_row_once_while_the_table_is_written_and_compacted(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(str(tmp_path / "store"), 3)
    history.store.admin.publish("t")
    out = str(tmp_path / "out")

    def stream() -> None:
        (
            spark.readStream.format("delta")
            .option("maxFilesPerTrigger", 2)
            .load(history.root)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
            .awaitTermination(120)
        )

    for _ in range(4):
        history.run(40, removes=False)
        stream()

    *_, (_, rows) = history.snapshots()
    taken = spark.read.parquet(out).selectExpr("_partition", "_base_offset + _offset_delta as o").collect()
    assert sorted((row[0], row[1]) for row in taken) == [row[:2] for row in rows]
    operations = [actions[0]["commitInfo"]["operation"] for actions in versions(history.store.object_store, "t")]
    assert "OPTIMIZE" in operations


def test_a_stream_that_skips_removals_gets_every_other_row_once(tmp_path: Path, spark: SparkSession) -> None:
    history = History(str(tmp_path / "store"), 4, "compact,delete")
    history.store.admin.publish("t")
    out = str(tmp_path / "out")

    for _ in range(3):
        history.run(30)
        (
            spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .load(history.root)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
            .awaitTermination(120)
        )

    taken = spark.read.parquet(out).selectExpr("_partition", "_base_offset + _offset_delta as o").collect()
    expected = rows_by_stream(history.store.object_store, "t", skip_change_commits=True)
    assert sorted((row[0], row[1]) for row in taken) == expected
    operations = [actions[0]["commitInfo"]["operation"] for actions in versions(history.store.object_store, "t")]
    assert "DELETE" in operations


def test_engines_skip_files_by_statistics(tmp_path: Path, spark: SparkSession) -> None:
    history = History(str(tmp_path), 5)
    history.run(60)
    *_, (_, rows) = history.snapshots()
    expected = sorted(row[2] for row in rows if row[2] >= 6)

    frame = spark.read.format("delta").load(history.root).where("key >= 6")

    assert sorted(row["key"] for row in frame.collect()) == expected
    assert frame.selectExpr("max(at)", "min(key)").collect() == (
        frame.toDF(*frame.columns).groupBy().agg({"at": "max", "key": "min"}).collect()
    )


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("insert into delta.`{0}` select * from delta.`{0}`", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
        ("vacuum delta.`{0}` retain 0 hours", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
        ("delete from delta.`{0}` where key = 1", "DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    ],
)
def test_deltas_writers_and_vacuum_are_refused(
    tmp_path: Path, spark: SparkSession, statement: str, problem: str
) -> None:
    history = History(str(tmp_path), 1)
    history.run(20, removes=False)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    before = set(tmp_path.rglob("*.parquet"))

    with pytest.raises(Exception, match=problem):
        spark.sql(statement.format(history.root)).collect()

    assert before <= set(tmp_path.rglob("*.parquet"))


EVERY_TYPE = {
    "byte": (pa.int8(), -128),
    "short": (pa.int16(), 32767),
    "integer": (pa.int32(), -(2**31)),
    "long": (pa.int64(), 2**63 - 1),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), float("-inf")),
    "boolean": (pa.bool_(), True),
    "text": (pa.string(), "ü" * 40),
    "bytes": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), date(1, 1, 1)),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 1, 2, 3, 456789, tzinfo=UTC)),
    "short_decimal": (pa.decimal128(9, 2), Decimal("-1234567.89")),
    "long_decimal": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a", None]}),
}


@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_duckdb])
def test_every_type_comes_back_from_every_engine(tmp_path: Path, read: Any) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    schema = pa.schema([(name, data_type) for name, (data_type, _) in EVERY_TYPE.items()])
    values = [{name: value for name, (_, value) in EVERY_TYPE.items()}, dict.fromkeys(EVERY_TYPE)]
    store.admin.create_topic("t", schema=schema, config=TopicConfig(publish="delta"))
    with store.producer() as producer:
        producer.send_table("t", pa.Table.from_pylist(values, schema=schema))
    store.admin.publish("t")

    rows = read(f"{tmp_path}/t", None, list(EVERY_TYPE))

    assert [row[2:] for row in rows] == [tuple(row.values()) for row in values]


def test_the_examples_of_the_page_run(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = REPOSITORY / "docs/delta.md"
    exec("\n".join(fenced_blocks(page, "python")), {})
    (for_spark,) = fenced_blocks(page, "python spark")
    (for_duckdb,) = fenced_blocks(page, "sql")

    miles, at_version, stream = (
        eval(line.replace("delta-store", f"{tmp_path}/delta-store"), {"spark": spark})
        for line in for_spark.splitlines()
        if line
    )
    connection = duckdb_with(*EXTENSIONS)
    sums, count = (connection.execute(query).fetchall() for query in for_duckdb.split(";") if query.strip())

    assert (miles.count(), at_version.count(), stream.isStreaming) == (2, 3, True)
    assert (dict(sums), count) == ({"UA": 2119, "B6": 1005}, [(3,)])
