"""Filters of published topics: an engine that skips files by statistics finds the rows that it finds in all rows."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb_extension_delta", reason="run: make delta-tools")

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import eoslog
from eoslog import Store, TopicConfig
from eoslog.maintenance.sealing import seal_segments
from tests.delta_tools.engines import EXTENSIONS, spark_session
from tests.table_engines import duckdb_with

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "short": (pa.int16(), [-5, 0, 7, 32767]),
    "number": (pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.25]),
    "small": (pa.float32(), [math.nan, -0.0, 0.0, 0.5, 3.0]),
    "finite": (pa.float64(), [-1e300, -0.0, 0.0, 1e-300, 4.0]),
    "flag": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "a", "b", "ü" * 40, "b" * 60, "\U0010ffff" * 40]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1900, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(2024, 1, 1, 0, 0, 0, 1500, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ],
    ),
    "amount": (
        pa.decimal128(38, 10),
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.5"), Decimal(7)],
    ),
    "never": (pa.int64(), []),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff"]),
    **{f"c{number:02d}": (pa.int64(), [-(2**63), -1, 0, 3, 2**63 - 1]) for number in range(10)},
}
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in POOLS.items())])
COMPARISONS = ("<", "<=", ">", ">=", "=")
MORE = pa.field("more", pa.int64())


class Condition:
    """A comparison of a column with a value, or a test for nulls, in the forms of the engines."""

    def __init__(self, random: random.Random) -> None:
        self.column = random.choice([*POOLS, MORE.name])
        self.type, values = (MORE.type, [1, 2]) if self.column == MORE.name else POOLS[self.column]
        values = [each for each in values if not (isinstance(each, float) and not math.isfinite(each))]
        self.test = random.choice((*COMPARISONS, *COMPARISONS, "is null", "is not null") if values else ("is null",))
        if self.column == "flag" and self.test in COMPARISONS:
            self.test = "="
        self.value = random.choice(values) if values else None

    @property
    def sql(self) -> str:
        if self.test not in COMPARISONS:
            return f"{self.column} {self.test}"
        value = self.value
        match value:
            case bool() | int() | float():
                text = f"CAST({value!r} AS DOUBLE)" if isinstance(value, float) else str(value)
            case Decimal():
                text = f"CAST('{value}' AS DECIMAL(38, 10))"
            case datetime():
                text = f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}+00:00'"
            case date():
                text = f"DATE '{value.isoformat()}'"
            case bytes():
                text = f"unhex('{value.hex()}')"
            case _:
                text = f"'{value}'"
        return f"{self.column} {self.test} {text}"

    @property
    def arrow(self) -> Any:
        field: Any = pc.field(self.column)
        return self._of(field, field.is_null(), pa.scalar(self.value, self.type))

    @property
    def polars(self) -> Any:
        column = pl.col(self.column)
        return self._of(column, column.is_null(), pl.lit(pl.from_arrow(pa.array([self.value], self.type))[0]))

    def _of(self, column: Any, is_null: Any, value: Any) -> Any:
        match self.test:
            case "<":
                return column < value
            case "<=":
                return column <= value
            case ">":
                return column > value
            case ">=":
                return column >= value
            case "=":
                return column == value
        return is_null if self.test == "is null" else ~is_null


def rows(random: random.Random, first: int, schema: pa.Schema) -> pa.Table:
    """Return rows with awkward values. Some columns have one value only, some files have nulls only."""
    count = random.randrange(1, 5)
    columns: dict[str, list[Any]] = {"id": list(range(first, first + count))}
    for name in schema.names[1:]:
        pool = [1, 2] if name == MORE.name else POOLS[name][1]
        chosen = random.sample(pool, min(len(pool), random.choice((1, 1, 2, len(pool)))))
        some = [*chosen, None] if random.random() < 0.3 or not pool else chosen
        columns[name] = [random.choice(some) for _ in range(count)]
    return pa.table(columns, schema=schema)


def published(url: str, seed: int) -> tuple[Store, pa.Table]:
    """Return a store with the published topic ``t``, and its rows."""
    chance = random.Random(seed)
    store = eoslog.connect(url, fsync=False)
    config = TopicConfig(publish="delta", segment_batches=2, statistics_columns=chance.choice((3, 16, 30)))
    store.admin.create_topic("t", schema=SCHEMA, key="id", partitions=2, config=config)
    schema, written = SCHEMA, list[pa.Table]()
    for step in range(10):
        if step == 6:
            store.admin.add_columns("t", pa.schema([MORE]))
            schema = schema.append(MORE)
        table = rows(chance, sum(each.num_rows for each in written), schema)
        written.append(table)
        with store.producer() as producer:
            producer.send_table("t", table)
        store.admin.publish("t")
        if step == 4:
            seal_segments(store)
            store.admin.compact_files("t")
    store.admin.publish("t")
    return store, pa.concat_tables(written, promote_options="default")


def conditions(seed: int, count: int = 60) -> list[Condition]:
    chance = random.Random(seed)
    return [Condition(chance) for _ in range(count)]


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


@pytest.mark.parametrize("seed", range(8))
def test_filters_find_all_rows_in_delta_rs_polars_and_duckdb(tmp_path: Path, seed: int) -> None:
    _, written = published(str(tmp_path), seed)
    root = f"{tmp_path}/t"
    frame = pl.from_arrow(written)
    assert isinstance(frame, pl.DataFrame)
    duckdb = duckdb_with(*EXTENSIONS)
    duckdb.execute("set timezone = 'UTC'")
    duckdb.register("given", written)
    duckdb.execute("create table written as select * from given")

    for each in conditions(seed):
        by_arrow = ids(written.filter(each.arrow))
        dataset = deltalake.DeltaTable(root).to_pyarrow_dataset()
        assert ids(dataset.to_table(filter=each.arrow)) == by_arrow, each.sql
        through_arrow = pl.scan_delta(root, use_pyarrow=True).filter(each.polars).select("id").collect()
        # For Polars NaN is greater than all numbers, but Arrow evaluates this filter. There no comparison finds NaN.
        assert sorted(through_arrow["id"]) == by_arrow, each.sql
        found = pl.scan_delta(root).filter(each.polars).select("id").collect()
        assert sorted(found["id"]) == sorted(frame.filter(each.polars)["id"]), each.sql
        expected = duckdb.execute(f"select id from written where {each.sql} order by id").fetchall()
        query = f"select id from delta_scan('{root}') where {each.sql} order by id"
        assert duckdb.execute(query).fetchall() == expected, each.sql


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session()
    yield session
    session.stop()


@pytest.mark.parametrize("seed", range(2))
def test_filters_find_the_same_rows_in_spark_and_in_eoslog(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    store, _ = published(str(tmp_path), seed)
    table = spark.read.format("delta").load(f"{tmp_path}/t")

    for each in conditions(seed, 25):
        expected = ids(table.drop("_partition").localCheckpoint().where(each.sql).select("id").toArrow())
        assert ids(table.where(each.sql).select("id").toArrow()) == expected, each.sql
        if each.type != pa.binary():
            # eoslog's predicates take no casts of literals.
            text = re.sub(r"CAST\('?([^' ]+)'? AS [^)]+\)\)?", r"\1", each.sql)
            assert ids(store.scan("t", predicate=text, columns=["id"]).to_table()) == expected, text
