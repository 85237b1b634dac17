"""Rows of a DataFrame on their way: which columns are the topic's, and which only say where the rows were read."""

from __future__ import annotations

import pyarrow as pa

from eoslog import Store
from eoslog.format.partitioner import partition_for_key
from eoslog.producer.rows import rows_by_partition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from pyspark_eoslog.write.tasks import rows_by_topic


def _store() -> Store:
    environment = Environment()
    return Store(MemoryStore(environment), environment)


def test_the_partition_rows_were_read_from_does_not_choose_the_next() -> None:
    topic = _store().admin.create_topic("t", partitions=3, schema=pa.schema([("id", pa.string())]), key="id")
    read = pa.table(
        {
            "id": ["a", "b", "c"],
            "_topic": ["s"] * 3,
            "_partition": [9, 9, 9],
            "_offset": [1, 2, 3],
            "_timestamp": [0] * 3,
        }
    )

    ((_, rows),) = rows_by_topic(read, {"t": topic}, by_column=False, append_time_ms=0)
    dealt = {row["id"]: partition for partition, part in rows_by_partition(topic, rows, 0) for row in part.to_pylist()}

    assert dealt == {name: partition_for_key(name.encode(), 3) for name in ("a", "b", "c")}


def test_kafka_records_go_to_the_partition_in_their_column() -> None:
    topic = _store().admin.create_topic("t", partitions=3)
    read = pa.table({"key": ["a", "a"], "value": ["1", "2"], "partition": [2, 0], "offset": [7, 8]})

    ((_, rows),) = rows_by_topic(read, {"t": topic}, by_column=False, append_time_ms=0)

    assert [(place, part["value"].to_pylist()) for place, part in rows_by_partition(topic, rows, 0)] == [
        (0, [b"2"]),
        (2, [b"1"]),
    ]
