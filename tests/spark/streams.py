"""What tests of streams share: a stream from one topic to another, and what is exact about its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import eoslog
from pyspark_eoslog.pyspark_version import is_at_least
from tests.unit.support.transactions import open_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

LIMIT = {"maxOffsetsPerTrigger": "60"} if is_at_least(4, 2) else {}
"""The limit that parts a stream. PySpark before 4.2 knows none: there a micro-batch takes all that there is."""
NUMBERS = pa.schema([pa.field("n", pa.int64())])


def make_topics(root: str, config: eoslog.TopicConfig | None = None, **options: str) -> eoslog.Store:
    """A store with the topics ``in`` and ``out`` of one column, two partitions each."""
    store = eoslog.connect(root, **options)
    for topic in ("in", "out"):
        store.admin.create_topic(topic, partitions=2, schema=NUMBERS, key="n", config=config)
    return store


def produce(store: eoslog.Store, first: int, last: int) -> None:
    """Commit the numbers ``first`` (inclusive) to ``last`` (exclusive) to the topic ``in``, as one transaction."""
    with open_transaction(store, "generator") as producer:
        producer.send_table("in", pa.table({"n": pa.array(range(first, last), pa.int64())}, schema=NUMBERS))
        producer.commit_transaction()


def copy_stream(
    spark: SparkSession,
    root: str,
    checkpoint: Path,
    source: dict[str, str] | None = None,
    *,
    topics: tuple[str, str] = ("in", "out"),
    **sink: str,
) -> DataStreamWriter:
    """The stream from ``in`` to ``out``, or between other topics, from the beginning, not started yet."""
    rows = (
        spark.readStream.format("eoslog")
        .option("topic", topics[0])
        .option("startingOffsets", "earliest")
        .options(**(source or {}))
        .load(root)
        .select("n")
    )
    writer = rows.writeStream.format("eoslog").option("topic", topics[1]).option("checkpointLocation", str(checkpoint))
    return writer.options(**sink).option("path", root)


def numbers(store: eoslog.Store, topic: str = "out") -> list[int]:
    """The committed numbers of a topic, in ascending order, duplicates included."""
    return sorted(store.scan(topic).to_table()["n"].to_pylist())


def commits(store: eoslog.Store, topic: str = "out") -> int:
    """How many transactions have rows in a topic."""
    topic_id = store.admin.describe_topic(topic).topic_id
    return store.read(
        lambda state, slot: len(
            {
                batch.end_slot
                for place, partition in state.partitions.items()
                if place.topic_id == topic_id
                for batch in partition.active
                if batch.control is None
            }
        )
    )
