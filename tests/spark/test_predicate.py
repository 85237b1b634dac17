"""A predicate means to eoslog what it means to Spark: the same conditions over the same rows, answered by both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
from eoslog.read.predicate_rows import is_wanted
from eoslog.read.predicate_text import compile_predicate
from pyspark_eoslog import topic_schema
from tests.unit.read.sql_conditions import COLUMNS, SIMPLE
from tests.unit.read.test_predicate_rows import TOPIC, rows_with, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 100
QUICK = ("double", "moment", "name")
"""The columns whose values SQL compares in the most surprising ways."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in COLUMNS
        if name not in ("bytes", "clock")
    ],
)
def test_each_condition_is_true_of_the_rows_that_spark_says(spark: SparkSession, name: str) -> None:
    # Spark makes no DataFrame of a column of type TIME; bytes have no conditions but for null.
    table = table_of(rows_with(name, [*COLUMNS[name].values, None]))
    (batch,) = table.to_batches()
    rows = spark.createDataFrame(table.select([name])).coalesce(1)

    for first in range(0, len(SIMPLE[name]), _AT_ONCE):
        texts = [condition.text for condition in SIMPLE[name][first : first + _AT_ONCE]]
        told = rows.selectExpr(*(f"if(({text}), true, false)" for text in texts)).collect()
        for index, text in enumerate(texts):
            wanted = is_wanted(compile_predicate(text, TOPIC), batch).fill_null(False).to_pylist()
            assert wanted == [row[index] for row in told], text


@pytest.mark.slow
def test_option_predicate_gives_the_rows_of_where(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1000).selectExpr("id", "id % 7 AS remainder", "if(id % 3 = 0, NULL, cast(id AS string)) AS name")
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("t", partitions=3, schema=topic_schema(rows.schema))
    rows.repartition(4, "remainder").write.format("eoslog").option("topic", "t").mode("append").save(store.url)
    everything = spark.read.format("eoslog").option("topic", "t").load(store.url)

    for predicate in ("remainder IN (2, 5) AND name LIKE '1%'", "name IS NULL AND `_offset` < 20", "id > 990.5"):
        found = spark.read.format("eoslog").option("topic", "t").option("predicate", predicate).load(store.url)
        assert sorted(found.collect()) == sorted(everything.where(predicate).collect())
        assert found.count() > 0
