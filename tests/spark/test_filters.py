"""Filters: a native scan finds the rows of ``format("eoslog")``, of Spark's own Parquet files and of a published table.

Spark pushes filters into Parquet's reader, which skips row groups. It pushes none into ``format("eoslog")``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import eoslog
import pyspark_eoslog
from pyspark_eoslog import EosLogTable
from tests.depth import sweep
from tests.predicates import POOLS, Condition, casted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES, ROWS, CONDITIONS = 2, 4, 12
COLUMNS = [*POOLS, "inner.x", "inner.t"]
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "null")


def rows_of(chance: random.Random, first: int) -> pa.Table:
    """Rows of one file: of each column few different values, or one, or only nulls."""
    columns: dict[str, Any] = {"id": pa.array(range(first, first + ROWS), pa.int64())}
    for name, (data_type, pool) in POOLS.items():
        chosen = chance.sample(pool, chance.choice((0, 1, 1, 2)))
        some = [*chosen, None] if chance.random() < 0.3 or not chosen else chosen
        values = [chance.choice(some) for _ in range(ROWS)]
        columns[name] = pa.array(values, pa.float32() if data_type == pa.float16() else data_type)
    return pa.table(columns)


def condition_of(chance: random.Random, columns: list[str]) -> str:
    """A random condition, as Spark's SQL."""
    column = chance.choice(columns)
    pool = {"inner.x": "double", "inner.t": "text"}.get(column, column)
    kind = chance.choice(("=", "<>", "<=>", "in", "null") if pool == "flag" else OPERATORS)
    count = {"in": chance.randrange(1, 4), "between": 2, "null": 0}.get(kind, 1)
    values = tuple(chance.choices(POOLS[pool][1], k=count))
    return Condition(pool, kind, values, negated=chance.random() < 0.4).sql(casted, column=column)


def found_by_filters(frame: DataFrame, conditions: list[str]) -> list[set[int]]:
    """Return the ids of the rows that each filter finds. One job runs them all, each with a scan of its own."""
    scans = [frame.where(each).selectExpr(f"{number} as number", "id") for number, each in enumerate(conditions)]
    found: list[set[int]] = [set() for _ in conditions]
    for row in reduce(lambda left, right: left.unionAll(right), scans).collect():
        found[row.number].add(row.id)
    return found


def differing(
    frames: dict[str, DataFrame], conditions: list[str], wanted: list[set[int]]
) -> Iterator[tuple[str, str, set[int], set[int]]]:
    """Yield the filters that do not find the wanted rows."""
    for name, frame in frames.items():
        for condition, found, right in zip(conditions, found_by_filters(frame, conditions), wanted, strict=True):
            if found != right:
                yield name, condition, found, right


@pytest.mark.parametrize(
    ("seed", "published"), sweep([(1, False), (2, True), (3, False), (4, True)], quick=[(1, False)])
)
def test_a_filter_finds_the_rows_for_which_it_is_true(
    spark: SparkSession, tmp_path: Path, seed: int, published: bool
) -> None:
    chance = random.Random(seed)
    left_out = ["span"] if published else []  # Delta has no intervals.
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    config = eoslog.TopicConfig(publish="delta" if published else "none")
    for number in range(FILES):
        rows = spark.createDataFrame(rows_of(chance, number * ROWS).drop_columns(left_out)).coalesce(1)
        rows = rows.selectExpr("*", "named_struct('x', double, 't', text) as inner")
        if number == 0:
            schema = pyspark_eoslog.topic_schema(rows.schema)
            store.admin.create_topic("t", schema=schema, spark_schema=rows.schema.json(), config=config)
        rows.write.format("eoslog").option("topic", "t").mode("append").save(store.url)
        rows.write.mode("append").parquet(str(tmp_path / "parquet"))
    table = EosLogTable.forPath(spark, store.url, "t")
    frames = {
        # Spark's filter by dictionaries takes -0.0 and 0.0 for different numbers. eoslog's files have no dictionaries.
        "Spark's Parquet": spark.read.option("parquet.filter.dictionary.enabled", "false").parquet(
            str(tmp_path / "parquet")
        ),
        "toDF": table.toDF(metadata_columns=False),
    }
    if published:
        store.admin.publish("t")
        frames["the published table"] = spark.read.parquet(*DeltaTable(f"{store.url}/t").file_uris())
    columns = [name for name in COLUMNS if name not in left_out]
    conditions = [condition_of(chance, columns) for _ in range(CONDITIONS)]
    pairs = list(zip(conditions[::4], conditions[1::4], strict=True))
    conditions += [f"({one}) {chance.choice(('and', 'or'))} ({other})" for one, other in pairs]

    source = spark.read.format("eoslog").option("topic", "t").load(store.url)
    flags = source.selectExpr("id", *(f"({each}) as c{number}" for number, each in enumerate(conditions))).collect()
    wanted = [{row.id for row in flags if row[f"c{number}"]} for number in range(len(conditions))]

    differences = list(differing(frames, conditions, wanted))
    store.admin.compact_files("t", now=True)
    differences += differing({"toDF after compaction": table.toDF()}, conditions, wanted)
    assert differences == []
    assert sum(map(len, wanted)) > CONDITIONS


def test_a_filter_on_days_that_the_calendar_skips_finds_what_spark_finds_in_its_own_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("select date '1582-10-10' as dt").coalesce(1)
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    store.admin.create_topic("t", schema=pyspark_eoslog.topic_schema(rows.schema))
    rows.write.format("eoslog").option("topic", "t").mode("append").save(store.url)
    rows.write.parquet(str(tmp_path / "parquet"))
    condition = "dt between '1582-10-05' and '1582-10-14'"

    native = EosLogTable.forPath(spark, store.url, "t").toDF().where(condition).count()

    # Spark turns the ends of the filter into dates of the Julian calendar, which are ten days later.
    assert native == spark.read.parquet(str(tmp_path / "parquet")).where(condition).count() == 0
    assert spark.read.format("eoslog").option("topic", "t").load(store.url).where(condition).count() == 1
    assert store.scan("t", predicate=condition).to_table().num_rows == 1
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    try:
        assert EosLogTable.forPath(spark, store.url, "t").toDF().where(condition).count() == 1
    finally:
        spark.conf.unset("spark.sql.parquet.filterPushdown")
