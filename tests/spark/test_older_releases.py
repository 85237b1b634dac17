"""A feature that a release of PySpark lacks is refused with the name of the release that has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import eoslog
from pyspark_eoslog.pyspark_version import is_at_least
from tests.spark.streams import copy_stream, make_topics, produce
from tests.unit.support.transactions import open_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_4_2 = pytest.mark.skipif(is_at_least(4, 2), reason="PySpark 4.2 lacks nothing")
BEFORE_4_1 = pytest.mark.skipif(is_at_least(4, 1), reason="PySpark 4.1 does not lack this")


@BEFORE_4_2
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxOffsetsPerTrigger", "10"),
        ("maxBytesPerTrigger", "1m"),
        ("maxFilesPerTrigger", "1"),
        ("minOffsetsPerTrigger", "10"),
        ("maxTriggerDelay", "1m"),
        ("transactionConsistent", "true"),
    ],
)
def test_limits_of_a_micro_batch_are_refused(
    spark: SparkSession, root: str, tmp_path: Path, option: str, value: str
) -> None:
    make_topics(root)
    rows = spark.readStream.format("eoslog").option("topic", "in").option(option, value).load(root)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))

    with pytest.raises(Exception, match=rf"EOSLOG_INVALID_OPTION\] option '{option}' .*needs PySpark 4\.2 or later"):
        writer.trigger(availableNow=True).start().awaitTermination()


@BEFORE_4_2
def test_a_batch_may_be_transaction_consistent(spark: SparkSession, root: str) -> None:
    produce(make_topics(root), 0, 10)

    rows = spark.read.format("eoslog").option("topic", "in").option("transactionConsistent", "true").load(root)

    assert rows.count() == 10


@BEFORE_4_2
def test_a_start_beyond_the_visible_rows_is_refused(spark: SparkSession, root: str, tmp_path: Path) -> None:
    store = make_topics(root)
    with open_transaction(store, "open") as producer:
        producer.send_table("in", pa.table({"n": [1, 2], "_partition": [0, 0]}))
        producer.flush()
        starting = '{"in": {"0": 1, "1": 0}}'
        rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", starting).load(root)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))

        with pytest.raises(Exception, match=r"in-0 at offset 1, but .* end at 0.* needs PySpark 4\.2 or later"):
            writer.start().awaitTermination()
        producer.abort_transaction()


@BEFORE_4_1
def test_a_stream_to_eoslog_is_refused(spark: SparkSession, root: str, tmp_path: Path) -> None:
    produce(make_topics(root), 0, 10)

    with pytest.raises(Exception, match=r"writeStream.*needs PySpark 4\.1 or later.*foreachBatch"):
        copy_stream(spark, root, tmp_path / "checkpoint").trigger(availableNow=True).start().awaitTermination()


@BEFORE_4_1
def test_a_column_of_type_time_is_refused(spark: SparkSession, root: str) -> None:
    store = eoslog.connect(root)
    store.admin.create_topic("t", schema=pa.schema([pa.field("n", pa.int64()), pa.field("at", pa.time64("us"))]))
    with store.producer() as producer:
        producer.send_table("t", pa.table({"n": [1], "at": pa.array([5], pa.time64("us"))}))
    reader = spark.read.format("eoslog").option("topic", "t")

    with pytest.raises(Exception, match=r"EOSLOG_UNSUPPORTED_SCHEMA\].*'at' is time.*needs PySpark 4\.1 or later"):
        reader.load(root)
    assert [row.n for row in reader.option("columns", "n").load(root).collect()] == [1]
