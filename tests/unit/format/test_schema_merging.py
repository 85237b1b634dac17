"""Merging schemas: what rows bring joins their topic, what the topic has stays, and old files hold nulls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import SchemaMismatch, UnsupportedSchema
from eoslog.format.data_file import DataFile, encode_data_file
from eoslog.format.topic_schemas import (
    added_columns,
    conform,
    encode_schema,
    merged_schema,
    normalize_schema,
    without_columns,
)
from tests.unit.format.test_schema_json import field_of, types

POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
TOPIC = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("point", POINT),
        pa.field("points", pa.list_(pa.field("element", POINT))),
        pa.field("by_name", pa.map_(pa.string(), POINT)),
    ]
)
WIDER = pa.struct([("x", pa.int32()), ("z", pa.int64()), ("y", pa.string())])
Z = pa.field("z", pa.int64())
MERGED_POINT: Any = pa.struct([*POINT, Z])
ROWS = [
    {
        "id": 1,
        "point": {"x": 1, "y": "a"},
        "points": [{"x": 2, "y": None}, None],
        "by_name": [("k", {"x": 3, "y": "b"}), ("n", None)],
    },
    {"id": 2, "point": None, "points": None, "by_name": None},
    {"id": 3, "point": {"x": 4, "y": None}, "points": [], "by_name": []},
]


def with_nulls(value: Any) -> Any:
    """A point with the field that it did not have."""
    return None if value is None else {**value, "z": None}


def read(body: bytes, schema: pa.Schema, rows: int) -> list[dict[str, Any]]:
    batches = DataFile(body, schema, rows, name="f.parquet").batches()
    return pa.Table.from_batches(batches, schema=schema).to_pylist()


def test_new_columns_come_last_and_may_be_null() -> None:
    rows = pa.schema([pa.field("new", pa.large_string(), nullable=False), pa.field("id", pa.int32())])

    assert merged_schema(TOPIC, rows).equals(TOPIC.append(pa.field("new", pa.string())))


@pytest.mark.parametrize(
    ("name", "rows", "merged"),
    [
        ("point", WIDER, MERGED_POINT),
        ("points", pa.large_list(WIDER), pa.list_(pa.field("element", MERGED_POINT))),
        ("by_name", pa.map_(pa.string(), WIDER), pa.map_(pa.string(), MERGED_POINT)),
    ],
)
def test_new_fields_of_a_struct_come_last_in_it(name: str, rows: pa.DataType, merged: pa.DataType) -> None:
    schema = merged_schema(TOPIC, pa.schema([pa.field(name, rows)]))

    assert schema.field(name).type == merged
    assert schema.names == TOPIC.names


def test_a_file_from_before_is_read_with_nulls() -> None:
    rows = pa.schema(
        [
            pa.field("point", WIDER),
            pa.field("points", pa.list_(WIDER)),
            pa.field("by_name", pa.map_(pa.string(), WIDER)),
            pa.field("tags", pa.list_(pa.field("element", pa.int8(), nullable=False))),
        ]
    )
    body = encode_data_file(pa.Table.from_pylist(ROWS, schema=TOPIC))

    found = read(body, merged_schema(TOPIC, rows), len(ROWS))

    assert found == [
        {
            "id": row["id"],
            "point": with_nulls(row["point"]),
            "points": row["points"] and [with_nulls(each) for each in row["points"]],
            "by_name": row["by_name"] and [(key, with_nulls(each)) for key, each in row["by_name"]],
            "tags": None,
        }
        for row in ROWS
    ]


def test_rows_without_what_was_added_fit_the_topic() -> None:
    merged = merged_schema(TOPIC, pa.schema([pa.field("point", WIDER), pa.field("new", pa.int8())]))

    rows = conform(pa.Table.from_pylist(ROWS, schema=TOPIC), merged)

    assert rows.schema.equals(merged)
    assert [row["point"] for row in rows.to_pylist()] == [with_nulls(row["point"]) for row in ROWS]
    assert read(encode_data_file(rows), merged, len(ROWS)) == rows.to_pylist()


VARIANT = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)])


@pytest.mark.parametrize(
    "rows",
    [
        pa.field("new", VARIANT),
        pa.field("new", pa.list_(pa.field("element", VARIANT, nullable=False))),
        pa.field("point", pa.struct([pa.field("z", VARIANT)])),
        pa.field("points", pa.list_(pa.struct([pa.field("z", VARIANT)]))),
        pa.field("by_name", pa.map_(pa.string(), pa.struct([pa.field("z", VARIANT)]))),
    ],
    ids=str,
)
def test_a_new_column_may_be_null_also_if_its_parts_may_not(rows: Any) -> None:
    table = pa.Table.from_pylist(ROWS, schema=TOPIC)
    merged = merged_schema(TOPIC, pa.schema([rows]))
    expected = conform(table, merged).to_pylist()

    of_writer = encode_data_file(conform(table, merged))
    batches = list(DataFile(encode_data_file(table), merged, len(ROWS), name="f.parquet").batches())
    rewritten = encode_data_file(pa.Table.from_batches(batches, schema=merged))

    assert read(of_writer, merged, len(ROWS)) == read(rewritten, merged, len(ROWS)) == expected


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("id", pa.string()),
        ("id", pa.float64()),
        ("point", pa.string()),
        ("point", pa.struct([("x", pa.int64())])),
        ("points", POINT),
        ("by_name", pa.map_(pa.int32(), POINT)),
    ],
)
def test_a_type_never_changes(name: str, rows: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=f"column '{name}.*never changes"):
        merged_schema(TOPIC, pa.schema([pa.field(name, rows)]))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (pa.field("ID", pa.int64()), "differ only in case"),
        (pa.field("point", pa.struct([("X", pa.int32())])), "differ only in case"),
        (pa.field("_Offset", pa.int64()), "reserved"),
        (pa.field("new", pa.null()), "nothing but nulls"),
        (pa.field("new", pa.list_(pa.null())), "nothing but nulls"),
        (pa.field("point", pa.struct([("z", pa.null())])), "'point.z' is new.*nothing but nulls"),
        (pa.field("new", pa.struct([])), "struct without fields"),
    ],
)
def test_a_column_that_cannot_be_stored_does_not_join(rows: Any, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        merged_schema(TOPIC, pa.schema([rows]))


@given(st.lists(st.tuples(types(), st.booleans()), min_size=1, max_size=4), st.integers(0, 4))
def test_the_log_allows_the_columns_of_every_merged_schema(columns: list[tuple[pa.DataType, bool]], there: int) -> None:
    schema = pa.schema([field_of(f"c.{index}", kind, null) for index, (kind, null) in enumerate(columns)])
    current = normalize_schema(pa.schema([pa.field("first", pa.int8()), *list(schema)[:there]]))
    try:
        merged = merged_schema(current, schema)
    except UnsupportedSchema:
        return

    added = added_columns(encode_schema(current), encode_schema(merged, encode_schema(current)))

    assert added == tuple((field.name,) for field in list(schema)[there:])
    assert without_columns(merged, added).equals(current)
    assert merged_schema(merged, schema).equals(merged)
