"""``console produce`` reads each row that ``console consume --json`` prints, and refuses any other value by name."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from eoslog.errors import SchemaMismatch
from eoslog.format.json_values import row_of_json, to_json


def read(value: Any, data_type: pa.DataType) -> Any:
    return row_of_json(json.dumps({"c": value}).encode(), pa.schema([("c", data_type)]))["c"]


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (pa.string(), "é\n"),
        (pa.bool_(), True),
        (pa.int8(), -128),
        (pa.int64(), 2**63 - 1),
        (pa.float64(), 0.1),
        (pa.float64(), float("inf")),
        (pa.float64(), float("-inf")),
        (pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0123456789")),
        (pa.binary(), b"text"),
        (pa.binary(), b"\xff\x00"),
        (pa.date32(), date(2024, 2, 29)),
        (pa.time64("ns"), time(23, 59, 59, 999_999)),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 12, 0, 0, 1, UTC)),
        (pa.timestamp("us"), datetime(2024, 1, 1, 12)),
        (pa.duration("us"), timedelta(days=-1, microseconds=1)),
        (pa.list_(pa.int32()), [1, None, 3]),
        (pa.struct([("x", pa.int32()), ("b", pa.binary())]), {"x": None, "b": b"\xff"}),
        (pa.map_(pa.string(), pa.list_(pa.date32())), [("k", [date(2024, 1, 1)]), ("l", None)]),
        (pa.string(), None),
    ],
    ids=str,
)
def test_a_value_survives_json(data_type: pa.DataType, value: Any) -> None:
    stored = pa.array([value], data_type).to_pylist()[0]

    assert read(to_json(stored), data_type) == stored


def test_nan_is_written_as_text() -> None:
    assert to_json(float("nan")) == "NaN"
    assert str(read("NaN", pa.float64())) == "nan"


def test_a_column_that_is_left_out_is_null() -> None:
    assert row_of_json(b"{}", pa.schema([("a", pa.int32())])) == {"a": None}


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (pa.string(), 1),
        (pa.string(), "\ud800"),
        (pa.bool_(), 1),
        (pa.int8(), 128),
        (pa.int32(), 1.0),
        (pa.int32(), "1"),
        (pa.int32(), True),
        (pa.float64(), "0.1"),
        (pa.float64(), True),
        (pa.decimal128(5, 2), "1234.5"),
        (pa.decimal128(5, 2), 1.005),
        (pa.decimal128(5, 2), "NaN"),
        (pa.decimal128(5, 2), "many"),
        (pa.binary(), {"base64": "?"}),
        (pa.binary(), 7),
        (pa.date32(), "2024-02-30"),
        (pa.date32(), 19_000),
        (pa.time64("ns"), "25:00"),
        (pa.timestamp("us", "UTC"), "2024-01-01T00:00:00"),
        (pa.timestamp("us"), "2024-01-01T00:00:00Z"),
        (pa.duration("us"), "1s"),
        (pa.duration("us"), 2**80),
        (pa.list_(pa.int32()), {"a": 1}),
        (pa.list_(pa.int32()), [1, "2"]),
        (pa.struct([("x", pa.int32())]), {"y": 1}),
        (pa.struct([("x", pa.int32())]), {"x": "1"}),
        (pa.map_(pa.string(), pa.int32()), {"k": 1}),
        (pa.map_(pa.string(), pa.int32()), [["k"]]),
        (pa.null(), 1),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_by_the_column_s_name(data_type: pa.DataType, value: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'c"):
        read(value, data_type)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "not a JSON object"),
        (b"[1]", r"not a JSON object but \[1\]"),
        (b'{"c": NaN}', "NaN is not JSON"),
        (b'{"c": 1', "not a JSON object"),
        (b"\xff", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"d": 1}', "column 'd' is not in the topic. Its columns are c"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_line_that_is_no_row_is_refused(line: bytes, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        row_of_json(line, pa.schema([("c", pa.int32())]))
