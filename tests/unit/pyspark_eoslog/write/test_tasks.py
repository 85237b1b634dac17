"""A task's upload: which rows go to which topic and partition, and what is refused before it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import eoslog
from eoslog.errors import InvalidRequest, SchemaMismatch, UnknownTopicOrPartition
from eoslog.format.partitioner import partition_for_key
from eoslog.state.producer_ids import MAX_TASKS
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import this_worker
from pyspark_eoslog.write import tasks
from pyspark_eoslog.write.sink import EosLogWriter
from pyspark_eoslog.write.tasks import TaskCommit

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Task:
    """The context of one of a job's tasks."""

    number = 0

    @classmethod
    def get(cls) -> Task:
        return cls()

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.number

    def getLocalProperty(self, name: str) -> None:  # noqa: N802 - Spark's name
        return None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[eoslog.Store]:
    monkeypatch.setattr(tasks, "TaskContext", Task)
    store = eoslog.connect(str(tmp_path / "store"))
    for topic in ("even", "odd"):
        store.admin.create_topic(topic, partitions=3)
    yield store
    this_worker().forget_stores()


def run_tasks(
    store: eoslog.Store, *tables: pa.Table, topic: str | None = None
) -> tuple[EosLogWriter, list[TaskCommit]]:
    """A write of one task for each table, up to its commit."""
    options = {"path": store.url} | ({} if topic is None else {"topic": topic})
    writer = EosLogWriter(Options.of(options), from_arrow_schema(tables[0].schema), False)
    messages = []
    for number, table in enumerate(tables):
        Task.number = number
        message: Any = writer.write(iter(table.to_batches()))
        messages.append(message)
    return writer, messages


def write(store: eoslog.Store, *tables: pa.Table, topic: str | None = None) -> None:
    writer, messages = run_tasks(store, *tables, topic=topic)
    writer.commit(list(messages))


def places(store: eoslog.Store, topic: str) -> list[tuple[int, bytes]]:
    found = store.scan(topic, columns=["value", "partition"]).to_table().to_pylist()
    return sorted((row["partition"], row["value"]) for row in found)


def test_rows_choose_their_topics_and_all_are_committed_in_one_slot(store: eoslog.Store) -> None:
    before = store.read(lambda state, slot: slot)

    write(store, pa.table({"topic": ["even", "odd", "even"], "value": ["0", "1", "2"], "partition": [0, 1, 2]}))

    assert store.read(lambda state, slot: slot) == before + 1
    assert places(store, "even") == [(0, b"0"), (2, b"2")]
    assert places(store, "odd") == [(1, b"1")]


@pytest.mark.parametrize(
    ("topic", "message"), [(None, "column 'topic' is null"), ("neither", "'neither'.*are: even, odd")]
)
def test_a_row_without_a_topic_or_of_an_unknown_one_is_refused(
    store: eoslog.Store, topic: str | None, message: str
) -> None:
    rows = pa.table({"topic": pa.array(["even", topic], pa.string()), "value": ["0", "1"]})

    with pytest.raises(UnknownTopicOrPartition, match=message):
        run_tasks(store, rows)


@pytest.mark.parametrize("partition", [-1, 3, 2**40])
def test_a_partition_that_the_topic_has_not_is_refused_by_its_number(store: eoslog.Store, partition: int) -> None:
    rows = pa.table({"value": ["0", "1"], "partition": pa.array([0, partition], pa.int64())})

    with pytest.raises(UnknownTopicOrPartition, match=f"topic even has partitions 0 to 2, not {partition}$"):
        run_tasks(store, rows, topic="even")


def test_a_rows_partition_is_its_own_its_keys_or_its_tasks(store: eoslog.Store) -> None:
    keys = pa.array(["k", "k", None, None], pa.string())
    rows = pa.table({"key": keys, "value": ["a", "b", "c", "d"], "partition": pa.array([0, None, 1, None], pa.int32())})

    write(store, rows, rows, topic="even")

    of_key = partition_for_key(b"k", 3)
    expected = [(0, b"a"), (of_key, b"b"), (1, b"c")] * 2 + [(0, b"d"), (1, b"d")]
    assert places(store, "even") == sorted(expected)


def write_as(store: eoslog.Store, number: int) -> None:
    """A write whose only task has this number."""
    rows = pa.table({"value": ["a"], "partition": pa.array([0], pa.int32())})
    writer = EosLogWriter(Options.of({"path": store.url, "topic": "even"}), from_arrow_schema(rows.schema), False)
    Task.number = number
    message: Any = writer.write(iter(rows.to_batches()))
    writer.commit([message])


def data_files(store: eoslog.Store) -> list[str]:
    topic = store.admin.describe_topic("even")
    return [each.path for each in store.object_store.list(f"even/{topic.topic_id}/")]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("number", [MAX_TASKS - 2, MAX_TASKS - 1])
def test_the_last_tasks_of_the_largest_job_are_committed(store: eoslog.Store, number: int) -> None:
    write_as(store, number)

    assert places(store, "even") == [(0, b"a")]
    assert len(data_files(store)) == 1


def test_a_task_beyond_the_largest_job_is_refused_before_it_uploads(store: eoslog.Store) -> None:
    with pytest.raises(InvalidRequest, match=f"a job has at most {MAX_TASKS} tasks"):
        write_as(store, MAX_TASKS)

    assert data_files(store) == []


@pytest.mark.parametrize("key", ["k", b"k"])
def test_text_and_bytes_of_large_arrow_types_are_written(store: eoslog.Store, key: str | bytes) -> None:
    """Spark passes large types with ``spark.sql.execution.arrow.useLargeVarTypes``."""
    text, binary = pa.large_string(), pa.large_binary()
    headers = pa.array([[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", text), ("value", binary)])))
    columns = {
        "topic": pa.array(["even"], text),
        "key": pa.array([key], text if isinstance(key, str) else binary),
        "value": pa.array(["v"], text),
        "headers": headers,
    }

    write(store, pa.table(columns))

    (row,) = store.scan("even", columns=["key", "value", "headers"]).to_table().to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (b"k", b"v", [{"key": "h", "value": b"1"}])


def test_headers_and_timestamps_are_written(store: eoslog.Store) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], HEADERS)
    times = pa.array([5_000, None], pa.timestamp("us", tz="UTC"))

    write(store, pa.table({"value": ["a", "b"], "headers": headers, "timestamp": times}), topic="even")

    found = store.scan("even", columns=["value", "headers", "timestamp"]).to_table()
    first, second = sorted(found.to_pylist(), key=lambda row: row["value"])
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert first["timestamp"].timestamp() == 0.005
    assert second["headers"] is None
    assert second["timestamp"].timestamp() > 1


def test_tasks_without_rows_take_part_and_upload_nothing(store: eoslog.Store) -> None:
    some, none = pa.table({"value": ["a"]}), pa.table({"value": pa.array([], pa.string())})
    before = store.read(lambda state, slot: slot)

    writer, messages = run_tasks(store, none, some, none, topic="even")
    writer.commit(list(messages))
    write(store, none, topic="even")

    assert [len(message.files) for message in messages] == [0, 1, 0]
    assert store.read(lambda state, slot: slot) == before + 2
    assert len(places(store, "even")) == 1


def test_a_wrong_column_is_refused_before_the_tasks_run(store: eoslog.Store) -> None:
    with pytest.raises(SchemaMismatch, match="column 'value' is missing"):
        run_tasks(store, pa.table({"key": ["a"]}), topic="even")


def test_the_rows_of_many_batches_keep_their_order(store: eoslog.Store) -> None:
    values = [str(number) for number in range(200_000)]
    many = pa.table({"value": values}).combine_chunks().to_batches(max_chunksize=9_000)

    write(store, pa.Table.from_batches(many), topic="even")

    found = store.scan("even", columns=["value"]).to_table()["value"].to_pylist()
    assert [int(value) for value in found] == list(range(200_000))
