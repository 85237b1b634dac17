"""Spark Connect: the same data source, without any change, where the client has no JVM of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from tests.spark.driver_process import StartDriver
from tests.spark.streams import make_topics, numbers, produce

CLIENT = """
    import sys
    from pyspark.sql import SparkSession

    root, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.range(1000, 1010).selectExpr("id as n").write.format("eoslog").option("topic", "in").mode("append").save(root)
    print("read:", spark.read.format("eoslog").option("topic", "in").load(root).count())
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest").load(root)
    stream = rows.select("n").writeStream.format("eoslog").option("topic", "out")
    stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(root)
    stream.awaitTermination()
    try:
        spark.read.format("eoslog").option("topic", "nope").load(root).count()
    except Exception as error:
        print("error:", "[EOSLOG_UNKNOWN_TOPIC_OR_PARTITION]" in str(error))
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("connect_port")
def test_a_connect_client_writes_reads_and_streams(start_driver: StartDriver, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store: eoslog.Store = make_topics(root)
    produce(store, 0, 20)

    client = start_driver(CLIENT, root, str(tmp_path / "checkpoint"))

    assert client.wait(orphans_s=3) == 0, client.output
    assert "read: 30" in client.output
    assert "error: True" in client.output
    assert numbers(store) == [*range(20), *range(1000, 1010)]
