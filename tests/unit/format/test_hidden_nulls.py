"""Nulls below nulls: whoever writes rows may mark them, and they are stored all the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog.errors import SchemaMismatch
from eoslog.format.data_file import DataFile, encode_data_file
from eoslog.format.topic_schemas import conform

REQUIRED = pa.struct(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("list", pa.list_(pa.field("element", pa.int64())), nullable=False),
        pa.field("flag", pa.bool_(), nullable=False),
    ]
)
PARTS = [
    pa.array(["a", None, "c"]),
    pa.array([[1], None, [2, None]], pa.list_(pa.int64())),
    pa.array([True, None, False]),
]


def marked(validity: int) -> pa.StructArray:
    """Three structs, valid where a bit is set; the parts of the second are null."""
    parts = [
        part.cast(pa.list_(pa.field("element", pa.int64()))) if index == 1 else part for index, part in enumerate(PARTS)
    ]
    return pa.Array.from_buffers(REQUIRED, 3, [pa.py_buffer(bytes([validity]))], children=parts)


def stored(column: pa.Array, data_type: pa.DataType) -> list[object]:
    schema = pa.schema([pa.field("column", data_type)])
    table = conform(pa.table({"column": column}), schema)
    batches = DataFile(encode_data_file(table), schema, table.num_rows, name="file").batches()
    return [row["column"] for batch in batches for row in batch.to_pylist()]


ROWS = [{"text": "a", "list": [1], "flag": True}, None, {"text": "c", "list": [2, None], "flag": False}]


def test_parts_of_a_null_struct_may_be_null() -> None:
    assert stored(marked(0b101), REQUIRED) == ROWS


def test_a_slice_is_stored_as_what_it_shows() -> None:
    assert stored(marked(0b101).slice(1), REQUIRED) == ROWS[1:]


def test_null_structs_lie_in_lists_and_maps_too() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3]), marked(0b101))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3]), pa.array(["x", "y", "z"]), marked(0b101))

    assert stored(lists, pa.list_(pa.field("element", REQUIRED))) == [ROWS[:1], ROWS[1:]]
    assert stored(maps, pa.map_(pa.string(), REQUIRED)) == [[("x", ROWS[0])], [("y", ROWS[1]), ("z", ROWS[2])]]


def test_parts_of_a_struct_that_is_there_may_not_be_null() -> None:
    with pytest.raises(SchemaMismatch, match="text holds a null"):
        stored(marked(0b111), REQUIRED)
