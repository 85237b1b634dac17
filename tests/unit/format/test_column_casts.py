"""Rows of every Arrow type and layout are stored as they are, or refused with the column and the remedy."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import SchemaMismatch
from eoslog.format import column_casts
from eoslog.format.column_casts import LossyCast, cast_losslessly
from eoslog.format.column_types import kind_of, parts, with_parts
from eoslog.format.data_file import DataFile, encode_data_file
from eoslog.format.partitioner import split_by_partition
from eoslog.format.topic_schemas import conform, normalize_schema
from tests.unit.format.arrow_arrays import array_of, types, values_of
from tests.unit.format.unsafe_arrays import not_utf_8


def columns(draw: Any) -> tuple[pa.DataType, list[Any], pa.ChunkedArray[Any]]:
    """Return a type, values, and a column of them in two chunks."""
    data_type = draw(types())
    values = draw(st.lists(values_of(data_type), max_size=6))
    cut = draw(st.integers(0, len(values)))
    chunks = [array_of(data_type, part, draw) for part in (values[:cut], values[cut:])]
    column = pa.chunked_array(chunks, type=data_type)
    column.validate(full=True)
    return data_type, values, column


def wider(data_type: Any) -> Any:
    """Return a stored type to which another one widens: in its numbers, and in a field more of its structs."""
    fields = [field.with_type(wider(field.type)) for _, field in parts(data_type)]
    if kind_of(data_type) == "struct":
        return pa.struct([pa.field("before", pa.string()), *reversed(fields), pa.field("after", pa.list_(pa.int8()))])
    if fields:
        return with_parts(data_type, fields)
    if pa.types.is_decimal(data_type):
        return pa.decimal128(38, data_type.scale + (38 - data_type.precision) // 2)
    return {"integer": pa.int64(), "float": pa.float64()}.get(str(kind_of(data_type)), data_type)


@given(st.data())
def test_rows_of_every_type_and_layout_are_stored_as_they_are(data: st.DataObject) -> None:
    data_type, values, column = columns(data.draw)
    topic = normalize_schema(pa.schema([("x", data_type)]))

    conformed = conform(pa.table({"x": column}), topic)

    conformed.validate(full=True)
    expected = pa.array(values, topic.field("x").type).to_pylist()
    assert conformed["x"].to_pylist() == expected
    rows = DataFile(encode_data_file(conformed), topic, len(values), name="x.parquet").batches()
    assert [row["x"] for batch in rows for row in batch.to_pylist()] == expected


@given(st.data())
def test_rows_of_every_type_and_layout_widen_in_each_part(data: st.DataObject) -> None:
    data_type, values, column = columns(data.draw)
    wide = wider(normalize_schema(pa.schema([("x", data_type)])).field("x").type)

    conformed = conform(pa.table({"x": column}), pa.schema([("x", wide)]))

    conformed.validate(full=True)
    assert conformed["x"].to_pylist() == pa.array(values, wide).to_pylist()


def stored(column: Any, data_type: pa.DataType) -> list[Any]:
    return conform(pa.table({"x": column}), pa.schema([("x", data_type)]))["x"].to_pylist()


def with_part(data_type: pa.DataType, part: pa.DataType) -> pa.DataType:
    """Return a list of structs of a part, whose other part needs a cast."""
    wanted: pa.DataType = pa.list_(pa.struct([("a", part), ("b", data_type)]))
    return wanted


@pytest.mark.parametrize("part", [pa.null(), pa.list_(pa.null()), pa.struct([("c", pa.null())])], ids=str)
def test_parts_without_any_value_take_every_type(part: pa.DataType) -> None:
    rows = [[{"a": None, "b": "y"}], [], [{"a": None, "b": "z"}, {"a": None, "b": None}]]
    column = pa.array(rows, with_part(pa.large_string(), part)).slice(1)

    assert stored(column, with_part(pa.string(), part)) == rows[1:]


def test_a_value_below_a_null_is_not_looked_at() -> None:
    times = pa.array([1000, 1], pa.timestamp("ns"))
    wanted = pa.struct([("a", pa.timestamp("us"))])
    column = pa.StructArray.from_arrays([times], names=["a"], mask=pa.array([False, True]))

    assert stored(column, wanted) == [{"a": datetime.datetime(1970, 1, 1, 0, 0, 0, 1)}, None]
    with pytest.raises(SchemaMismatch, match=r"column 'x': expected struct<.*, found struct<.*would lose data"):
        stored(pa.StructArray.from_arrays([times], names=["a"]), wanted)


def test_nulls_of_decoded_parts_are_refused_where_the_topic_allows_none() -> None:
    required = pa.list_(pa.field("element", pa.string(), nullable=False))
    views = pa.array([["a"], ["a", None]], pa.list_view(pa.string()))

    assert stored(views.slice(0, 1), required) == [["a"]]
    with pytest.raises(SchemaMismatch, match=r"column 'x'.*element holds a null, but the topic allows none"):
        stored(views, required)


@pytest.mark.parametrize("size", [3, -1], ids=["beyond the values", "negative"])
def test_lists_that_contradict_their_array_are_refused_with_the_cause(size: int) -> None:
    numbers = [pa.py_buffer(bytes(pa.array([each], pa.int32()).buffers()[1])) for each in (0, size)]
    column = pa.Array.from_buffers(pa.list_view(pa.int64()), 1, [None, *numbers], children=[pa.array([1, 2])])

    with pytest.raises(SchemaMismatch, match=r"column 'x'.*: a list lies beyond the values of its array"):
        stored(column, pa.list_(pa.int64()))


def test_text_whose_offsets_are_wrong_is_not_called_wrong_text() -> None:
    offsets = pa.py_buffer(bytes(pa.array([0, 2, 1], pa.int32()).buffers()[1]))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])

    with pytest.raises(SchemaMismatch, match=r"column 'x' contradicts its own type: .*ffset"):
        stored(column, pa.string())


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_text_that_is_not_utf_8_has_one_message_for_all_types(kind: Any) -> None:
    wrong = not_utf_8()
    if isinstance(kind, pa.DictionaryType):
        column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), wrong)
    else:
        column = wrong.cast(pa.binary()).cast(pa.large_binary() if kind == pa.large_string() else pa.binary_view())
        column = column.view(kind) if kind == pa.large_string() else pa.Array.from_buffers(kind, 1, column.buffers())

    with pytest.raises(SchemaMismatch, match=r"column 'x' holds text that is not UTF-8: .*make_valid_utf8"):
        stored(column, pa.string())


def test_rows_that_are_too_large_together_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_casts, "_MOST_BYTES", 100)
    monkeypatch.setattr(column_casts, "_MOST_TAKEN", 10)
    text = [None if number % 7 == 0 else "x" * (number % 90) for number in range(50)]
    lists = [list(range(number % 9)) for number in range(50)]
    shuffled = [number * 7 % 50 for number in range(50)]
    sizes = [len(lists[number]) for number in shuffled]
    starts = [sum(len(each) for each in lists[:number]) for number in shuffled]
    elements = pa.array([element for each in lists for element in each])
    views = pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), pa.array(sizes, pa.int32()), elements)

    cast = cast_losslessly(pa.chunked_array([pa.array(text, pa.string_view())]), pa.string())
    assert cast.num_chunks > 10
    assert cast.to_pylist() == text
    cast_lists = cast_losslessly(pa.chunked_array([views]), pa.list_(pa.int64()))
    assert cast_lists.num_chunks > 10
    assert cast_lists.to_pylist() == [lists[number] for number in shuffled]
    with pytest.raises(LossyCast, match="the values have 101 bytes, more than the 100 of one array"):
        cast_losslessly(pa.chunked_array([pa.array(["a", "x" * 101, "b"], pa.string_view())]), pa.string())


MEGABYTE = "x" * 1_000_000


def large_views(rows: int) -> Any:
    buffers = pa.array([MEGABYTE], pa.string_view()).buffers()
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(bytes(buffers[1]) * rows), *buffers[2:]])


LARGE: dict[str, Callable[[int], Any]] = {
    "large_string": lambda rows: pa.repeat(pa.scalar(MEGABYTE, pa.large_string()), rows),
    "string_view": large_views,
    "dictionary": lambda rows: pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [MEGABYTE]),
    "runs": lambda rows: pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), [MEGABYTE]),
    "list_view": lambda rows: pa.ListViewArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), rows), pa.repeat(pa.scalar(1, pa.int32()), rows), pa.array([MEGABYTE])
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_more_than_2_gib_in_one_chunk_is_split(kind: str) -> None:
    rows = 2200
    column = LARGE[kind](rows)
    expected: Any = pa.list_(pa.string()) if kind == "list_view" else pa.string()

    conformed = conform(pa.table({"x": column}), pa.schema([("x", expected)]))

    assert (conformed.num_rows, conformed["x"].num_chunks) == (rows, 2)
    assert conformed.nbytes > 2_200_000_000
    conformed.validate(full=True)
    assert [part for part, _ in split_by_partition(conformed, np.arange(rows, dtype=np.int32) % 2, 2)] == [0, 1]
