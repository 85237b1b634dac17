"""Tables and schemas of pandas, Polars and Arrow are taken wherever a table or a schema is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eoslog

ROWS = pa.table({"a": ["x", "y"], "n": [1, 2]})
TABLES: dict[str, Callable[[], Any]] = {
    "arrow table": lambda: ROWS,
    "arrow batch": lambda: ROWS.to_batches()[0],
    "arrow reader": lambda: ROWS.to_reader(),
    "arrow chunks": lambda: pa.concat_tables([ROWS[:1], ROWS[1:]]),
    "pandas": lambda: ROWS.to_pandas(),
    "pandas index without a name": lambda: ROWS.to_pandas().iloc[::-1].sort_values("n"),
    "pandas filtered": lambda: pd.DataFrame({"a": ["x", "-", "y"], "n": [1, 0, 2]}).query("n > 0"),
    "pandas with two unnamed levels": lambda: ROWS.to_pandas().set_index([pd.Index([7, 8]), pd.Index([9, 9])]),
    "pandas index with a name": lambda: ROWS.to_pandas().set_index("a"),
    "pandas with types of Arrow": lambda: ROWS.to_pandas().convert_dtypes(dtype_backend="pyarrow"),
    "pandas with categories": lambda: ROWS.to_pandas().astype({"a": "category"}),
    "arrow of pandas": lambda: pa.Table.from_pandas(ROWS.to_pandas().iloc[::-1].sort_values("n")),
    "polars": lambda: pl.DataFrame(pl.from_arrow(ROWS)),
    "polars with categories": lambda: pl.DataFrame(pl.from_arrow(ROWS)).with_columns(pl.col("a").cast(pl.Categorical)),
}
NEITHER: list[Any] = [[{"a": "x"}], "abc", 7, pd.Series(["x"]), pl.LazyFrame({"a": ["x"]})]


@pytest.fixture
def store() -> eoslog.Store:
    return eoslog.connect("memory://")


def schema_of_topic(store: eoslog.Store) -> pa.Schema:
    return store.scan("t").schema


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_each_kind_is_sent(store: eoslog.Store, kind: str) -> None:
    store.admin.create_topic("t", schema=ROWS.schema)

    with store.producer() as producer:
        producer.send_table("t", TABLES[kind]())

    assert store.scan("t").to_table().select(["a", "n"]).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_each_kind_gives_its_schema_and_its_rows_fit(store: eoslog.Store, kind: str) -> None:
    store.admin.create_topic("t", schema=TABLES[kind]())

    with store.producer() as producer:
        producer.send_table("t", TABLES[kind]())

    found = store.scan("t").to_table()
    assert sorted(schema_of_topic(store).names) == ["a", "n"]
    assert found.select(["a", "n"]).cast(ROWS.schema).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("schema", [pl.Schema({"b": pl.Int64}), pl.DataFrame({"b": [1]}), pd.DataFrame({"b": [1]})])
def test_columns_are_added_as_a_frame_has_them(store: eoslog.Store, schema: Any) -> None:
    store.admin.create_topic("t", schema=pl.Schema({"a": pl.String}))

    store.admin.add_columns("t", schema)

    assert [(field.name, str(field.type)) for field in schema_of_topic(store)][1:] == [("b", "int64")]


def test_a_column_that_is_called_like_an_index_is_data(store: eoslog.Store) -> None:
    table = pa.table({"__index_level_0__": [1]})
    store.admin.create_topic("t", schema=table.schema)

    with store.producer() as producer:
        producer.send_table("t", table)

    assert store.scan("t").to_table().to_pylist() == [{"__index_level_0__": 1}]


@pytest.mark.parametrize("given", NEITHER, ids=lambda each: type(each).__name__)
def test_an_object_that_is_no_table_is_refused_with_a_remedy(store: eoslog.Store, given: Any) -> None:
    store.admin.create_topic("t", schema=ROWS.schema)

    name = type(given).__name__
    with pytest.raises(
        eoslog.SchemaMismatch, match=rf"topic t: send_table\(\) takes.*not {name}\. Collect.*from_pylist"
    ):
        store.producer().send_table("t", given)
    with pytest.raises(eoslog.InvalidRequest, match=f"topic u: the schema cannot be a {name}.*Give a pyarrow"):
        store.admin.create_topic("u", schema=given)
    with pytest.raises(eoslog.InvalidRequest, match=f"topic t: the schema cannot be a {name}.*Give a pyarrow"):
        store.admin.add_columns("t", given)


@pytest.mark.parametrize("given", [pl.Series("a", ["x"]), pd.DataFrame({"a": ["x", 1]})])
def test_a_stream_that_has_no_rows_of_arrow_is_refused(store: eoslog.Store, given: Any) -> None:
    store.admin.create_topic("t", schema=ROWS.schema)

    with pytest.raises(eoslog.SchemaMismatch, match=r"cannot be read as rows of Arrow: .*one type each"):
        store.producer().send_table("t", given)


IDS = [UUID(int=7), UUID(int=2**127)]
CATEGORIES = pl.Series([["a", "b"], [], None], dtype=pl.List(pl.Categorical))
CODED: dict[str, tuple[Any, Any, list[Any]]] = {
    "uuids of pandas": (pa.binary(), lambda: pd.DataFrame({"x": IDS}), [each.bytes for each in IDS]),
    "periods of pandas": (pa.int64(), lambda: pd.DataFrame({"x": pd.period_range("1970", periods=2)}), [0, 1]),
    "categories of pandas": (pa.int64(), lambda: pd.DataFrame({"x": pd.Categorical([5, None, 5])}), [5, None, 5]),
    "no categories of pandas": (pa.string(), lambda: pd.DataFrame({"x": pd.Categorical([None])}), [None]),
    "lists of Polars' categories": (
        pa.list_(pa.string()),
        lambda: pl.DataFrame({"x": CATEGORIES}),
        [["a", "b"], [], None],
    ),
    "structs of Polars' enums": (
        pa.struct([("a", pa.string())]),
        lambda: pl.DataFrame({"x": [{"a": "b"}]}, schema={"x": pl.Struct({"a": pl.Enum(["a", "b"])})}),
        [{"a": "b"}],
    ),
    "arrays of Polars' categories": (
        pa.list_(pa.string()),
        lambda: pl.DataFrame({"x": [["a", "b"]]}, schema={"x": pl.Array(pl.Categorical, 2)}),
        [["a", "b"]],
    ),
    "enums of DuckDB": (pa.list_(pa.string()), lambda: duckdb.sql("select ['x'::enum('x', 'y')] as x"), [["x"]]),
    "json of Arrow": (pa.string(), lambda: pa.table({"x": pa.array(["{}"], pa.json_())}), ["{}"]),
    "runs of Arrow": (
        pa.int64(),
        lambda: pa.table({"x": pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8])}),
        [7, 7, 8],
    ),
}


@pytest.mark.parametrize("kind", CODED)
def test_coded_columns_are_stored_as_their_values(store: eoslog.Store, kind: str) -> None:
    data_type, rows, expected = CODED[kind]
    store.admin.create_topic("declared", schema={"x": data_type})
    store.admin.create_topic("created", schema=rows())

    with store.producer() as producer:
        producer.send_table("declared", rows())
        producer.send_table("created", rows())

    assert store.scan("declared").to_table()["x"].to_pylist() == expected
    assert store.scan("created").to_table()["x"].to_pylist() == expected


MISSING: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pd.DataFrame({"x": [np.nan, np.nan]}),
    "objects": lambda: pd.DataFrame({"x": [None, None]}),
    "times": lambda: pd.DataFrame({"x": [pd.NaT, pd.NaT]}),
    "text": lambda: pd.DataFrame({"x": [None, None]}, dtype="string"),
    "arrow of pandas": lambda: pa.Table.from_pandas(pd.DataFrame({"x": [np.nan, np.nan]})),
    "polars": lambda: pl.DataFrame({"x": [None, None]}),
}


@pytest.mark.parametrize("data_type", ["string", "long", "date", "timestamp", "decimal(5,2)"])
@pytest.mark.parametrize("kind", MISSING)
def test_a_column_of_a_frame_without_values_fits_every_type(store: eoslog.Store, kind: str, data_type: str) -> None:
    store.admin.create_topic("t", schema={"x": data_type})

    with store.producer() as producer:
        producer.send_table("t", MISSING[kind]())
        producer.send_table("t", MISSING[kind]()[:0])

    assert store.scan("t").to_table()["x"].to_pylist() == [None, None]


def test_a_column_with_a_value_still_has_its_type(store: eoslog.Store) -> None:
    store.admin.create_topic("t", schema={"x": "long"})

    with pytest.raises(eoslog.SchemaMismatch, match=r"'x': expected int64, found double. Cast it to int64 first"):
        store.producer().send_table("t", pd.DataFrame({"x": [1, np.nan]}))


def test_a_required_column_without_values_is_refused(store: eoslog.Store) -> None:
    store.admin.create_topic("t", schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))

    with pytest.raises(eoslog.SchemaMismatch, match="column 'x' has 1 nulls, but the topic allows none"):
        store.producer().send_table("t", pd.DataFrame({"x": [np.nan]}))


def test_partitions_that_a_frame_leaves_open_are_chosen(store: eoslog.Store) -> None:
    store.admin.create_topic("t", partitions=2)

    with store.producer() as producer:
        producer.send_table("t", pd.DataFrame({"value": [b"v"], "partition": [None]}))

    assert store.scan("t").record_count == 1


@pytest.mark.parametrize("number", [2, -1, 2**64 - 1])
def test_a_partition_that_the_topic_lacks_is_refused(store: eoslog.Store, number: int) -> None:
    store.admin.create_topic("t", partitions=2)
    kind = pa.uint64() if number > 0 else pa.int64()

    with pytest.raises(eoslog.UnknownTopicOrPartition):
        store.producer().send_table("t", pa.table({"value": [b"v"], "partition": pa.array([number], kind)}))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "python's objects": (lambda: pl.DataFrame({"x": [object()]}), "column 'x' holds Python's objects.*cast it"),
    "a number beyond 64 bits": (lambda: pd.DataFrame({"x": [2**70]}), "cannot be .*too large"),
    "two columns of one name": (lambda: pd.DataFrame([[1, 2]], columns=["x", "x"]), "Duplicate column names found"),
    "complex numbers": (lambda: pd.DataFrame({"x": [1j]}), "column x with type complex128"),
    "intervals": (lambda: duckdb.sql("select interval 1 day as x"), "column 'x': .*interval.*[Cc]ast it to"),
    "unions": (lambda: duckdb.sql("select union_value(a := 1) as x"), "column 'x': .*union.*[Cc]ast it to"),
    "unsigned numbers": (lambda: pl.DataFrame({"x": [1]}, schema={"x": pl.UInt64}), "column 'x': .*uint64.*ast it to"),
    "parts of no type": (lambda: duckdb.sql("select [interval 1 day] as x"), "column 'x.*interval.*[Cc]ast it to"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_columns_that_cannot_be_stored_are_refused_by_name(store: eoslog.Store, kind: str) -> None:
    rows, message = REFUSED[kind]
    store.admin.create_topic("t", schema={"x": "string"})

    with pytest.raises(eoslog.SchemaMismatch, match=message):
        store.producer().send_table("t", rows())
    with pytest.raises((eoslog.InvalidRequest, eoslog.UnsupportedSchema), match=message):
        store.admin.create_topic("u", schema=rows())
