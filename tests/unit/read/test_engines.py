"""Engines that skip data by bounds find the rows that they find in memory: scans, lazy frames and published tables."""

from __future__ import annotations

import itertools
import math
import tempfile
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

import eoslog
from eoslog import TopicConfig
from eoslog.polars import scan_topic
from tests.depth import examples, sweep
from tests.predicates import POOLS, Condition, casted, conditions_on, plain

NO_PREDICATES = ("bytes", "span")
"""Columns that eoslog's predicates only compare with null."""
PUBLISHED = [column for column in POOLS if column != "span"]
"""Delta has no intervals."""


class Published:
    """A published topic with one column beside ``id``: each list of values is a file."""

    def __init__(self, root: str, column: str, files: list[list[Any]], *, compacted: bool) -> None:
        self.column = column
        self.root = f"{root}/t"
        self.store = eoslog.connect(root, fsync=False)
        schema = pa.schema([("id", pa.int64()), (column, POOLS[column][0])])
        self.store.admin.create_topic("t", schema=schema, config=TopicConfig(publish="delta"))
        with self.store.producer() as producer:
            first = 0
            for values in files:
                ids = list(range(first, first + len(values)))
                producer.send_table(
                    "t", pa.table({"id": ids, column: pa.array(values, schema.types[1])}, schema=schema)
                )
                producer.flush()
                first += len(values)
        self.store.admin.publish("t")
        if compacted:
            self.store.admin.compact_files("t", now=True)
            self.store.admin.publish("t")
        self.rows = self.store.scan("t").to_table()
        self.duckdb = duckdb.connect()
        self.duckdb.execute("set timezone = 'UTC'")
        self.duckdb.register("given", self.rows)
        self.duckdb.execute("create table in_memory as select * from given")
        self.in_memory = datafusion.SessionContext()
        self.in_memory.register_record_batches("t", [self.rows.to_batches()])

    def check(self, condition: Condition) -> None:
        """Compare the rows that each engine finds with those that it finds in memory."""
        table = DeltaTable(self.root)
        frame = pl.from_arrow(self.rows)
        assert isinstance(frame, pl.DataFrame)
        if self.column not in NO_PREDICATES or condition.kind == "null":
            by_rule = [row["id"] for row in self.rows.to_pylist() if condition.of(row[self.column])]
            text = condition.sql(plain)
            assert ids(self.store.scan("t", predicate=text).to_table()) == by_rule, text

        by_polars = sorted(frame.filter(condition.polars)["id"])
        assert sorted(scan_topic(self.store, "t").filter(condition.polars).collect()["id"]) == by_polars
        assert sorted(pl.scan_delta(self.root).filter(condition.polars).select("id").collect()["id"]) == by_polars

        if not any(isinstance(value, float) and math.isnan(value) for value in condition.values):
            # Arrow 26 takes each number of a file with bounds for less than NaN, in tables of delta-rs, too.
            by_arrow = ids(self.rows.filter(condition.arrow))
            assert ids(table.to_pyarrow_dataset().to_table(filter=condition.arrow)) == by_arrow

        self._check_datafusion(condition, table)
        if (self.column, condition.kind) != ("text", "null"):
            # DuckDB 2.0.0 finds all rows of a row group whose texts are null or one text, if it has no dictionary.
            self._check_duckdb(condition, table)

    def _check_duckdb(self, condition: Condition, table: DeltaTable) -> None:
        text = condition.sql(casted, null_safe="IS NOT DISTINCT FROM").replace("TIMESTAMP '", "TIMESTAMPTZ '")
        text = text.replace("TIMESTAMP_NTZ '", "TIMESTAMP '")
        in_memory, in_files = (
            self.duckdb.execute(f"select id from {source} where {text} order by id").fetchall()
            for source in ("in_memory", f"read_parquet({table.file_uris()})")
        )
        assert in_files == in_memory, text

    def _check_datafusion(self, condition: Condition, table: DeltaTable) -> None:
        text = condition.sql(by_datafusion, null_safe="IS NOT DISTINCT FROM")
        query = f"select id from t where {text}"
        told: Any = QueryBuilder().register("t", table).execute(query)
        in_memory_too = pa.Table.from_batches(self.in_memory.sql(query).collect(), pa.schema([("id", pa.int64())]))
        assert ids(pa.table(told.read_all())) == ids(in_memory_too), text


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def by_datafusion(value: Any, data_type: pa.DataType) -> str:
    """Return a literal for DataFusion. Its own timestamps have nanoseconds, so they end in the year 2262."""
    if isinstance(data_type, pa.TimestampType):
        zone = 'Some("UTC")' if data_type.tz else "None"
        micros = pa.scalar(value, data_type).cast(pa.int64()).as_py()
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, {zone})')"
    return f"decode('{value.hex()}', 'hex')" if isinstance(value, bytes) else casted(value, data_type)


@pytest.mark.parametrize("column", sweep(PUBLISHED, quick=PUBLISHED[::4]))
def test_engines_find_the_rows_that_they_find_in_memory(column: str) -> None:
    values = st.one_of(st.none(), *[st.sampled_from(POOLS[column][1])] * 3)
    files = st.lists(st.lists(values, min_size=1, max_size=3), min_size=1, max_size=3)

    @examples(2)
    @given(files, st.booleans(), st.lists(conditions_on(column), min_size=4, max_size=8))
    def check(files: list[list[Any]], compacted: bool, conditions: list[Condition]) -> None:
        with tempfile.TemporaryDirectory() as root:
            published = Published(root, column, files, compacted=compacted)
            for condition in conditions:
                published.check(condition)

    check()


def test_engines_find_both_zeros_by_either() -> None:
    kinds = itertools.product([-0.0, 0.0], ["=", "<", "<=", ">", ">=", "in"], [False, True])
    with tempfile.TemporaryDirectory() as root:
        published = Published(root, "double", [[-0.0], [0.0], [0.0, 1.0], [-1.0, -0.0]], compacted=False)
        for value, kind, negated in kinds:
            published.check(Condition("double", kind, (value,), negated))
