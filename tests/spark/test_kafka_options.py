"""A job written for Spark's Kafka connector runs when one word is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from tests.spark.driver_process import StartDriver

JOB = """
import sys

from pyspark.sql import functions as F
from tests.spark.local_spark import start_session
from pathlib import Path

directory = Path(sys.argv[1])
spark = start_session(directory)
servers = "broker-1:9092,broker-2:9092"

(
    spark.range(20)
    .selectExpr("CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value")
    .write.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.compression.type", "lz4")
    .option("topic", "squares")
    .mode("append")
    .save()
)

squares = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.security.protocol", "SASL_SSL")
    .option("subscribePattern", "squ.*")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 15)
    .option("failOnDataLoss", "false")
    .option("groupIdPrefix", "even-squares")
    .option("fetchOffset.numRetries", 5)
    .load()
)
query = (
    squares.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    .where("value % 2 = 0")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "even")
    .option("checkpointLocation", str(directory / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

even = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.isolation.level", "read_committed")
    .option("assign", '{"even": [0, 1]}')
    .option("startingTimestamp", "1000")
    .option("endingOffsets", '{"even": {"0": -1, "1": -1}}')
    .option("minPartitions", 3)
    .option("includeHeaders", "true")
    .load()
)
assert even.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
assert even.rdd.getNumPartitions() >= 3
rows = even.withColumn("value", F.col("value").cast("string").cast("long")).collect()
assert sorted(row.value for row in rows) == [n * n for n in range(0, 20, 2)]
assert {row.topic for row in rows} == {"even"}
spark.stop()
"""


@pytest.mark.slow
def test_a_job_for_kafka_runs_when_one_word_is_changed(start_driver: StartDriver, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = eoslog.connect(root)
    for topic in ("squares", "even"):
        store.admin.create_topic(topic, partitions=2)
    changed = JOB.replace('format("kafka")', 'format("eoslog")')

    driver = start_driver(changed, str(tmp_path / "spark"), EOSLOG_STORE=root)

    assert driver.wait(timeout_s=600) == 0, driver.output
    assert (
        "options that only a broker uses are ignored: fetchoffset.numretries, groupidprefix, kafka.bootstrap.servers"
        in driver.output
    )
    assert store.scan("even").record_count == 10
