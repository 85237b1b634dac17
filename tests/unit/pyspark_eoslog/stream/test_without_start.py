"""Streams of PySpark before 4.2: Spark does not tell where a micro-batch starts when it asks for its end."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import eoslog
from eoslog.errors import InvalidOption, OffsetOutOfRange, UnknownTopicOrPartition
from pyspark_eoslog.stream import stream_reader
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, produce, reader, rows

LEVELS = pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "snapshot"])


@pytest.fixture(autouse=True)
def older_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "is_at_least", lambda *_: False)


def end_of(stream: EosLogStreamReader) -> Any:
    """The end of the next micro-batch, as Spark keeps it."""
    return json.loads(json.dumps(stream.latestOffset()))


@LEVELS
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_micro_batches_follow_each_other(store: eoslog.Store, isolation: str, starting: str) -> None:
    options = {"startingOffsets": starting, "isolationLevel": isolation}
    produce(store, 0)
    stream = reader(store, **options)
    first = end_of(stream)
    start = stream.initialOffset()
    produce(store, 1, 2)
    second = end_of(stream)
    restarted = reader(store, **options)
    produce(store, 3)
    third = end_of(restarted)

    assert rows(stream, start, first) == ([0] if starting == "earliest" else [])
    assert rows(stream, first, second) == [1, 2]
    assert rows(restarted, second, third) == [3]
    assert rows(restarted, third, end_of(restarted)) == []


@LEVELS
def test_a_first_micro_batch_is_repeated_from_where_it_began(store: eoslog.Store, isolation: str) -> None:
    options = {"startingOffsets": "latest", "isolationLevel": isolation}
    produce(store, 0)
    stream = reader(store, **options)
    before = end_of(stream)
    produce(store, 1)
    end = end_of(stream)
    produce(store, 2)
    again = reader(store, **options)
    end_of(again)

    assert rows(again, again.initialOffset(), end) == [1]
    assert before != end


@LEVELS
def test_a_restarted_stream_reads_new_topics_and_partitions_from_their_first_offset(
    store: eoslog.Store, isolation: str
) -> None:
    options = {"subscribePattern": "in.*", "startingOffsets": "latest", "isolationLevel": isolation}
    end = end_of(reader(store, **options))
    store.admin.create_partitions("in", 3)
    produce(store, 1, partition=2)
    store.admin.create_topic("in-2", schema=NUMBERS)
    produce(store, 2, topic="in-2")
    restarted = reader(store, **options)

    assert rows(restarted, end, end_of(restarted)) == [1, 2]


def test_a_restarted_stream_does_not_need_its_starting_offsets(store: eoslog.Store) -> None:
    options = {"startingOffsets": '{"in": {"0": 0, "1": 0}}'}
    stream = reader(store, **options)
    end = end_of(stream)
    store.admin.create_partitions("in", 3)
    produce(store, 1, partition=2)
    restarted = reader(store, **options)

    assert rows(restarted, end, end_of(restarted)) == [1]
    with pytest.raises(InvalidOption, match="startingOffsets"):
        restarted.initialOffset()


def test_commits_to_other_topics_are_no_reason_for_a_micro_batch(store: eoslog.Store) -> None:
    store.admin.create_topic("out", schema=NUMBERS)
    produce(store, 1)
    stream = reader(store, isolationLevel="snapshot")
    end = end_of(stream)
    produce(store, 1, topic="out")

    assert end_of(stream) == end


@LEVELS
def test_a_topic_that_was_created_again_ends_the_stream(store: eoslog.Store, isolation: str) -> None:
    produce(store, 1)
    end = end_of(reader(store, isolationLevel=isolation))
    store.admin.delete_topic("in")
    store.admin.create_topic("in", schema=NUMBERS)
    produce(store, 2)
    restarted = reader(store, isolationLevel=isolation)
    lossy = reader(store, isolationLevel=isolation, failOnDataLoss=False)

    with pytest.raises(UnknownTopicOrPartition, match="deleted and created again"):
        rows(restarted, end, end_of(restarted))
    assert rows(lossy, end, end_of(lossy)) == [2]


def test_a_stricter_isolation_level_does_not_read_rows_again(store: eoslog.Store) -> None:
    produce(store, 1, partition=0)
    with store.producer("open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_table("in", pa.table({"n": [2], "_partition": [0]}))
        producer.flush()
        end = end_of(reader(store, isolationLevel="read_uncommitted"))
        stream = reader(store)
        with pytest.raises(OffsetOutOfRange, match="another isolation level"):
            rows(stream, end, end_of(stream))
        producer.commit_transaction()


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_refused_by_name(store: eoslog.Store, option: str) -> None:
    with pytest.raises(InvalidOption, match=rf"{option}.* needs PySpark 4\.2 or later"):
        reader(store, **{option: 1})
