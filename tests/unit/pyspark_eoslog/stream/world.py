"""What tests of streams without a JVM share: a store on local disk, readers as Spark makes them, and their time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog.maintenance.sealing import seal_segments
from eoslog.storage.environment import Environment
from pyspark_eoslog import worker
from pyspark_eoslog.options import Options
from pyspark_eoslog.stream.read_limits import ReadLimit
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.support.transactions import open_transaction

NUMBERS = pa.schema([pa.field("n", pa.int64())])
SCHEMA = StructType([StructField("n", LongType())])


class ManualEnvironment(Environment):
    """Time passes only in sleep."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.slept: list[float] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept.append(duration_ms)
        self.now_ms += int(duration_ms)


def reader(store: eoslog.Store, **options: Any) -> EosLogStreamReader:
    """A reader from the earliest offsets on, of the topic ``in`` unless the options name others."""
    given: dict[str, Any] = {"path": store.url, "startingOffsets": "earliest", **options}
    if not given.keys() & {"topic", "subscribe", "subscribePattern", "assign"}:
        given["subscribe"] = "in"
    return EosLogStreamReader(Options.of({name: str(value) for name, value in given.items()}), SCHEMA)


def held(stream: EosLogStreamReader) -> eoslog.Store:
    """The store that a reader holds open; its requests are those of the reader."""
    return worker._hold(stream._options.location).store


def produce(store: eoslog.Store, *numbers: int, topic: str = "in", partition: int | None = None) -> None:
    """Commit numbers as one transaction."""
    with open_transaction(store, "generator") as producer:
        columns: dict[str, Any] = {"n": list(numbers)}
        if partition is not None:
            columns["_partition"] = [partition] * len(numbers)
        producer.send_table(topic, pa.table(columns))
        producer.commit_transaction()


def seal(store: eoslog.Store) -> None:
    seal_segments(store)


def rows(stream: EosLogStreamReader, start: Any, end: Any) -> list[int]:
    """The numbers of a micro-batch, ascending."""
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return sorted(row["n"] for batch in batches for row in batch.to_pylist())


def step(stream: EosLogStreamReader, start: Any, limit: ReadLimit | None = None) -> Any:
    """The end of the next micro-batch, as Spark keeps it."""
    return json.loads(json.dumps(stream.latestOffset(start, limit or stream.getDefaultReadLimit())))


def drain(stream: EosLogStreamReader, start: Any, limit: ReadLimit | None = None) -> tuple[list[list[int]], Any]:
    """The numbers of micro-batch after micro-batch until nothing is left, and the end."""
    batches = []
    while (end := step(stream, start, limit)) != start:
        batches.append(rows(stream, start, end))
        start = end
    return batches, start
