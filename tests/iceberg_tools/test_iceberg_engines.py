"""Published topics in other engines: each reads exactly the rows of the snapshot at the slot of each version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb_extension_iceberg", reason="run: make iceberg-tools")

import pyarrow as pa
from pyspark.sql import SparkSession

import eoslog
from eoslog import TopicConfig
from eoslog.iceberg import iceberg_log
from eoslog.maintenance.publication import Publisher
from eoslog.maintenance.sealing import seal_segments
from tests.iceberg_tables import check_iceberg_versions, iceberg_versions, newest_version
from tests.iceberg_tools.engines import (
    EXTENSIONS,
    by_duckdb,
    by_polars,
    by_pyiceberg,
    by_spark,
    snapshot_ids,
    spark_session,
    stream,
    take_available,
    taken,
)
from tests.pages import REPOSITORY, fenced_blocks
from tests.published_history import COLUMNS, History
from tests.table_engines import duckdb_with
from tests.unit.maintenance.publication.test_iceberg_publication import EVERY_TYPE

ENGINES = [by_pyiceberg, by_polars, by_duckdb]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = spark_session(str(tmp_path_factory.mktemp("warehouse")))
    yield session
    session.stop()


def history_at(
    path: Path, seed: int, cleanup_policy: str = "delete", *, format_version: int = 2
) -> tuple[History, str]:
    """Return a history that is not begun yet, and the root of its Iceberg table."""
    history = History(
        str(path), seed, cleanup_policy, table_format="iceberg", iceberg_format_version=format_version, fsync=False
    )
    return history, f"{path}/__iceberg/t"


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("cleanup_policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("seed", range(3))
def test_each_version_is_the_snapshot_in_every_engine(
    tmp_path: Path, seed: int, cleanup_policy: str, format_version: int
) -> None:
    history, root = history_at(tmp_path, seed, cleanup_policy, format_version=format_version)
    history.run(60)

    check_iceberg_versions(history.store.object_store, "t")
    ids = snapshot_ids(root)
    for version, rows in history.snapshots():
        for read in ENGINES:
            assert read(root, ids[version], COLUMNS.names) == rows, read.__name__
    for read in ENGINES:
        assert read(root, None, COLUMNS.names) == read(root, ids[max(ids)], COLUMNS.names)


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("cleanup_policy", ["delete", "compact,delete"])
def test_each_version_is_the_snapshot_in_spark(
    tmp_path: Path, spark: SparkSession, cleanup_policy: str, format_version: int
) -> None:
    history, root = history_at(tmp_path, 7, cleanup_policy, format_version=format_version)
    history.run(40)

    ids = snapshot_ids(root)
    for version, rows in history.snapshots():
        assert by_spark(spark, root, ids[version], COLUMNS.names) == rows
    assert by_spark(spark, root, None, COLUMNS.names) == by_pyiceberg(root, None, COLUMNS.names)


def test_spark_reads_the_row_ids_of_format_version_3(tmp_path: Path, spark: SparkSession) -> None:
    history, _ = history_at(tmp_path, 5)
    history.run(30)
    history.store.admin.alter_topic("t", iceberg_format_version=3)
    history.run(30)

    rows = spark.sql(in_catalog(spark, tmp_path, "select _base_offset, _topic_partition, _row_id, _pos from files.t"))
    found = {(row[1], row[0], row[2] - row[3]) for row in rows.collect()}

    files = newest_version(history.store.object_store, "t").files.values()
    places = ((*file["partition"].values(), file["first_row_id"]) for file in files)
    assert found == set(places)


def test_a_stream_gets_every_row_once_while_the_table_is_written_and_compacted(
    tmp_path: Path, spark: SparkSession
) -> None:
    history, root = history_at(tmp_path / "store", 3)
    history.store.admin.publish("t")
    out = str(tmp_path / "out")

    for _ in range(4):
        history.run(40, removes=False)
        stream(spark, root, out, tmp_path)

    *_, (_, rows) = history.snapshots()
    assert taken(spark, out) == [row[:2] for row in rows]
    assert "replace" in {table.operation for table in iceberg_versions(history.store.object_store, "t")}


def test_a_stream_that_skips_removals_gets_every_other_row_once(tmp_path: Path, spark: SparkSession) -> None:
    history, root = history_at(tmp_path / "store", 4, "compact,delete")
    history.store.admin.publish("t")
    out = str(tmp_path / "out")
    skips = {"streaming-skip-overwrite-snapshots": "true", "streaming-skip-delete-snapshots": "true"}

    for _ in range(3):
        history.run(30)
        stream(spark, root, out, tmp_path, **skips)

    found = list(iceberg_versions(history.store.object_store, "t"))
    before: set[tuple[int, int]] = set()
    appended: list[tuple[int, int]] = []
    for table in found:
        places = set(table.places())
        appended += [] if table.operation != "append" else sorted(places - before)
        before = places
    assert taken(spark, out) == sorted(appended)
    assert {table.operation for table in found} & {"delete", "overwrite"}


def test_a_stream_that_has_read_all_rows_continues_after_a_pause_longer_than_the_retention(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, root = history_at(tmp_path / "store", 3)
    out = str(tmp_path / "out")
    history.run(40, removes=False)
    take_available(spark, root, out, tmp_path)
    seal_segments(history.store)
    assert history.store.admin.compact_files("t").compacted
    history.store.admin.publish("t")
    take_available(spark, root, out, tmp_path)
    monkeypatch.setattr(iceberg_log, "RETENTION_MS", 0)

    with history.store.producer() as producer:
        producer.send_table("t", pa.table({"key": [1], "text": ["late"], "at": pa.nulls(1, COLUMNS.field("at").type)}))
    history.store.admin.publish("t")
    take_available(spark, root, out, tmp_path)

    *_, (_, rows) = history.snapshots()
    assert taken(spark, out) == [row[:2] for row in rows]


@pytest.mark.parametrize("engine", ["pyiceberg", "polars", "duckdb", "spark"])
def test_every_type_comes_back_from_every_engine(tmp_path: Path, spark: SparkSession, engine: str) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    schema = pa.schema([(name, data_type) for name, (data_type, _) in EVERY_TYPE.items()])
    values = [*({name: two[number] for name, (_, two) in EVERY_TYPE.items()} for number in (0, 1))]
    values.append(dict.fromkeys(EVERY_TYPE))
    store.admin.create_topic("t", schema=schema, config=TopicConfig(publish="iceberg"))
    with store.producer() as producer:
        producer.send_table("t", pa.Table.from_pylist(values, schema=schema))
    store.admin.publish("t")
    read: dict[str, Any] = {
        "pyiceberg": by_pyiceberg,
        "polars": by_polars,
        "duckdb": by_duckdb,
        "spark": lambda *arguments: by_spark(spark, *arguments),
    }

    rows = read[engine](f"{tmp_path}/__iceberg/t", None, list(EVERY_TYPE))

    assert [row[2:] for row in rows] == [tuple(row.values()) for row in values]


@pytest.mark.parametrize(
    "statement",
    [
        "insert into files.t select * from files.t",
        "delete from files.t where key = 100",
        "update files.t set text = 'x'",
        "drop table files.t purge",
        "call files.system.expire_snapshots(table => 't', older_than => timestamp '2100-01-01 00:00:00')",
        "call files.system.remove_orphan_files(table => 't', older_than => timestamp '2000-01-01 00:00:00')",
        "call files.system.rewrite_data_files(table => 't', options => map('rewrite-all', 'true'))",
    ],
)
def test_writers_are_refused_and_change_nothing(tmp_path: Path, spark: SparkSession, statement: str) -> None:
    history, root = history_at(tmp_path, 1)
    history.run(20, removes=False)
    with history.store.producer() as producer:
        keys = list(range(100, 110))
        producer.send_table(
            "t", pa.table({"key": keys, "text": ["x"] * 10, "at": pa.nulls(10, COLUMNS.field("at").type)})
        )
    history.store.admin.publish("t")
    rows = by_pyiceberg(root, None, COLUMNS.names)
    version = newest_version(history.store.object_store, "t").version

    with pytest.raises(Exception):  # noqa: B017, PT011 - each engine has errors of its own
        spark.sql(in_catalog(spark, tmp_path, statement)).collect()

    assert newest_version(history.store.object_store, "t").version == version
    assert by_pyiceberg(root, None, COLUMNS.names) == rows


@pytest.mark.parametrize(
    "statement",
    [
        "delete from files.t",
        "delete from files.t where _topic_partition = 0",
        "truncate table files.t",
        "alter table files.t set tblproperties ('write.format.default' = 'parquet')",
        "call files.system.rollback_to_snapshot('t', {first})",
        "call files.system.rewrite_manifests('t')",
        "alter table files.t rename column text to words",
        "alter table files.t add column more int",
    ],
)
def test_what_a_writer_can_change_is_restored_by_the_next_publication(
    tmp_path: Path, spark: SparkSession, statement: str
) -> None:
    history, root = history_at(tmp_path, 1)
    history.run(30, removes=False)
    rows = by_pyiceberg(root, None, COLUMNS.names)
    table = newest_version(history.store.object_store, "t")
    first = table.metadata["snapshots"][0]["snapshot-id"]

    spark.sql(in_catalog(spark, tmp_path, statement.format(first=first))).collect()
    assert newest_version(history.store.object_store, "t").version == table.version + 1
    history.store.admin.publish("t")

    for read in (*ENGINES, lambda *arguments: by_spark(spark, *arguments)):
        assert read(root, None, COLUMNS.names) == rows
    assert newest_version(history.store.object_store, "t").metadata["properties"] == table.metadata["properties"]


def test_a_dropped_table_is_written_again_and_no_row_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    history, root = history_at(tmp_path, 1)
    history.run(20, removes=False)
    rows = by_pyiceberg(root, None, COLUMNS.names)

    spark.sql(in_catalog(spark, tmp_path, "drop table files.t")).collect()
    assert not Path(root, "metadata").exists()
    history.store.admin.publish("t")

    assert by_pyiceberg(root, None, COLUMNS.names) == rows


def in_catalog(spark: SparkSession, store: Path, statement: str) -> str:
    """Return a statement for a catalog of the tables of a store."""
    name = f"of_{abs(hash(store))}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", f"{store}/__iceberg")
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    return statement.replace("files.", f"{name}.")


def test_a_table_that_was_withdrawn_has_its_rows_again_in_every_engine(tmp_path: Path, spark: SparkSession) -> None:
    history, root = history_at(tmp_path, 1)
    history.run(20, removes=False)
    rows = by_pyiceberg(root, None, COLUMNS.names)
    history.store.admin.alter_topic("t", publish="none")
    Publisher.of(history.store).release_files("t", "iceberg")
    empty = [read(root, None, COLUMNS.names) for read in ENGINES]
    history.store.admin.alter_topic("t", publish="iceberg")
    history.store.admin.publish("t")

    assert empty == [[], [], []]
    for read in (*ENGINES, lambda *arguments: by_spark(spark, *arguments)):
        assert read(root, None, COLUMNS.names) == rows


def test_the_examples_of_the_page_run(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = REPOSITORY / "docs/iceberg.md"
    exec("\n".join(fenced_blocks(page, "python")), {})
    (for_spark,) = fenced_blocks(page, "python spark")
    (for_duckdb,) = fenced_blocks(page, "sql")
    connection = duckdb_with(*EXTENSIONS)
    for statement in for_duckdb.split(";"):
        if statement.strip():
            assert connection.execute(statement).fetchall()
    for line in for_spark.splitlines():
        frame = eval(line.replace("iceberg-store", f"{tmp_path}/iceberg-store"), {"spark": spark})
        assert frame.isStreaming or frame.count() > 0
