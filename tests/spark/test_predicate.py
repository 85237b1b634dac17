"""A predicate means to eoslog what it means to Spark: the same conditions over the same rows, answered by both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eoslog.read.predicate_rows import is_wanted
from eoslog.read.predicate_text import compile_predicate
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
