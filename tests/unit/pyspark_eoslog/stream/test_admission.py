"""Admission: which files and commits fit, in which order, and what it costs to find out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import eoslog
from eoslog.format.segment_index import SegmentIndexes
from eoslog.log.replica import LogConfig
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, drain, held, produce, reader, rows, seal, step

CONFIG = eoslog.TopicConfig(segment_batches=2)


@pytest.fixture
def sealed(store: eoslog.Store) -> eoslog.Store:
    """The topic ``sealed``: two partitions of ten segments with a file each, in turn."""
    # No checkpoint comes in between, which would join the segments.
    store = eoslog.connect(store.url, fsync=False, log_config=LogConfig(checkpoint_slots=1000))
    store.admin.create_topic("sealed", partitions=2, schema=NUMBERS, config=CONFIG)
    for number in range(20):
        produce(store, number, topic="sealed", partition=number % 2)
        seal(store)
    return store


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "snapshot"])
def test_files_are_counted_over_all_partitions_in_the_order_of_the_log(sealed: eoslog.Store, isolation: str) -> None:
    stream = reader(sealed, subscribe="sealed", maxFilesPerTrigger=3, isolationLevel=isolation)

    batches, _ = drain(stream, stream.initialOffset())

    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14], [15, 16, 17], [18, 19]]


def test_a_file_larger_than_the_limit_of_bytes_is_read_alone(store: eoslog.Store) -> None:
    for number in range(3):
        produce(store, number)
    stream = reader(store, maxBytesPerTrigger=1)

    assert drain(stream, stream.initialOffset())[0] == [[0], [1], [2]]


def test_bytes_are_a_maximum_that_only_a_single_file_exceeds(store: eoslog.Store) -> None:
    for number in range(4):
        produce(store, number)
    lengths = store.read(
        lambda state, slot: [b.file.length for p in state.partitions.values() for b in p.active if b.file]
    )
    (size,) = set(lengths)

    two = reader(store, maxBytesPerTrigger=2 * size)
    almost_two = reader(store, maxBytesPerTrigger=2 * size - 1)

    assert drain(two, two.initialOffset())[0] == [[0, 1], [2, 3]]
    assert drain(almost_two, almost_two.initialOffset())[0] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"maxFilesPerTrigger": 3, "maxBytesPerTrigger": 1}, [[0], [1], [2], [3]]),
        ({"maxFilesPerTrigger": 2, "maxBytesPerTrigger": "1g"}, [[0, 1], [2, 3]]),
        ({"maxFilesPerTrigger": 3, "maxOffsetsPerTrigger": 4}, [[0, 1], [2, 3]]),
        ({"maxFilesPerTrigger": 1, "maxOffsetsPerTrigger": 4}, [[0], [1], [2], [3]]),
    ],
)
def test_of_several_limits_the_one_that_is_reached_first_counts(
    store: eoslog.Store, options: dict[str, Any], wanted: list[list[int]]
) -> None:
    for number in range(4):
        produce(store, number)
    stream = reader(store, **options)

    assert drain(stream, stream.initialOffset())[0] == wanted


def test_the_trigger_once_takes_everything_at_any_limit(sealed: eoslog.Store) -> None:
    stream = reader(sealed, subscribe="sealed", maxFilesPerTrigger=1, maxOffsetsPerTrigger=1, minOffsetsPerTrigger=99)
    start = stream.initialOffset()

    assert rows(stream, start, step(stream, start, ReadAllAvailable())) == list(range(20))


def test_aborted_rows_and_control_rows_cost_nothing(store: eoslog.Store) -> None:
    producer = store.producer("etl")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send_table("in", pa.table({"n": [number]}))
        producer.flush()
        if number % 3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    stream = reader(store, maxFilesPerTrigger=1)

    batches, position = drain(stream, stream.initialOffset())

    assert batches == [[0], [3]]
    assert position["topics"]["in"]["0"] == 12


def indexes_read(stream: EosLogStreamReader, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of index files, from now on as they are read."""
    objects, read = held(stream).object_store, []
    real = objects.get

    def get(path: str) -> Any:
        if path.endswith(".index.parquet"):
            read.append(path)
        return real(path)

    monkeypatch.setattr(objects, "get", get)
    return read


@pytest.mark.parametrize(("isolation", "ahead"), [("read_committed", 1), ("snapshot", 2)])
def test_a_micro_batch_reads_at_most_one_index_ahead_per_partition(
    sealed: eoslog.Store, isolation: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = reader(sealed, subscribe="sealed", maxFilesPerTrigger=2, isolationLevel=isolation)
    position, counted = stream.initialOffset(), []
    read = indexes_read(stream, monkeypatch)
    for _ in range(5):
        end = step(stream, position)
        stream.partitions(position, end)
        counted.append(len(read))
        position = end

    assert counted == [2 * number + ahead for number in (1, 2, 3, 4, 5)]


def test_an_index_is_not_read_again_for_files_that_had_no_room(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.admin.create_topic("wide", partitions=8, schema=NUMBERS, config=CONFIG)
    for number in range(16):
        produce(store, number, topic="wide", partition=number // 2)
    seal(store)
    stream = reader(store, subscribe="wide", maxFilesPerTrigger=1)
    first = step(stream, stream.initialOffset())
    del held(stream)._opened.kept[SegmentIndexes]
    read = indexes_read(stream, monkeypatch)

    end = step(stream, first)

    assert rows(stream, first, end) == [1]
    assert len(read) == 1


def test_a_compacted_file_is_one_file(store: eoslog.Store) -> None:
    store.admin.create_topic("small", schema=NUMBERS, config=eoslog.TopicConfig(segment_batches=40))
    for number in range(20):
        produce(store, number, topic="small")
    seal(store)
    store.admin.compact_files("small")
    stream = reader(store, subscribe="small", maxFilesPerTrigger=1)

    assert drain(stream, stream.initialOffset())[0] == [list(range(20))]


def test_a_limit_of_a_single_run_is_honoured(sealed: eoslog.Store) -> None:
    stream = reader(sealed, subscribe="sealed")

    assert drain(stream, stream.initialOffset(), ReadMaxFiles(10))[0] == [list(range(10)), list(range(10, 20))]


def test_a_snapshot_stream_with_control_rows_counts_them_and_reads_them(store: eoslog.Store) -> None:
    for number in range(3):
        produce(store, number)
    stream = reader(store, isolationLevel="snapshot", includeControlRows="true", maxOffsetsPerTrigger=2)
    start = stream.initialOffset()
    counts = []
    while (end := step(stream, start)) != start:
        parts = stream.partitions(start, end)
        counts.append(sum(batch.num_rows for part in parts for batch in stream.read(part)))
        start = end

    assert counts == [2, 2, 2]


@pytest.mark.parametrize("limit", [{"maxFilesPerTrigger": 1}, {"maxBytesPerTrigger": 1}, {"maxOffsetsPerTrigger": 1}])
def test_a_commit_over_several_topics_is_whole_at_any_limit(store: eoslog.Store, limit: dict[str, int]) -> None:
    store.admin.create_topic("more", partitions=2, schema=NUMBERS)
    with store.producer("both") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send_table("in", pa.table({"n": [number] * 2}))
            producer.send_table("more", pa.table({"n": [number] * 2, "_partition": [0, 1]}))
            producer.commit_transaction()
    for options in ({"isolationLevel": "snapshot"}, {"transactionConsistent": "true"}):
        stream = reader(store, subscribe="in,more", **limit, **options)

        assert drain(stream, stream.initialOffset())[0] == [[0] * 4, [1] * 4, [2] * 4]
