"""``outputMode("complete")``: each micro-batch replaces the topic's rows, in its one slot and exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eoslog
from eoslog.read.scan import Scan
from tests.spark.streams import make_topics, produce
from tests.unit.support.transactions import open_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS: list[pa.Field[Any]] = [pa.field("even", pa.bool_()), pa.field("rows", pa.int64())]
COUNTS = pa.schema(FIELDS)


@pytest.fixture
def store(root: str) -> eoslog.Store:
    """A store whose topic ``in`` holds the numbers to 10, and a topic ``counts`` for what is counted of them."""
    store = make_topics(root)
    store.admin.create_topic("counts", partitions=2, schema=COUNTS, key="even")
    produce(store, 0, 10)
    return store


def count(spark: SparkSession, root: str, checkpoint: Path) -> None:
    """Count all even and all odd numbers so far."""
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    counts = rows.selectExpr("n % 2 = 0 as even").groupBy("even").count().withColumnRenamed("count", "rows")
    stream = counts.writeStream.format("eoslog").option("topic", "counts").outputMode("complete")
    stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(root).awaitTermination()


def counted(scan: Scan) -> list[tuple[bool, int]]:
    return sorted((row["even"], row["rows"]) for row in scan.to_table().to_pylist())


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


@pytest.mark.pyspark("4.1")
def test_each_micro_batch_replaces_the_topic_in_one_slot(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    count(spark, root, tmp_path / "checkpoint")
    planned_before = store.scan("counts")
    produce(store, 10, 31)
    before = newest_slot(store)

    count(spark, root, tmp_path / "checkpoint")

    assert newest_slot(store) == before + 1
    assert counted(store.scan("counts")) == [(False, 15), (True, 16)]
    assert counted(planned_before) == [(False, 5), (True, 5)]


@pytest.mark.pyspark("4.1")
def test_an_open_transaction_in_the_topic_ends_the_query_until_committed(
    spark: SparkSession, store: eoslog.Store, root: str, tmp_path: Path
) -> None:
    with open_transaction(store, "corrections") as producer:
        producer.send_table("counts", pa.table({"even": [True], "rows": [99]}, schema=COUNTS))
        producer.flush()
        with pytest.raises(Exception, match=r"EOSLOG_CONCURRENT_TRANSACTIONS.*topic counts.*'corrections'"):
            count(spark, root, tmp_path / "checkpoint")
        producer.commit_transaction()

    count(spark, root, tmp_path / "checkpoint")

    assert counted(store.scan("counts")) == [(False, 5), (True, 5)]
