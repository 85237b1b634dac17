"""Reads of a part of large files: they fetch only what they need, and find damage in it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eoslog
from eoslog import CorruptRecord, Store, connect
from eoslog.format import checked_files, data_file
from eoslog.read import row_reader
from eoslog.read.predicate import Predicate
from tests.depth import examples

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
    get_ranges = store.object_store.get_ranges

    def noted(path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        bodies = get_ranges(path, ranges)
        sizes.extend(map(len, bodies))
        return bodies

    monkeypatch.setattr(store.object_store, "get_ranges", noted)
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


@examples(15)
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
        patch.setattr(row_reader, "_LARGEST_WHOLE_BYTES", 1 << 40)
        patch.setattr(Predicate, "may_match", lambda self, bounds: True)
        assert found.equals(store.scan("t", columns=names, predicate=predicate).to_table())


def copy_of(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root, tmp_path / "copy", dirs_exist_ok=True))


def damaged(root: Path, tmp_path: Path, column: str) -> Store:
    """A copy of the store in which the last byte of a column's first page is wrong."""
    copied = copy_of(root, tmp_path)
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
    get_ranges = store.object_store.get_ranges
    calls: list[str] = []

    def failing(path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        calls.append(path)
        if len(calls) == 2:
            raise eoslog.StoreUnavailable("no answer")
        return get_ranges(path, ranges)

    monkeypatch.setattr(store.object_store, "get_ranges", failing)
    with pytest.raises(eoslog.StoreUnavailable, match="no answer"):
        store.scan("t", columns=["id"]).to_table()


def test_row_groups_that_cannot_match_are_not_fetched(root: Path, store: Store, fetched: list[int]) -> None:
    rows = store.scan("t", predicate=f"id = {GROUP * 3 + 1} AND miles >= 0").to_table()

    assert rows["id"].to_pylist() == [GROUP * 3 + 1]
    assert 0 < sum(fetched) < data(root).stat().st_size / 5


def footer_size(root: Path) -> int:
    return int.from_bytes(data(root).read_bytes()[-8:-4], "little") + 8


def flip(path: Path, byte: int) -> None:
    """Change one bit of a byte, counted from the end of the file. A second call restores it."""
    with path.open("r+b") as file:
        file.seek(-1 - byte, os.SEEK_END)
        found = file.read(1)[0]
        file.seek(-1 - byte, os.SEEK_END)
        file.write(bytes([found ^ 1 << byte % 8]))


def test_a_flipped_bit_in_any_byte_of_a_footer_is_found(root: Path, tmp_path: Path) -> None:
    path = data(copy_of(root, tmp_path))
    store = connect(tmp_path / "copy")
    (rows,) = store.scan("t").plans[0].rows
    assert rows.file is not None
    file = rows.file.model_copy(update={"crc32c": 0})
    for byte in range(footer_size(root)):
        flip(path, byte)
        with pytest.raises(CorruptRecord, match="checksum of the footer"):
            checked_files.read_end(store.object_store, file)
        flip(path, byte)
    checked_files.read_end(store.object_store, file)


@pytest.mark.parametrize("predicate", [None, "id >= 0", "id = 12345"])
def test_a_read_with_a_flipped_bit_in_a_footer_fails(root: Path, tmp_path: Path, predicate: str | None) -> None:
    path = data(copy_of(root, tmp_path))
    store = connect(tmp_path / "copy")
    for byte in random.Random(0).sample(range(footer_size(root)), 30):
        flip(path, byte)
        with pytest.raises(CorruptRecord, match="checksum of the footer"):
            store.scan("t", columns=["id"], predicate=predicate).to_table()
        flip(path, byte)
    assert store.scan("t", columns=["id"], predicate=predicate).to_table().num_rows > 0


def test_a_footer_that_is_larger_than_the_first_request_is_read(
    root: Path, store: Store, fetched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_files, "END_BYTES", 100)

    rows = store.scan("t", columns=["id"]).to_table()

    assert rows["id"].to_pylist() == list(range(ROWS))
    assert fetched[:2] == [100, footer_size(root) - 100]


def test_a_replaced_file_of_equal_length_is_corrupt(root: Path, tmp_path: Path) -> None:
    copied = copy_of(root, tmp_path)
    path = data(copied)
    before = path.read_bytes()
    rows = pq.read_table(path)
    body = data_file.encode_data_file(rows.set_column(1, "miles", pa.array([0] * ROWS, pa.int32())))
    assert len(body) < len(before)
    path.write_bytes(body[:4] + bytes(len(before) - len(body)) + body[4:])

    with pytest.raises(CorruptRecord, match="footer"):
        connect(copied).scan("t", columns=["id"]).to_table()


def test_a_file_without_the_checksum_of_its_footer_is_fetched_whole(
    root: Path, store: Store, fetched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of older files have no such checksum."""
    scan = store.scan("t", columns=["id"], predicate="id >= 30000")
    (rows,) = scan.plans[0].rows
    assert rows.file is not None
    without = replace(rows, file=rows.file.model_copy(update={"footer_crc32c": None}))
    older = replace(scan.plans[0], rows=[without])  # type: ignore[arg-type]
    scan.plans = (older,)

    assert scan.to_table()["id"].to_pylist() == list(range(30_000, ROWS))
    assert fetched == []
