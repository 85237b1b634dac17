"""Micro-batches of Structured Streaming, by phase."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.measurements import PHASES, TRIGGER, Results
from benchmarks.peers.services import Broker, kafka_broker, new_name, spark_session
from benchmarks.peers.sizes import Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TITLE = "Micro-batches of Structured Streaming"
INTRO = """\
A query runs {batches} micro-batches of {rows} rows. The numbers are medians over its batches after the second, from
Spark's `StreamingQueryProgress.durationMs`: `trigger` is all of a batch; `work` is `addBatch`, `offsets` is
`latestOffset` and `getBatch`, `planning` is `queryPlanning`, and `checkpoint` is `walCommit` and `commitOffsets`. To
compare sinks, Spark's `rate-micro-batch` source feeds each. To compare sources, a running query reads a table into
Spark's `noop` sink, and each micro-batch is one append to the table. Spark's Kafka sink has no transactions, so a
batch that is repeated after a crash is there twice; the sinks of Delta, Iceberg and eoslog, and Parquet's with its
own log, have it once."""

_OF = {
    PHASES[0]: ("queryPlanning",),
    PHASES[1]: ("latestOffset", "getBatch"),
    PHASES[2]: ("addBatch",),
    PHASES[3]: ("walCommit", "commitOffsets"),
}
_WARM_BATCHES = 2
_PATIENCE_S = 180


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"batches": str(sizes.batches), "rows": f"{sizes.batch_rows:,}"}
    with kafka_broker(directory) as broker, spark_session(directory) as spark:
        sinks = ("Parquet", "Delta", "Iceberg", "Kafka", "eoslog")
        works = {system: partial(_sink, spark, broker, system, sizes, directory) for system in sinks}
        results.rounds("sink", works, sizes.stream_rounds, warm=1)
        works = {system: partial(_source, spark, broker, system, sizes, directory) for system in sinks}
        results.rounds("source", works, sizes.stream_rounds, warm=1)


def _sink(spark: SparkSession, broker: Broker, system: str, sizes: Sizes, directory: Path) -> Mapping[str, float]:
    name = new_name("t")
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", sizes.batch_rows)
    rows = source.option("numPartitions", 2).load().selectExpr("CAST(value AS STRING) AS value")
    place = str(directory / name)
    stream = rows.writeStream.option("checkpointLocation", str(directory / new_name("checkpoint")))
    query: StreamingQuery
    match system:
        case "Parquet" | "Delta":
            query = stream.format(system.lower()).start(place)
        case "Iceberg":
            spark.sql(f"CREATE TABLE ice.db.{name} (value STRING) USING iceberg")
            query = stream.format("iceberg").toTable(f"ice.db.{name}")
        case "Kafka":
            broker.create_topic(name)
            query = (
                stream.format("kafka").option("kafka.bootstrap.servers", broker.servers).option("topic", name).start()
            )
        case _:
            query = stream.format("eoslog").option("topic", "t").option("createTopic", True).start(place)
    _run(query, sizes.batches)
    return _phases(query, sizes)


def _source(spark: SparkSession, broker: Broker, system: str, sizes: Sizes, directory: Path) -> Mapping[str, float]:
    """Append batch after batch to a new table while a query reads it."""
    place = directory / new_name("source")

    def append(number: int) -> None:
        first = number * sizes.batch_rows
        frame = spark.range(first, first + sizes.batch_rows, 1, 1).selectExpr("CAST(id AS STRING) AS value")
        _append(frame, broker, system, place, create=number == 0)

    append(0)
    stream = _load(spark, broker, system, place, sizes.batch_rows).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(directory / new_name("checkpoint"))).start()
    try:
        query.processAllAvailable()
        for number in range(1, sizes.batches):
            append(number)
            query.processAllAvailable()
    finally:
        query.stop()
    return _phases(query, sizes)


def _load(spark: SparkSession, broker: Broker, system: str, place: Path, rows: int) -> DataFrame:
    stream = spark.readStream
    match system:
        case "Parquet":
            return stream.format("parquet").schema("value STRING").load(str(place))
        case "Delta":
            return stream.format("delta").load(str(place))
        case "Iceberg":
            return stream.format("iceberg").load(f"ice.db.{place.name}")
        case "Kafka":
            # An append to a topic is not atomic. Without a minimum, its first rows would be a micro-batch of their own.
            kafka = stream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
            kafka = kafka.option("minOffsetsPerTrigger", rows)
            return kafka.option("subscribe", place.name).option("startingOffsets", "earliest").load()
    return stream.format("eoslog").option("topic", "t").option("startingOffsets", "earliest").load(str(place))


def _append(frame: DataFrame, broker: Broker, system: str, place: Path, create: bool) -> None:
    match system:
        case "Parquet" | "Delta":
            frame.write.format(system.lower()).mode("append").save(str(place))
        case "Iceberg":
            table = frame.writeTo(f"ice.db.{place.name}")
            table.create() if create else table.append()
        case "Kafka":
            if create:
                broker.create_topic(place.name)
            writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.servers)
            writer.option("topic", place.name).save()
        case _:
            writer = frame.write.format("eoslog").option("topic", "t").option("createTopic", create)
            writer.mode("append").save(str(place))


def _run(query: StreamingQuery, batches: int) -> None:
    """Wait until a query has run so many micro-batches, and end it."""
    end = time.monotonic() + _PATIENCE_S
    try:
        while query.isActive and len(_progress(query)) < batches:
            if time.monotonic() > end:
                raise RuntimeError(f"{len(_progress(query))} of {batches} micro-batches in {_PATIENCE_S} s")
            time.sleep(0.05)
    finally:
        query.stop()
    error = query.exception()
    if error is not None:
        raise error


def _phases(query: StreamingQuery, sizes: Sizes) -> Mapping[str, float]:
    """The medians of the phases of a query's micro-batches (ms)."""
    counted = _progress(query, sizes.batch_rows)[_WARM_BATCHES : sizes.batches]
    if not counted:
        raise RuntimeError("the query ended before its third micro-batch")
    found = {TRIGGER: statistics.median(each["triggerExecution"] for each in counted)}
    for phase, names in _OF.items():
        found[phase] = statistics.median(sum(each.get(name, 0) for name in names) for each in counted)
    return found


def _progress(query: StreamingQuery, rows: int = 1) -> list[dict[str, int]]:
    """The durations of the micro-batches that had so many rows (ms)."""
    return [each["durationMs"] for each in query.recentProgress if each["numInputRows"] >= rows]
