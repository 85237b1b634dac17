"""Statistics of a data file's columns: they bound every value, and impossible ones are ignored."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.format.data_file import encode_data_file
from eoslog.format.statistics import (
    ALL_NULL,
    LONGEST_BOUND,
    ColumnBounds,
    decode_statistics,
    encode_statistics,
    has_statistics,
    order,
)
from eoslog.state.entry_fields import LONGEST_STATISTICS

D = decimal.Decimal
UTC = datetime.UTC
HIGHEST = chr(0x10FFFF)


def statistics_of(table: pa.Table, columns: int = 32) -> str | None:
    return encode_statistics(encode_data_file(table), table, columns)


def column(data_type: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"x": pa.array(values, data_type)})


def bounds_of(data_type: pa.DataType, values: list[Any]) -> ColumnBounds | None:
    return decode_statistics(statistics_of(column(data_type, values)), {"x": data_type}).get("x")


@pytest.mark.parametrize(
    ("data_type", "values", "written"),
    [
        (pa.bool_(), [True, None, False], [1, False, True]),
        (pa.int8(), [-128, 127], [0, -128, 127]),
        (pa.int64(), [2**63 - 1, None, -(2**63)], [1, -(2**63), 2**63 - 1]),
        (pa.float32(), [1.5, None, -0.25], [1, -0.25, 1.5]),
        (pa.float64(), [-math.inf, math.inf], [0, "-Infinity", "Infinity"]),
        (pa.float64(), [1.0, math.nan, None], [1, 1.0, "NaN"]),
        (pa.float64(), [math.nan, None], [1, "NaN", "NaN"]),
        (pa.float64(), [-0.0], [0, 0.0, 0.0]),
        (pa.decimal128(5, 2), [D("-0.50"), D("12.25")], [0, "-0.50", "12.25"]),
        (pa.decimal128(38, 0), [D(10**37), D(-(10**37))], [0, str(-(10**37)), str(10**37)]),
        (pa.date32(), [datetime.date(1970, 1, 2), datetime.date(1969, 12, 31)], [0, -1, 1]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], [0, 1_000_000, 1_000_000]),
        (pa.timestamp("us"), [datetime.datetime(1970, 1, 1, 0, 0, 0, 7)], [0, 7, 7]),
        (pa.time64("ns"), [datetime.time(0, 0, 1)], [0, 10**9, 10**9]),
        (pa.string(), ["b", "", None, "ä"], [1, "", "ä"]),
        (pa.string(), [None, None], [2]),
    ],
    ids=str,
)
def test_a_column_is_told_by_its_nulls_and_its_bounds(
    data_type: pa.DataType, values: list[Any], written: list[Any]
) -> None:
    text = statistics_of(column(data_type, values))

    assert json.loads(str(text)) == {"x": written}


def test_the_text_has_the_columns_in_their_order_and_no_spaces() -> None:
    table = pa.table({"miles": pa.array([719, 1576]), "carrier": ["UA", "B6"]})

    assert statistics_of(table) == '{"miles":[0,719,1576],"carrier":[0,"B6","UA"]}'


@pytest.mark.parametrize(
    ("value", "least", "greatest"),
    [
        ("x" * LONGEST_BOUND, "x" * LONGEST_BOUND, "x" * LONGEST_BOUND),
        ("x" * 33, "x" * 32, "x" * 31 + "y"),
        ("x" * 31 + HIGHEST + "x", "x" * 31 + HIGHEST, "x" * 30 + "y"),
        ("x" * 31 + chr(0xD7FF) + "x", "x" * 31 + chr(0xD7FF), "x" * 31 + chr(0xE000)),
        (HIGHEST * 33, HIGHEST * 32, None),
    ],
    ids=["fits", "cut", "highest character", "before the surrogates", "nothing above"],
)
def test_a_long_text_is_bounded_by_what_is_cut_of_it(value: str, least: str, greatest: str | None) -> None:
    assert bounds_of(pa.string(), [value]) == ColumnBounds(False, True, least, greatest)


def test_a_text_too_long_for_parquet_has_only_a_null_count() -> None:
    assert bounds_of(pa.string(), ["x" * 10_000, None]) == ColumnBounds(True, True, None, None)


def test_text_that_is_not_unicode_has_no_bounds() -> None:
    wrong = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )

    text = statistics_of(pa.table({"x": wrong}))

    assert text == '{"x":[0,null,null]}'


def test_bounds_hold_for_all_row_groups_of_a_file() -> None:
    rows = 300_000
    table = pa.table({"x": pa.array([*range(rows - 1, 0, -1), None], pa.int64())})

    assert decode_statistics(statistics_of(table), {"x": pa.int64()})["x"] == ColumnBounds(True, True, 1, rows - 1)


def test_only_the_first_columns_that_can_be_compared_have_statistics() -> None:
    table = pa.table(
        {
            "bytes": pa.array([b"x"], pa.binary()),
            "list": pa.array([[1]]),
            "struct": pa.array([{"a": 1}]),
            "duration": pa.array([1], pa.duration("us")),
            "nothing": pa.nulls(1),
            "first": [1],
            "second": [2],
            "third": [3],
        }
    )

    assert statistics_of(table, 2) == '{"first":[0,1,1],"second":[0,2,2]}'
    assert statistics_of(table, 0) is None
    assert statistics_of(table.select(["bytes"])) is None


def test_a_dotted_name_is_not_taken_for_another_columns_field() -> None:
    table = pa.table({"a.b": [1], "a": pa.array([{"b": 7}])})

    assert statistics_of(table) is None


def test_columns_that_make_the_text_too_long_are_left_out() -> None:
    table = pa.table({f"{index:0200d}": [index] for index in range(100)} | {"last": [1]})

    text = str(statistics_of(table, 200))

    assert len(text) <= LONGEST_STATISTICS
    assert len(json.loads(text)) > 30


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "1",
        "[" * 8000,
        '{"x":1}',
        '{"x":[]}',
        '{"x":[0]}',
        '{"x":[1,2]}',
        '{"x":[-1,1,2]}',
        '{"x":[true,1,2]}',
        '{"x":["0",1,2]}',
        '{"x":[0,2,1]}',
        '{"x":[0,1.0,2.0]}',
        '{"x":[0,"1","2"]}',
        '{"x":[0,true,true]}',
        '{"x":[0,1,9223372036854775808]}',
        '{"x":[0,1,' + "9" * 5000 + "]}",
        '{"x":[0,NaN,NaN]}',
        '{"x":[0,{},{}]}',
        '{"y":[0,1,2]}',
        '{"x":[0,1,2]' + " " * LONGEST_STATISTICS + "}",
    ],
    ids=lambda text: text[:24] or "empty",
)
def test_impossible_statistics_are_ignored(text: str) -> None:
    assert decode_statistics(text, {"x": pa.int64()}) == {}


@pytest.mark.parametrize(
    ("data_type", "bounds"),
    [
        (pa.float64(), '[0,"nan",1.0]'),
        (pa.float64(), '["NaN","NaN",1.0]'),
        (pa.float64(), '[0,"NaN",1.0]'),
        (pa.float64(), "[0,1e999,1e999]"),
        (pa.float64(), "[0,1,2]"),
        (pa.decimal128(5, 2), '[0,"1.255","2"]'),
        (pa.decimal128(5, 2), '[0,"1000","2000"]'),
        (pa.decimal128(5, 2), '[0,"1e2","1e3"]'),
        (pa.decimal128(5, 2), "[0,1.25,2.25]"),
        (pa.string(), f'[0,"a","{"x" * 33}"]'),
        (pa.string(), "[0,1,2]"),
        (pa.bool_(), "[0,0,1]"),
        (pa.date32(), "[0,0,2147483648]"),
        (pa.binary(), '[0,"a","b"]'),
    ],
    ids=str,
)
def test_bounds_that_are_not_of_the_columns_type_are_not_believed(data_type: pa.DataType, bounds: str) -> None:
    assert decode_statistics(
        f'{{"x":{bounds},"y":[3]}}', {"x": data_type, "y": data_type if has_statistics(data_type) else pa.int64()}
    ) == {"y": ALL_NULL}


def test_bounds_are_those_of_the_column_by_its_type_now() -> None:
    text = statistics_of(column(pa.decimal128(5, 2), [D("1.25"), D("9")]))

    assert decode_statistics(text, {"x": pa.decimal128(10, 4)})["x"] == ColumnBounds(False, True, 12_500, 90_000)


VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.nan])),
    (pa.string(), st.text() | st.text("a\U0010ffff\ud7ff", min_size=30, max_size=40)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("us", "UTC"), st.integers(-(2**63), 2**63 - 1)),
    (pa.timestamp("us"), st.integers(-(2**63), 2**63 - 1)),
    (pa.time64("ns"), st.integers(0, 24 * 3600 * 10**9 - 1)),
    (pa.decimal128(38, 5), st.integers(-(10**38) + 1, 10**38 - 1)),
    (pa.decimal128(4, 0), st.integers(-9999, 9999)),
]
"""Types with their values as bounds tell them."""


def array_of(data_type: pa.DataType, values: list[Any]) -> pa.Array[Any]:
    if isinstance(data_type, pa.Decimal128Type):
        values = [None if value is None else D(f"{value}E-{data_type.scale}") for value in values]
    return pa.array(values, data_type)


@given(st.data())
def test_every_value_lies_within_the_bounds(data: st.DataObject) -> None:
    data_type, of_type = data.draw(st.sampled_from(VALUES))
    values = data.draw(st.lists(st.none() | of_type, min_size=1, max_size=20))
    table = pa.table({"x": array_of(data_type, values)})

    found = decode_statistics(statistics_of(table), {"x": data_type})["x"]

    given_values = [value for value in values if value is not None]
    assert found.has_nulls == (len(given_values) < len(values))
    assert found.has_values == bool(given_values)
    for value in given_values:
        assert found.least is not None
        assert order(found.least) <= order(value)
        assert found.greatest is None or order(value) <= order(found.greatest)
