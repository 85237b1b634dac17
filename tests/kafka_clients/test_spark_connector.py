"""Spark's own Kafka connector writes through the gateway and reads from it; ``format("eoslog")`` has the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="run: make test-kafka-clients, which has the connector's own PySpark")

from tests.kafka_clients.conftest import Served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 5_000
_MINUTE_S = 60

pytestmark = pytest.mark.spark


def made_rows(spark: SparkSession) -> DataFrame:
    return spark.range(_ROWS).selectExpr(
        "cast(concat('k', id) as binary) key",
        "if(id % 100 = 0, null, cast(repeat(id, 5) as binary)) value",
        "array(named_struct('key', 'h', 'value', encode(string(id), 'UTF-8')), "
        "named_struct('key', 'none', 'value', cast(null as binary))) headers",
    )


def contents(rows: DataFrame) -> list[tuple[object, ...]]:
    """Return keys, values and headers in a common order."""
    text = "transform(headers, each -> concat(each.key, ':', coalesce(hex(each.value), '-')))"
    return sorted(
        map(tuple, rows.selectExpr("hex(key)", "coalesce(hex(value), '-')", f"array_join({text}, ',')").collect())
    )


def places(rows: DataFrame) -> list[tuple[object, ...]]:
    """Return where each row is, and its content."""
    columns = ["partition", "offset", "hex(key)", "coalesce(hex(value), '-')", "cast(timestamp as string)"]
    return sorted(map(tuple, rows.selectExpr(*columns).collect()))


def from_kafka(spark: SparkSession, served: Served, topic: str) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": served.servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "includeHeaders": "true",
    }
    return spark.read.format("kafka").options(**options).load()


def from_eoslog(spark: SparkSession, served: Served, topic: str) -> DataFrame:
    return spark.read.format("eoslog").options(topic=topic, includeHeaders="true").load(served.gateway.store_url)


def test_a_batch_is_written_and_read(spark: SparkSession, served: Served) -> None:
    topic = served.new_topic(partitions=3)
    rows = made_rows(spark)

    rows.write.format("kafka").option("kafka.bootstrap.servers", served.servers).option("topic", topic).option(
        "includeHeaders", "true"
    ).save()

    assert contents(from_eoslog(spark, served, topic)) == contents(rows)
    assert places(from_kafka(spark, served, topic)) == places(from_eoslog(spark, served, topic))


def test_a_batch_that_eoslog_wrote_is_read_without_aborted_rows(spark: SparkSession, served: Served) -> None:
    topic = served.new_topic(partitions=3)
    with served.store.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    made_rows(spark).write.format("eoslog").option("topic", topic).mode("append").save(served.gateway.store_url)

    found = from_kafka(spark, served, topic)

    assert found.count() == _ROWS
    assert places(found) == places(from_eoslog(spark, served, topic))


def test_a_query_reads_and_writes_topics_of_the_gateway(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    source, sink = served.new_topic(partitions=2), served.new_topic(partitions=2)
    servers = {"kafka.bootstrap.servers": served.servers}
    options = servers | {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    made_rows(spark).write.format("eoslog").option("topic", source).mode("append").save(served.gateway.store_url)
    stream = spark.readStream.format("kafka").options(**options).option("includeHeaders", "true").load()

    query = (
        stream.select("key", "value", "headers")
        .writeStream.format("kafka")
        .options(**servers, topic=sink, includeHeaders="true", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(2 * _MINUTE_S)
    assert len(query.recentProgress) > 1
    assert contents(from_eoslog(spark, served, sink)) == contents(made_rows(spark))


def test_a_query_of_kafka_writes_exactly_once_with_eoslog(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    source, sink = served.new_topic(partitions=2), served.new_topic(partitions=2)
    servers = {"kafka.bootstrap.servers": served.servers}
    made_rows(spark).write.format("kafka").options(**servers, topic=source, includeHeaders="true").save()
    options = servers | {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    stream = spark.readStream.format("kafka").options(**options).load()

    query = (
        stream.select("key", "value", "headers")
        .writeStream.format("eoslog")
        .options(topic=sink, includeHeaders="true", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(served.gateway.store_url)
    )

    assert query.awaitTermination(2 * _MINUTE_S)
    assert contents(from_eoslog(spark, served, sink)) == contents(made_rows(spark))
