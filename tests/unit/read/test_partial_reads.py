"""Reads of a part of large files: they fetch only what they need, and find damage in it."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eoslog
from eoslog import CorruptRecord, Store, connect
from eoslog.format import data_file
from eoslog.read import file_slices

ROWS = 40_000
GROUP = 5_000
SCHEMA = pa.schema({"id": pa.int64(), "miles": pa.int32(), "carrier": pa.string(), "note": pa.binary()})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one file of eight row groups. Most of its bytes are notes."""
    root = tmp_path_factory.mktemp("store")
    numbers = random.Random(0)
    rows = {
        "id": list(range(ROWS)),
        "miles": [numbers.randrange(3000) for _ in range(ROWS)],
        "carrier": [numbers.choice(["UA", "B6", None]) for _ in range(ROWS)],
        "note": [numbers.randbytes(60) for _ in range(ROWS)],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS", GROUP)
        store = connect(root)
        store.admin.create_topic("t", schema=SCHEMA)
        with store.producer() as producer:
            producer.send_table("t", pa.table(rows, schema=SCHEMA))
    return root


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return connect(root)


@pytest.fixture
def fetched(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the ranges that a scan of the store fetches."""
    sizes: list[int] = []
    get_range = store.object_store.get_range

    def noted(path: str, start: int, length: int) -> bytes:
        body = get_range(path, start, length)
        sizes.append(len(body))
        return body

    monkeypatch.setattr(store.object_store, "get_range", noted)
    return sizes


def data(root: Path) -> Path:
    (found,) = root.rglob("*.parquet")
    return found


def test_a_column_is_read_without_the_others(root: Path, store: Store, fetched: list[int]) -> None:
    rows = store.scan("t", columns=["id"]).to_table()

    assert rows["id"].to_pylist() == list(range(ROWS))
    assert 0 < sum(fetched) < data(root).stat().st_size / 10


def test_a_read_of_all_columns_fetches_the_file_once_and_whole(store: Store, fetched: list[int]) -> None:
    scan = store.scan("t")
    before = store.requests["GET"]

    scan.to_table()

    assert fetched == []
    assert store.requests["GET"] - before == 1


def test_offsets_are_right_in_the_last_row_group(store: Store) -> None:
    rows = store.scan("t", columns=["_offset", "id"], predicate=f"id >= {ROWS - 10}").to_table()

    assert rows["_offset"].to_pylist() == rows["id"].to_pylist() == list(range(ROWS - 10, ROWS))


CONDITIONS = st.recursive(
    st.sampled_from(
        [
            "id < 7000",
            "id >= 34999",
            "id = 12345",
            "id IN (1, 20000, 39999)",
            "id BETWEEN 9990 AND 10010",
            "miles > 2990",
            "miles <> 7",
            "carrier = 'UA'",
            "carrier IS NULL",
            "carrier > 'C'",
            "carrier LIKE 'B%'",
            "carrier IS NOT NULL",
            "_offset < 6000",
        ]
    ),
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda each: f"({each[0]} AND {each[1]})"),
        st.tuples(parts, parts).map(lambda each: f"({each[0]} OR {each[1]})"),
        parts.map(lambda each: f"(NOT {each})"),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(CONDITIONS, st.sets(st.sampled_from([*SCHEMA.names, "_offset"]), min_size=1), st.sampled_from([None, 1, 3]))
def test_ranges_hold_the_same_rows_as_the_whole_file(
    root: Path, predicate: str, columns: set[str], threads: int | None
) -> None:
    store = connect(root)
    if threads is not None:
        store.object_store.reads_at_once = threads
    names = sorted(columns)

    found = store.scan("t", columns=names, predicate=predicate).to_table()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_slices, "_LARGEST_WHOLE_BYTES", 1 << 40)
        assert found.equals(store.scan("t", columns=names, predicate=predicate).to_table())


def damaged(root: Path, tmp_path: Path, column: str) -> Store:
    """A copy of the store in which the last byte of a column's first page is wrong."""
    copied = tmp_path / "copy"
    for each in root.rglob("*"):
        if each.is_file():
            (copied / each.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            (copied / each.relative_to(root)).write_bytes(each.read_bytes())
    path = data(copied)
    body = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(SCHEMA.names.index(column))
    body[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(body)
    return connect(copied)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_a_damaged_page_is_found_when_its_column_is_read(root: Path, tmp_path: Path, column: str) -> None:
    store = damaged(root, tmp_path, column)
    others = [name for name in SCHEMA.names if name != column]

    with pytest.raises(CorruptRecord, match=r"\.parquet"):
        store.scan("t", columns=[column]).to_table()
    with pytest.raises(CorruptRecord, match="checksum"):
        store.scan("t").to_table()
    assert store.scan("t", columns=others).to_table().num_rows == ROWS


@pytest.mark.parametrize("columns", [None, ["id"]])
@pytest.mark.parametrize("left", [None, 0, 100_000])
def test_a_file_that_is_missing_or_too_short_is_corrupt(
    root: Path, tmp_path: Path, columns: list[str] | None, left: int | None
) -> None:
    store = damaged(root, tmp_path, "id")
    path = data(tmp_path / "copy")
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])

    with pytest.raises(CorruptRecord, match=path.name):
        store.scan("t", columns=columns).to_table()


def test_an_object_store_that_fails_during_a_range_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    get_range = store.object_store.get_range
    calls: list[int] = []

    def failing(path: str, start: int, length: int) -> bytes:
        calls.append(start)
        if len(calls) == 4:
            raise eoslog.StoreUnavailable("no answer")
        return get_range(path, start, length)

    monkeypatch.setattr(store.object_store, "get_range", failing)
    with pytest.raises(eoslog.StoreUnavailable, match="no answer"):
        store.scan("t", columns=["id"]).to_table()
