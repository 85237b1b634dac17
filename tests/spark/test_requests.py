"""Requests of a micro-batch and of a planned read, counted by a proxy and not by the code that sends them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eoslog
from pyspark_eoslog import EosLogTable
from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server
from tests.spark.streams import NUMBERS, make_topics, numbers, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.s3


@pytest.mark.pyspark("4.1")
def test_a_small_warm_micro_batch_is_one_request(
    spark: SparkSession, fault_proxy: FaultProxy, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    options = s3_server.behind(fault_proxy.url).options()
    source = make_topics(str(tmp_path / "source"))
    sink = eoslog.connect(f"s3://{s3_bucket}/sink", **options)
    sink.admin.create_topic("out", schema=NUMBERS)
    rows = spark.readStream.format("eoslog").option("topic", "in").option("startingOffsets", "earliest")
    writer = rows.load(source.url).select("n").writeStream.format("eoslog").option("topic", "out")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = writer.options(**{f"store.{name}": value for name, value in options.items()}).start(sink.url)
    costs: list[Counter[str]] = []
    try:
        for number in range(6):
            produce(source, number * 10, number * 10 + 10)
            before = Counter(fault_proxy.counts)
            stream.processAllAvailable()
            costs.append(fault_proxy.counts - before)
    finally:
        stream.stop()

    assert numbers(sink) == list(range(60))
    # A process that Spark has just started opens the store, which is not warm.
    assert costs.count(Counter(PUT=1)) >= 3, costs


def test_the_read_of_a_table_is_planned_in_one_request(
    spark: SparkSession,
    fault_proxy: FaultProxy,
    s3_server: S3Server,
    s3_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = s3_server.behind(fault_proxy.url).options()
    store = eoslog.connect(f"s3://{s3_bucket}/store", **options)
    store.admin.create_topic("in", schema=NUMBERS)
    produce(store, 0, 10)
    table = EosLogTable.forPath(spark, store.url, "in", **options)
    planned = []
    # From here on it is Spark that asks for the files, by Hadoop's s3a, which PySpark does not have.
    monkeypatch.setattr("pyspark_eoslog.table.native_frame", lambda *arguments, **named: planned.append(named["files"]))
    table.toDF()
    before = Counter(fault_proxy.counts)

    table.toDF()

    assert fault_proxy.counts - before == Counter(GET=1)
    produce(store, 10, 20)
    table.toDF()
    assert [len(files) for files in planned] == [1, 1, 2]
