"""A micro-batch that did not land is repeated from where it began, though Spark has forgotten where that was.

Of the first micro-batch Spark writes down the end alone, and asks a new reader for the initial offset when it repeats
it.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import eoslog
from eoslog.errors import OffsetOutOfRange
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, drain, produce, reader, rows, step

LEVELS = pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])


def repeated(store: eoslog.Store, end: Any, **options: Any) -> list[int]:
    """What the first micro-batch reads when a new process repeats it."""
    stream = reader(store, **options)
    return rows(stream, stream.initialOffset(), json.loads(json.dumps(end)))


def delete_below(store: eoslog.Store, offset: int, topic: str = "in", partition: int = 0) -> None:
    store.admin.delete_records({eoslog.TopicPartition(topic, partition): offset})


@LEVELS
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 2}, {"maxFilesPerTrigger": 1}])
def test_a_first_micro_batch_from_the_latest_on_is_repeated_whole(
    store: eoslog.Store, isolation: str, limit: dict[str, int]
) -> None:
    options = {"startingOffsets": "latest", "isolationLevel": isolation, **limit}
    produce(store, 0)
    stream = reader(store, **options)
    start = stream.initialOffset()
    produce(store, 1, 2)
    produce(store, 3, 4)
    end = step(stream, start)
    produce(store, 5)

    read = rows(stream, start, end)

    assert read[:2] == [1, 2]
    assert repeated(store, end, **options) == read
    assert read + [row for batch in drain(reader(store, **options), end)[0] for row in batch] == [1, 2, 3, 4, 5]


def test_a_first_micro_batch_from_a_time_on_is_repeated_whole(store: eoslog.Store) -> None:
    options = {"startingTimestamp": int(time.time() * 1000) + 3_600_000, "startingOffsetsByTimestampStrategy": "latest"}
    produce(store, 0)
    stream = reader(store, **options)
    start = stream.initialOffset()
    produce(store, 1)
    end = step(stream, start)
    produce(store, 2)

    assert repeated(store, end, **options) == rows(stream, start, end) == [1]


def test_a_first_micro_batch_of_an_available_now_run_is_repeated_whole(store: eoslog.Store) -> None:
    stream = reader(store, startingOffsets="latest")
    start = stream.initialOffset()
    produce(store, 1)
    stream.prepareForTriggerAvailableNow()
    end = step(stream, start)
    produce(store, 2)
    again = reader(store, startingOffsets="latest")
    again.prepareForTriggerAvailableNow()

    assert rows(again, again.initialOffset(), end) == [1]
    assert drain(again, end)[0] == [[2]]


@LEVELS
def test_an_empty_first_micro_batch_is_repeated_empty(store: eoslog.Store, isolation: str) -> None:
    """Spark runs the first one whatever there is; what comes after it is the second one's."""
    options = {"startingOffsets": "latest", "isolationLevel": isolation}
    produce(store, 0)
    stream = reader(store, **options)
    start = stream.initialOffset()
    end = step(stream, start)
    produce(store, 1)

    assert end == start
    assert repeated(store, end, **options) == []
    assert drain(reader(store, **options), end)[0] == [[1]]


@LEVELS
def test_an_idle_stream_keeps_the_text_of_its_offsets(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, startingOffsets="latest", isolationLevel=isolation)
    start = stream.initialOffset()
    produce(store, 1)
    end = step(stream, start)

    assert json.dumps(step(reader(store, isolationLevel=isolation), end)) == json.dumps(end)


@LEVELS
def test_between_an_end_and_itself_lies_nothing(store: eoslog.Store, isolation: str) -> None:
    """Spark asks for that at each restart, and what was read may be gone by then."""
    stream = reader(store, isolationLevel=isolation)
    start = stream.initialOffset()
    produce(store, 1)
    end = step(stream, start)
    delete_below(store, 1)

    assert rows(reader(store, isolationLevel=isolation), end, end) == []


@LEVELS
def test_the_second_micro_batch_does_not_say_again_where_the_stream_began(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, isolationLevel=isolation)
    produce(store, 1)
    first = step(stream, stream.initialOffset())
    produce(store, 2)

    second = step(stream, first)

    assert "began" in first
    assert second.keys() & {"began", "initial"} == set()


@LEVELS
def test_repeating_a_first_micro_batch_tells_of_rows_deleted_since(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, isolationLevel=isolation)
    produce(store, 1)
    produce(store, 2)
    end = step(stream, stream.initialOffset())
    delete_below(store, 1)

    with pytest.raises(OffsetOutOfRange, match="deleted before they were read"):
        repeated(store, end, isolationLevel=isolation)
    assert repeated(store, end, isolationLevel=isolation, failOnDataLoss="false") == [2]


@LEVELS
def test_repeating_a_later_micro_batch_tells_of_rows_deleted_since(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, isolationLevel=isolation)
    produce(store, 0)
    begin = step(stream, stream.initialOffset())
    produce(store, 1)
    produce(store, 2)
    end = step(stream, begin)
    delete_below(store, 3)

    with pytest.raises(OffsetOutOfRange, match="deleted before they were read"):
        rows(reader(store, isolationLevel=isolation), begin, end)
    assert rows(reader(store, isolationLevel=isolation, failOnDataLoss="false"), begin, end) == [2]


@LEVELS
def test_rows_deleted_before_an_earliest_stream_began_are_no_loss(store: eoslog.Store, isolation: str) -> None:
    produce(store, 1)
    delete_below(store, 1)
    produce(store, 2)
    stream = reader(store, isolationLevel=isolation)
    start = stream.initialOffset()
    end = step(stream, start)

    assert repeated(store, end, isolationLevel=isolation) == rows(stream, start, end) == [2]


@LEVELS
@pytest.mark.parametrize("joins", ["topic", "partition"])
def test_rows_that_were_deleted_before_their_topic_or_partition_joined_are_told(
    store: eoslog.Store, isolation: str, joins: str
) -> None:
    """Kafka's connector: "Added partition ... starts from ... instead of 0. Some data may have been missed"."""
    options = (
        {"subscribe": "in,more", "isolationLevel": isolation} if joins == "topic" else {"isolationLevel": isolation}
    )
    produce(store, 0)
    before = reader(store, isolationLevel=isolation)
    begin = step(before, before.initialOffset())
    topic, partition = ("more", 0) if joins == "topic" else ("in", 1)
    if joins == "topic":
        store.admin.create_topic("more", schema=NUMBERS)
    else:
        store.admin.create_partitions("in", 2)
    produce(store, 1, topic=topic, partition=partition)
    produce(store, 2, topic=topic, partition=partition)
    delete_below(store, 1, topic, partition)
    stream = reader(store, **options)
    end = step(stream, begin)

    with pytest.raises(OffsetOutOfRange, match="deleted before they were read"):
        rows(stream, begin, end)
    assert drain(reader(store, failOnDataLoss="false", **options), begin)[0] == [[2]]


@LEVELS
def test_repeating_a_topics_first_micro_batch_tells_of_rows_deleted_since(store: eoslog.Store, isolation: str) -> None:
    options = {"subscribePattern": "in|more", "isolationLevel": isolation}
    stream = reader(store, **options)
    produce(store, 0)
    begin = step(stream, stream.initialOffset())
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, 1, topic="more")
    produce(store, 2, topic="more")
    end = step(stream, begin)
    delete_below(store, 1, "more")

    with pytest.raises(OffsetOutOfRange, match="deleted before they were read"):
        rows(reader(store, **options), begin, end)
    assert rows(reader(store, failOnDataLoss="false", **options), begin, end) == [2]


@LEVELS
def test_an_earlier_versions_first_micro_batch_starts_at_the_initial_offset(
    store: eoslog.Store, isolation: str
) -> None:
    produce(store, 1)
    stream = reader(store, isolationLevel=isolation)
    end = step(stream, stream.initialOffset())
    del end["began"]

    assert repeated(store, end, isolationLevel=isolation) == [1]
