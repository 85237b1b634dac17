"""A scan as an Arrow stream: every engine that takes one gets the scan's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog import InvalidOption, Scan, SchemaMismatch, Store, connect
from eoslog.maintenance.coordinator import Coordinator

SCHEMA = pa.schema({"id": pa.int64(), "carrier": pa.string()})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two partitions. Each transaction writes three rows into each; every third one is aborted."""
    store = connect(tmp_path / "store")
    store.admin.create_topic("t", partitions=2, schema=SCHEMA)
    producer = store.producer("writer")
    producer.init_transactions()
    for number in range(9):
        producer.begin_transaction()
        for partition in range(2):
            rows = {"id": [number * 6 + partition * 3 + each for each in range(3)], "carrier": ["UA", "B6", None]}
            table = pa.table(rows, schema=SCHEMA)
            producer.send_table("t", table.append_column("_partition", pa.array([partition] * 3, pa.int32())))
        if number % 3 == 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    return store


def _with_duckdb(scan: Scan) -> pa.Table:
    return duckdb.sql("SELECT * FROM scan").to_arrow_table()


def _with_datafusion(scan: Scan) -> pa.Table:
    return datafusion.SessionContext().from_arrow(scan).to_arrow_table()


ENGINES: dict[str, Callable[[Scan], Any]] = {
    "pyarrow": pa.table,
    "reader": lambda scan: scan.to_reader().read_all(),
    "pandas": lambda scan: pa.Table.from_pandas(scan.to_pandas(), SCHEMA),
    "polars": lambda scan: scan.to_polars().to_arrow(),
    "polars, itself": lambda scan: pl.DataFrame(scan).to_arrow(),
    "duckdb": _with_duckdb,
    "datafusion": _with_datafusion,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_the_committed_rows_in_order(store: Store, engine: str) -> None:
    scan = store.scan("t")
    expected = scan.to_table()
    assert expected.num_rows == 36

    for _ in range(2):
        assert ENGINES[engine](scan).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("rows", [0, 1, 3, 7, 18, 35, 36, 100])
@pytest.mark.parametrize("predicate", [None, "carrier = 'UA'"])
def test_a_limited_scan_has_the_first_rows(store: Store, rows: int, predicate: str | None) -> None:
    scan = store.scan("t", predicate=predicate)
    everything = scan.to_table()

    limited = scan.limit(rows)

    assert limited.to_table().to_pylist() == everything.slice(0, rows).to_pylist()
    assert limited.to_table().num_rows <= limited.record_count <= rows
    assert limited.limit(rows + 1).to_table().num_rows == limited.limit(rows).to_table().num_rows
    assert scan.to_table().num_rows == everything.num_rows


@pytest.mark.usefixtures("files_are_objects")
def test_a_limited_scan_fetches_only_the_files_of_its_rows(store: Store) -> None:
    scan = store.scan("t")
    before = store.requests["GET"]

    scan.limit(4).to_table()

    assert store.requests["GET"] - before == len(scan.limit(4).files()) == 2


@pytest.mark.parametrize("rows", [-1, 1.5, True, "1", None])
def test_a_limit_is_a_whole_number(store: Store, rows: Any) -> None:
    with pytest.raises(InvalidOption, match=r"limit is .*; it must be a whole number, 0 or more"):
        store.scan("t").limit(rows)


def _read_files(scan: Scan) -> list[tuple[int, int, int]]:
    """The partition, offset and id of each row, read with Parquet's own reader."""
    found = []
    for file in scan.files():
        ids = pq.read_table(file.url)["id"].to_pylist()
        assert len(ids) == file.rows
        assert Path(file.url).stat().st_size == file.length
        for part in file.ranges:
            assert part.base_offset is not None
            rows = ids[part.first_row : part.first_row + part.row_count]
            found += [(file.partition, part.base_offset + each, value) for each, value in enumerate(rows)]
    return found


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_files_of_a_scan_hold_its_rows(store: Store, is_compacted: bool) -> None:
    if is_compacted:
        store.admin.alter_topic("t", segment_batches=4)
        Coordinator(store).run_once()
    scan = store.scan("t", columns=["_partition", "_offset", "id"])

    expected = [tuple(row.values()) for row in scan.to_table().to_pylist()]

    assert _read_files(scan) == expected
    assert _read_files(scan.limit(20)) == expected[:20]


STREAMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "batch": lambda table: table.to_batches()[0],
    "reader": pa.Table.to_reader,
    "pandas": pa.Table.to_pandas,
    "polars": pl.DataFrame,
    "duckdb": lambda table: duckdb.from_arrow(table),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_every_stream_can_be_sent(store: Store, kind: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "carrier": ["UA", None, "ß"]}, schema=SCHEMA)
    store.admin.create_topic("sent", schema=SCHEMA)

    with store.producer() as producer:
        producer.send_table("sent", STREAMS[kind](rows))

    assert store.scan("sent").to_table().to_pylist() == rows.to_pylist()


def test_a_scan_can_be_sent_to_another_topic(store: Store) -> None:
    store.admin.create_topic("copy", schema=SCHEMA)

    with store.producer() as producer:
        producer.send_table("copy", store.scan("t"))

    assert store.scan("copy").to_table().to_pylist() == store.scan("t").to_table().to_pylist()


def test_a_scan_of_records_can_be_sent_to_another_topic_with_their_headers_timestamps_and_partitions() -> None:
    store = connect("memory://records")
    store.admin.create_topic("records", partitions=2)
    store.admin.create_topic("copy", partitions=2)
    with store.producer() as producer:
        headers = [("trace", b"1"), ("trace", None)]
        producer.send("records", b"value", key=b"key", partition=1, headers=headers, timestamp=1_700_000_000_123)
        producer.send("records", None, key=b"key", partition=0, timestamp=0)

        producer.flush()
        producer.send_table("copy", store.scan("records"))

    copied, sent = (store.scan(topic).to_table().drop_columns("topic") for topic in ("copy", "records"))
    assert copied == sent
    assert copied["headers"].to_pylist()[1] == [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]


def test_a_scan_with_control_rows_cannot_be_sent_as_they_would_become_tombstones() -> None:
    store = connect("memory://markers")
    store.admin.create_topic("records")

    with store.producer() as producer, pytest.raises(SchemaMismatch, match="_transactional_id"):
        producer.send_table("records", store.scan("records", include_control_rows=True))


@pytest.mark.parametrize("rows", [[{"id": 1}], {"id": [1]}, "rows", None])
def test_rows_that_are_no_stream_are_refused(store: Store, rows: Any) -> None:
    with store.producer() as producer, pytest.raises(SchemaMismatch, match="__arrow_c_stream__"):
        producer.send_table("t", rows)


def test_pandas_gets_pandas_options(store: Store) -> None:
    frame = store.scan("t").to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)

    assert frame.dtypes["id"] == pd.Int64Dtype()


@pytest.mark.parametrize("categories", [pl.Categorical(), pl.Enum(["a", "b"])])
def test_categories_of_polars_are_written_as_text(categories: pl.DataType) -> None:
    store = connect(f"memory://{type(categories).__name__}")
    store.admin.create_topic("t", schema=pa.schema({"text": pa.string()}))
    values = ["a", None, "b", "a"]

    with store.producer() as producer:
        producer.send_table("t", pl.DataFrame({"text": pl.Series(values, dtype=categories)}))

    assert store.scan("t").to_table()["text"].to_pylist() == values
