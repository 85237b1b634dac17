"""Data files: what was written is read back, and what is damaged is named."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, InvalidRequest
from eoslog.format import data_file
from eoslog.format.checked_files import check_file, crc32c
from eoslog.format.data_file import (
    OFFSET_DELTA_COLUMN,
    DataFile,
    DataFileBuilder,
    encode_data_file,
    with_offset_deltas,
)
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from tests.unit.format.unsafe_arrays import not_utf_8

NAME = "flights/0/x.parquet"
UTC = datetime.UTC
EVERY_TYPE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, None, False]),
    (pa.int8(), [-128, None, 127]),
    (pa.int16(), [-(2**15), None, 1]),
    (pa.int32(), [-(2**31), None, 2**31 - 1]),
    (pa.int64(), [-(2**63), None, 2**63 - 1]),
    (pa.float32(), [1.5, None, -math.inf]),
    (pa.float64(), [1e300, None, -0.0]),
    (pa.string(), ["", None, "ä€"]),
    (pa.binary(), [b"", None, b"\xff\x00"]),
    (pa.decimal128(5, 2), [decimal.Decimal("1.25"), None, decimal.Decimal("-999.99")]),
    (pa.decimal128(38, 0), [decimal.Decimal(10**37), None, decimal.Decimal(-1)]),
    (pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1500, 1, 1, tzinfo=UTC), None, datetime.datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    (pa.timestamp("us"), [datetime.datetime(1500, 1, 1), None, datetime.datetime(2026, 1, 1, 0, 0, 0, 1)]),
    (pa.time64("ns"), [datetime.time(23, 59, 59, 999999), None, datetime.time(0)]),
    (pa.duration("us"), [datetime.timedelta(days=-3, microseconds=1), None, datetime.timedelta(0)]),
    (pa.null(), [None, None, None]),
    (pa.list_(pa.int32()), [[1, None], None, []]),
    (pa.list_(pa.duration("us")), [[datetime.timedelta(1)], None, []]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
    ),
    (
        pa.map_(pa.string(), pa.timestamp("us", "UTC")),
        [[("k", datetime.datetime(2026, 1, 1, tzinfo=UTC))], None, [("k", None)]],
    ),
    (RECORDS_SCHEMA.field("headers").type, [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []]),
]


def rows_of(
    body: bytes,
    schema: pa.Schema,
    rows: int,
    *,
    columns: list[str] | None = None,
    first: int = 0,
    count: int | None = None,
) -> pa.Table:
    batches = list(DataFile(body, schema, rows, name=NAME).batches(columns, first, count))
    return pa.Table.from_batches(batches, None if batches else schema)


def numbers(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "text": [f"row {index}" for index in range(count)]})


@pytest.mark.parametrize(("data_type", "values"), EVERY_TYPE, ids=[str(data_type) for data_type, _ in EVERY_TYPE])
def test_values_and_type_of_a_column_are_read_back_exactly(data_type: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"x": pa.array(values, data_type)})

    assert rows_of(encode_data_file(table), table.schema, 3).equals(table)


def test_not_a_number_is_read_back() -> None:
    table = pa.table({"x": pa.array([math.nan, 1.0])})

    assert math.isnan(rows_of(encode_data_file(table), table.schema, 2)["x"][0].as_py())


def test_kafka_records_are_read_back() -> None:
    table = pa.Table.from_pylist(
        [
            {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}], "timestamp": 1_700_000_000_123},
            {"key": None, "value": None, "headers": None, "timestamp": 0},
        ],
        RECORDS_SCHEMA,
    )

    assert rows_of(encode_data_file(table), RECORDS_SCHEMA, 2).equals(table)


def test_a_file_without_rows_is_a_file() -> None:
    table = numbers(0)

    assert rows_of(encode_data_file(table), table.schema, 0).equals(table)


def test_columns_whose_names_hold_dots_are_not_confused_with_nested_ones() -> None:
    table = pa.table({"a.b": [1, 2], "a": [{"b": "x"}, {"b": "y"}]})

    assert rows_of(encode_data_file(table), table.schema, 2).equals(table)


def test_a_row_group_is_bounded_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 100)

    footer = pq.ParquetFile(pa.BufferReader(encode_data_file(numbers(250)))).metadata

    assert [footer.row_group(index).num_rows for index in range(footer.num_row_groups)] == [100, 100, 50]


def test_a_row_group_is_bounded_in_bytes_even_with_larger_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_BYTES", 1000)
    table = pa.table({"x": [b"s"] * 500 + [b"l" * 900] * 10})

    body = encode_data_file(table)

    footer = pq.ParquetFile(pa.BufferReader(body)).metadata
    rows = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
    assert max(rows[:3]) > 2
    assert max(rows[-4:]) <= 2
    assert rows_of(body, table.schema, 510).equals(table)


def test_every_encoding_is_one_that_sparks_vectorised_reader_knows() -> None:
    known = {"PLAIN", "RLE", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"}
    columns = {str(index): pa.array(values, data_type) for index, (data_type, values) in enumerate(EVERY_TYPE)}
    table = pa.concat_tables([pa.table(columns)] * 100)

    group = pq.ParquetFile(pa.BufferReader(encode_data_file(table))).metadata.row_group(0)

    for index in range(group.num_columns):
        assert set(group.column(index).encodings) <= known
        assert group.column(index).compression == "ZSTD"


@pytest.mark.parametrize(("rows", "codec"), [(255, "UNCOMPRESSED"), (256, "ZSTD")])
def test_rows_of_less_than_2_kib_are_not_compressed(rows: int, codec: str) -> None:
    body = encode_data_file(pa.table({"x": pa.array(range(rows), pa.int64())}))

    assert pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(0).compression == codec


def test_offset_deltas_are_the_last_column_and_count_the_rows_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 3)
    table = numbers(8)

    found = pq.read_table(pa.BufferReader(encode_data_file(with_offset_deltas(table))))

    assert found.schema.names == [*table.schema.names, "_offset_delta"]
    assert found.schema.field("_offset_delta").equals(OFFSET_DELTA_COLUMN)
    assert found["_offset_delta"].to_pylist() == list(range(8))


def test_offset_deltas_cost_less_than_a_hundredth_of_a_byte_per_row() -> None:
    table = numbers(200_000)

    footer = pq.ParquetFile(pa.BufferReader(encode_data_file(with_offset_deltas(table)))).metadata

    groups = [footer.row_group(index).column(table.num_columns) for index in range(footer.num_row_groups)]
    assert [(group.path_in_schema, "DELTA_BINARY_PACKED" in group.encodings) for group in groups] == [
        ("_offset_delta", True)
    ] * 2
    assert sum(group.total_compressed_size for group in groups) < 0.01 * table.num_rows


def test_spark_can_prune_by_the_statistics_of_plain_columns() -> None:
    table = pa.table({"id": [3, 1], "text": ["b", "a"], "body": [b"x", b"y"]})

    group = pq.ParquetFile(pa.BufferReader(encode_data_file(table))).metadata.row_group(0)

    statistics = [group.column(index).statistics for index in range(2)]
    assert [found and (found.min, found.max) for found in statistics] == [(1, 3), ("a", "b")]
    assert not group.column(2).is_stats_set


def columns_with_bounds(body: bytes) -> list[set[str]]:
    """The columns with bounds in each row group of a file. No row group has them in another form."""
    footer = pq.ParquetFile(pa.BufferReader(body)).metadata
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    chunks = [[group.column(index) for index in range(group.num_columns)] for group in groups]
    assert not any(chunk.has_column_index for group in chunks for chunk in group)
    return [
        {chunk.path_in_schema for chunk in group if chunk.is_stats_set and chunk.statistics.has_min_max}
        for group in chunks
    ]


FLOATS = pa.schema(
    {
        "id": pa.int64(),
        "d": pa.float64(),
        "f": pa.float32(),
        "s": pa.struct([("x", pa.float64())]),
        "l": pa.list_(pa.float32()),
        "m": pa.map_(pa.string(), pa.float64()),
        "sound": pa.float64(),
    }
)


def floats(*values: float | None) -> pa.Table:
    """Rows that hold the values in every floating-point column except the last."""
    return pa.Table.from_pylist(
        [
            {"id": index, "d": value, "f": value, "s": {"x": value}, "l": [value], "m": [("k", value)], "sound": 0.5}
            for index, value in enumerate(values)
        ],
        FLOATS,
    )


@pytest.mark.parametrize(
    "values",
    [[1.5, math.nan], [math.nan, None], [math.nan], [math.inf, -math.inf, math.nan], [-math.nan, 1.5]],
    ids=str,
)
def test_a_float_column_with_nan_has_no_bounds(values: list[float | None]) -> None:
    (bounded,) = columns_with_bounds(encode_data_file(floats(*values)))

    assert bounded == {"id", "sound"}


@pytest.mark.parametrize("values", [[1.5, -2.0], [None, 1.5], [math.inf, -math.inf], [-0.0]], ids=str)
def test_a_float_column_without_nan_has_bounds(values: list[float | None]) -> None:
    (bounded,) = columns_with_bounds(encode_data_file(floats(*values)))

    assert bounded == {"id", "d", "f", "sound"}


def test_a_page_with_nan_has_no_bounds() -> None:
    number = struct.pack("<d", 1.5)

    bounded, unbounded = (encode_data_file(pa.table({"x": [1.5, other]})) for other in (2.5, math.nan))

    assert bounded.count(number) > 1
    assert unbounded.count(number) == 1  # The value alone: neither its page nor its row group repeats it.


def test_nan_in_a_later_row_group_leaves_the_file_without_bounds_of_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 2)
    parts = [floats(1.5, 2.5), floats(None, 3.5), floats(4.5, math.nan), floats(5.5, 6.5), floats(7.5)]
    builder = DataFileBuilder(FLOATS)
    for part in parts:
        builder.add(part)

    body = builder.finish()

    assert columns_with_bounds(body) == [{"id", "sound"}] * 5
    assert builder.rows == 9
    rows = pa.concat_tables(parts)
    # Values that are not numbers are not equal, so compare texts.
    assert repr(rows_of(body, FLOATS, 9).to_pylist()) == repr(rows.to_pylist())


def test_every_type_survives_that_nan_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 3)
    columns = {str(index): pa.array(values, data_type) for index, (data_type, values) in enumerate(EVERY_TYPE)}
    first, second = (pa.table(columns | {"late": pa.array([value] * 3)}) for value in (1.5, math.nan))
    builder = DataFileBuilder(first.schema)
    builder.add(first)
    builder.add(second)

    body = builder.finish()

    assert all("late" not in bounded for bounded in columns_with_bounds(body))
    found = rows_of(body, first.schema, 6).drop_columns("late")
    assert found.equals(pa.concat_tables([first, second]).drop_columns("late"))


@given(st.data())
def test_any_range_of_rows_is_read_back(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 40))
    first = data.draw(st.integers(0, count))
    wanted = data.draw(st.none() | st.integers(0, count - first))
    group_rows = data.draw(st.integers(1, 12))
    batch_rows = data.draw(st.integers(1, 12))
    table = numbers(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS", group_rows)
        body = encode_data_file(table)

    batches = list(DataFile(body, table.schema, count, name=NAME).batches(None, first, wanted, batch_rows=batch_rows))

    assert pa.Table.from_batches(batches, table.schema).equals(table.slice(first, wanted))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)


def test_only_the_columns_asked_for_are_given_in_the_order_asked_for() -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})

    found = rows_of(encode_data_file(table), table.schema, 1, columns=["c", "a"])

    assert found.to_pydict() == {"c": [3], "a": [1]}
    assert found.column_names == ["c", "a"]


def test_rows_can_be_counted_without_any_column() -> None:
    table = numbers(10)

    batches = list(DataFile(encode_data_file(table), table.schema, 10, name=NAME).batches([], 2, 7, batch_rows=4))

    assert [batch.num_rows for batch in batches] == [4, 3]
    assert [batch.num_columns for batch in batches] == [0, 0]


def test_a_column_that_the_file_lacks_is_null() -> None:
    schema = pa.schema([("new", pa.list_(pa.string())), ("id", pa.int64()), ("text", pa.string())])
    body = encode_data_file(numbers(2))

    assert rows_of(body, schema, 2)["new"].to_pylist() == [None, None]
    assert rows_of(body, schema, 2, columns=["new"]).to_pydict() == {"new": [None, None]}


def test_a_missing_column_that_may_not_be_null_is_corrupt() -> None:
    schema = pa.schema([pa.field("new", pa.string(), nullable=False)])

    with pytest.raises(CorruptRecord, match="column 'new' is missing"):
        DataFile(encode_data_file(numbers(2)), schema, 2, name=NAME).batches()


def test_a_null_that_the_schema_does_not_allow_is_corrupt() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])

    with pytest.raises(CorruptRecord, match="column 'x' holds a null"):
        rows_of(encode_data_file(pa.table({"x": [1, None]})), schema, 2)


def test_a_column_is_widened_to_the_schemas_type() -> None:
    body = encode_data_file(pa.table({"x": pa.array([1], pa.int32())}))

    assert rows_of(body, pa.schema([("x", pa.int64())]), 1).schema.field("x").type == pa.int64()


def test_a_column_that_cannot_be_cast_is_corrupt() -> None:
    body = encode_data_file(pa.table({"x": ["no number"]}))

    with pytest.raises(CorruptRecord, match=NAME):
        rows_of(body, pa.schema([("x", pa.int64())]), 1)


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_a_file_with_a_row_count_unlike_its_entrys_is_corrupt(rows: int) -> None:
    table = numbers(3)

    with pytest.raises(CorruptRecord, match=f"has 3 rows, but its entry says {rows}"):
        DataFile(encode_data_file(table), table.schema, rows, name=NAME).batches()


def test_a_row_group_beyond_any_that_is_written_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = numbers(30)
    body = encode_data_file(table)

    monkeypatch.setattr(data_file, "_MAX_ROW_GROUP_ROWS", 29)
    with pytest.raises(CorruptRecord, match="row group 0 claims 30 rows"):
        DataFile(body, table.schema, 30, name=NAME).batches()
    monkeypatch.undo()
    monkeypatch.setattr(data_file, "_MAX_ROW_GROUP_BYTES", 10)
    with pytest.raises(CorruptRecord, match=r"row group 0 claims \d+ bytes"):
        DataFile(body, table.schema, 30, name=NAME).batches()


def test_two_columns_of_one_name_are_corrupt() -> None:
    body = encode_data_file(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]))

    with pytest.raises(CorruptRecord, match="the file has column 'id' 2 times"):
        DataFile(body, pa.schema([("id", pa.int64())]), 1, name=NAME).batches()


def test_a_file_cut_off_anywhere_is_corrupt() -> None:
    table = numbers(3)
    body = encode_data_file(table)

    for length in range(len(body)):
        with pytest.raises(CorruptRecord, match=NAME):
            rows_of(body[:length], table.schema, 3)


def test_bytes_that_are_no_parquet_are_corrupt() -> None:
    for body in (b"", b"PAR1", b"not parquet at all", b"PAR1" + bytes(100) + b"PAR1"):
        with pytest.raises(CorruptRecord, match=NAME):
            rows_of(body, numbers(0).schema, 1)


@pytest.mark.parametrize(("first", "count"), [(-1, None), (4, None), (0, 4), (2, 2), (0, -1)])
def test_rows_beyond_the_file_are_a_mistake_of_the_caller(first: int, count: int | None) -> None:
    table = numbers(3)

    with pytest.raises(InvalidRequest, match="not within the file's 3"):
        DataFile(encode_data_file(table), table.schema, 3, name=NAME).batches(None, first, count)


def test_a_column_that_the_schema_lacks_is_a_mistake_of_the_caller() -> None:
    table = numbers(3)

    with pytest.raises(InvalidRequest, match=r"no column 'nope'\. Use one of: id, text"):
        DataFile(encode_data_file(table), table.schema, 3, name=NAME).batches(["nope"])


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_file_must_have_the_length_and_checksum_of_its_entry() -> None:
    body = b"some bytes"
    checksum = google_crc32c.value(body)

    check_file(body, 10, checksum, NAME)
    with pytest.raises(CorruptRecord, match=f"{NAME}: has 9 bytes, but its entry says 10"):
        check_file(body[:9], 10, checksum, NAME)
    with pytest.raises(CorruptRecord, match=f"{NAME}: checksum is 0x"):
        check_file(b"same bytes", 10, checksum, NAME)


def test_text_that_is_not_utf_8_is_named() -> None:
    table = pa.table({"carrier": not_utf_8()})
    body = encode_data_file(table)

    with pytest.raises(CorruptRecord, match=f"{NAME}: cannot be read as a data file: .*UTF8"):
        list(DataFile(body, table.schema, 1, name=NAME).batches())
