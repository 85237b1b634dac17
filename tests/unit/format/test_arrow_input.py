"""Tables and schemas of pandas, Polars and Arrow are taken wherever a table or a schema is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


@pytest.mark.parametrize("kind", [kind for kind in TABLES if "categories" not in kind])
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
