"""The stream writer, called as Spark calls it: planned by one process, committed by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog.errors import UnknownTopicOrPartition
from pyspark_eoslog import stores, tasks
from pyspark_eoslog.options import Options
from pyspark_eoslog.sink import EosLogStreamWriter

NUMBERS = pa.schema([pa.field("n", pa.int64())])
SCHEMA = StructType([StructField("n", LongType())])


class OnlyTask:
    """The context of a query's only task."""

    @classmethod
    def get(cls) -> OnlyTask:
        return cls()

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return {"spark.jobGroup.id": "run", "sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}[name]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[eoslog.Store]:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=NUMBERS)
    yield store
    stores._stores.clear()
    stores._object_stores.clear()


def writer(store: eoslog.Store, *, complete: bool = False) -> EosLogStreamWriter:
    return EosLogStreamWriter(Options.of({"path": store.url, "topic": "out"}), SCHEMA, complete)


def written(planned: EosLogStreamWriter, *numbers: int) -> list[WriterCommitMessage | None]:
    """What the only task reports."""
    return [planned.write(iter([pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=NUMBERS)]))]


def numbers(store: eoslog.Store) -> list[int]:
    return sorted(row["n"] for row in store.scan("out").to_table().to_pylist())


@pytest.mark.parametrize("complete", [False, True])
def test_rows_for_a_topic_that_was_created_again_are_refused_with_advice(store: eoslog.Store, complete: bool) -> None:
    messages = written(writer(store, complete=complete), 1)
    store.admin.delete_topic("out")
    store.admin.create_topic("out", schema=NUMBERS)
    with store.producer() as producer:
        producer.send_table("out", pa.table({"n": [7]}, schema=NUMBERS))

    with pytest.raises(UnknownTopicOrPartition, match=r"nothing was committed.*start the query again"):
        writer(store, complete=complete).commit(messages, 0)

    assert numbers(store) == [7]
    stores._stores.clear()
    again = writer(store, complete=complete)
    again.commit(written(again, 1), 0)
    assert numbers(store) == ([1] if complete else [1, 7])


def test_a_micro_batch_of_complete_mode_that_is_committed_again_replaces_nothing(store: eoslog.Store) -> None:
    messages = written(writer(store, complete=True), 1, 2)
    writer(store, complete=True).commit(messages, 0)
    with store.producer() as producer:
        producer.send_table("out", pa.table({"n": [7]}, schema=NUMBERS))

    writer(store, complete=True).commit(messages, 0)

    assert numbers(store) == [1, 2, 7]
