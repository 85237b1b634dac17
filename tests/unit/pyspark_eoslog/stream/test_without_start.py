"""Streams of PySpark before 4.2: Spark does not tell where a micro-batch starts when it asks for its end."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import eoslog
from eoslog.errors import (
    EosLogError,
    InvalidOption,
    OffsetOutOfRange,
    SchemaMismatch,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from pyspark_eoslog.stream import stream_reader
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, produce, reader, rows
from tests.unit.support.transactions import open_transaction

LEVELS = pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])


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


def test_a_running_stream_reads_a_topic_that_was_created_again_and_is_shorter(store: eoslog.Store) -> None:
    for number in range(5):
        produce(store, number, partition=0)
    stream = reader(store, startingOffsets="latest", failOnDataLoss=False)
    first = end_of(stream)
    start = stream.initialOffset()
    store.admin.delete_topic("in")
    store.admin.create_topic("in", schema=NUMBERS)
    produce(store, 7, partition=0)
    second = end_of(stream)

    assert rows(stream, first, second) == [7]
    assert rows(stream, start, second) == [7]


def test_a_start_beyond_the_visible_rows_is_refused(store: eoslog.Store) -> None:
    """Rows of an open transaction before the start would have to be skipped once they are committed."""
    with open_transaction(store, "open") as producer:
        producer.send_table("in", pa.table({"n": [1, 2], "_partition": [0, 0]}))
        producer.flush()
        stream = reader(store, startingOffsets='{"in": {"0": 2}}')
        end_of(stream)
        with pytest.raises(OffsetOutOfRange, match=r"in-0 .*offset 2.* end.* at 0.*needs PySpark 4\.2"):
            stream.initialOffset()
        producer.commit_transaction()


def test_a_restarted_stream_with_a_later_start_leaves_open_transactions_for_later(store: eoslog.Store) -> None:
    produce(store, 0, partition=0)
    end = end_of(reader(store))
    with open_transaction(store, "open") as producer:
        producer.send_table("in", pa.table({"n": [1, 2], "_partition": [0, 0]}))
        producer.flush()
        restarted = reader(store, startingOffsets='{"in": {"0": 4}}')
        second = end_of(restarted)
        producer.commit_transaction()

    assert rows(restarted, end, second) == []
    assert rows(restarted, second, end_of(restarted)) == [1, 2]


def test_a_new_stream_of_a_missing_topic_is_refused_whatever_may_be_lost(store: eoslog.Store) -> None:
    options = {"subscribe": "in,missing", "failOnDataLoss": False}
    produce(store, 0)
    end = end_of(reader(store, failOnDataLoss=False))
    produce(store, 1)
    stream = reader(store, **options)

    assert rows(stream, end, end_of(stream)) == [1]
    with pytest.raises(UnknownTopicOrPartition, match="missing"):
        stream.initialOffset()


def test_a_start_that_was_refused_once_stays_refused(store: eoslog.Store) -> None:
    """The end of the first micro-batch does not have it, so rows before it would be read."""
    stream = reader(store, startingOffsets='{"in": {"0": 2}}')
    end_of(stream)
    produce(store, 0, 1, 2)

    with pytest.raises(OffsetOutOfRange, match="startingOffsets"):
        stream.initialOffset()


def test_an_outage_while_the_start_is_looked_up_is_waited_for(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end without its start would skip rows if the first micro-batch is repeated."""
    answers: list[EosLogError] = [StoreUnavailable("no answer")]

    def first_offsets(*arguments: Any) -> Any:
        if answers:
            raise answers.pop()
        return look_up(*arguments)

    look_up = stream_reader.first_offsets
    monkeypatch.setattr(stream_reader, "first_offsets", first_offsets)
    produce(store, 0)
    stream = reader(store, startingOffsets="latest")
    end_of(stream)
    produce(store, 1)
    end = end_of(stream)
    again = reader(store, startingOffsets="latest")

    assert rows(again, again.initialOffset(), end) == [1]


@LEVELS
def test_a_matching_topic_of_other_columns_ends_the_stream_before_joining(store: eoslog.Store, isolation: str) -> None:
    options = {"subscribePattern": ".*", "isolationLevel": isolation}
    stream = reader(store, **options)
    produce(store, 0)
    position = end_of(stream)
    store.admin.create_topic("words", schema=pa.schema([pa.field("word", pa.string())]))
    produce(store, 1)

    for each in (stream, reader(store, **options)):
        with pytest.raises(SchemaMismatch, match="topic words has no column 'n'"):
            end_of(each)
    narrower = reader(store, subscribePattern="i.*", isolationLevel=isolation)
    assert rows(narrower, position, end_of(narrower)) == [1]


@pytest.mark.parametrize("options", [{"subscribe": "in"}, {"assign": '{"in": [0], "in-2": [0]}'}])
def test_topics_and_partitions_that_are_no_longer_read_are_named_with_the_way_back(
    store: eoslog.Store, options: dict[str, str]
) -> None:
    store.admin.create_topic("in-2", partitions=2, schema=NUMBERS)
    produce(store, 1)
    end = end_of(reader(store, subscribe="in,in-2"))
    narrower = reader(store, **options)

    with pytest.raises(InvalidOption, match=r"in-2.* no longer read.* delete the newest file .*'offsets'"):
        narrower.partitions(end, end_of(narrower))


def test_a_stricter_isolation_level_does_not_read_rows_again(store: eoslog.Store) -> None:
    produce(store, 1, partition=0)
    with open_transaction(store, "open") as producer:
        producer.send_table("in", pa.table({"n": [2], "_partition": [0]}))
        producer.flush()
        end = end_of(reader(store, isolationLevel="read_uncommitted"))
        stream = reader(store)
        with pytest.raises(OffsetOutOfRange, match=r"another isolation level.* newest file .*'offsets'"):
            rows(stream, end, end_of(stream))
        producer.commit_transaction()


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_refused_by_name(store: eoslog.Store, option: str) -> None:
    with pytest.raises(InvalidOption, match=rf"{option}.* needs PySpark 4\.2 or later"):
        reader(store, **{option: 1})
