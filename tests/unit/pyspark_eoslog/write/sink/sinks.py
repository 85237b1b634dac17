"""Writers of a query, called as Spark calls them: planned by one process, run by a task, committed by another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import this_worker
from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter

NUMBERS = pa.schema([pa.field("n", pa.int64())])
SCHEMA = StructType([StructField("n", LongType())])
Messages = list[WriterCommitMessage | None]


class OnlyTask:
    """The context of a query's only task, and what Spark tells it."""

    properties: dict[str, str]

    @classmethod
    def get(cls) -> OnlyTask:
        return cls()

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties.get(name)


def told(query_id: str | None, batch_id: int = 0, run_id: str = "run") -> None:
    """What Spark tells the task from here on; no query outside of streams."""
    OnlyTask.properties = {"spark.jobGroup.id": run_id}
    if query_id is not None:
        OnlyTask.properties |= {"sql.streaming.queryId": query_id, "streaming.sql.batchId": str(batch_id)}


def new_process() -> None:
    """What Spark's Python workers know is forgotten."""
    this_worker().forget_stores()


def writer(store: eoslog.Store, *, complete: bool = False, **options: str) -> EosLogStreamWriter:
    given = {"path": store.url, "topic": "out", "checkpointlocation": "/checkpoint"} | options
    return EosLogStreamWriter(Options.of(given), SCHEMA, complete)


def batch_writer(store: eoslog.Store, *, overwrite: bool = False, **options: str) -> EosLogWriter:
    return EosLogWriter(Options.of({"path": store.url, "topic": "out"} | options), SCHEMA, overwrite)


def written(planned: EosLogStreamWriter | EosLogWriter, *numbers: int) -> Messages:
    """What the only task reports."""
    return [planned.write(iter([pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=NUMBERS)]))]


def stream(store: eoslog.Store, query_id: str, batch_id: int, *numbers: int, **options: str) -> None:
    """A micro-batch from its planning to its commit."""
    told(query_id, batch_id, options.pop("run", f"run of {query_id}"))
    messages = written(writer(store, **options), *numbers)
    writer(store, **options).commit(messages, batch_id)


def batch(store: eoslog.Store, *numbers: int, **options: str) -> None:
    """A batch write from its planning to its commit."""
    planned = batch_writer(store, **options)
    planned.commit(written(planned, *numbers))


def numbers(store: eoslog.Store, topic: str = "out") -> list[int]:
    return sorted(row["n"] for row in store.scan(topic).to_table().to_pylist())


def uploads(store: eoslog.Store) -> int:
    """How many data files were ever uploaded, committed or not."""
    return len(list(Path(store.url).rglob("*.parquet")))
