"""Which topics and partitions a stream reads, from where on, and what it does when they come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eoslog
from eoslog.errors import InvalidOption, OffsetOutOfRange, SchemaMismatch, UnknownTopicOrPartition
from eoslog.state.jobs import replace_rows
from pyspark_eoslog.data_source import DefaultSource
from tests.requests import Applying
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, drain, produce, reader, rows, step

LEVELS = pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])


@LEVELS
@pytest.mark.parametrize("limit", [{}, {"maxFilesPerTrigger": 1}])
def test_a_topic_that_begins_to_match_is_read_from_its_beginning(
    store: eoslog.Store, isolation: str, limit: dict[str, int]
) -> None:
    stream = reader(store, subscribePattern="in|new.*", isolationLevel=isolation, **limit)
    produce(store, 0)
    _, position = drain(stream, stream.initialOffset())
    store.admin.create_topic("new-1", schema=NUMBERS)
    store.admin.create_topic("other", schema=NUMBERS)
    produce(store, 1, topic="new-1")
    produce(store, 9, topic="other")
    produce(store, 2, topic="new-1")

    batches, end = drain(stream, position)

    assert sorted(number for batch in batches for number in batch) == [1, 2]
    assert sorted(end["topics"]) == ["in", "new-1"]
    again = reader(store, subscribePattern="in|new.*", isolationLevel=isolation, **limit)
    assert rows(again, position, end) == [1, 2]


@LEVELS
def test_a_matching_topic_of_other_columns_ends_the_stream_before_joining(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, subscribePattern=".*", isolationLevel=isolation)
    produce(store, 0)
    _, position = drain(stream, stream.initialOffset())
    store.admin.create_topic("words", schema=pa.schema([pa.field("word", pa.string())]))
    produce(store, 1)

    with pytest.raises(SchemaMismatch, match="topic words has no column 'n'"):
        step(stream, position)
    assert drain(reader(store, subscribePattern="i.*", isolationLevel=isolation), position)[0] == [[1]]


def test_a_topic_without_rows_begins_no_micro_batch_of_a_snapshot_stream(store: eoslog.Store) -> None:
    stream = reader(store, subscribePattern="in|new.*", isolationLevel="snapshot")
    produce(store, 0)
    _, position = drain(stream, stream.initialOffset())

    store.admin.create_topic("new-1", schema=NUMBERS)

    assert step(stream, position) == position
    produce(store, 1, topic="new-1")
    assert drain(stream, position)[0] == [[1]]


@LEVELS
def test_a_pattern_may_match_nothing_at_first(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, subscribePattern="new.*", isolationLevel=isolation, startingOffsets="latest")
    start = stream.initialOffset()
    assert step(stream, start) == start
    store.admin.create_topic("new", schema=NUMBERS)
    produce(store, 1, topic="new")

    assert drain(stream, start)[0] == [[1]]


@LEVELS
def test_a_deleted_topic_ends_the_stream_unless_it_may_be_lost(store: eoslog.Store, isolation: str) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, 0, topic="more")
    strict = [
        reader(store, **each, isolationLevel=isolation)
        for each in ({"subscribe": "in,more"}, {"subscribePattern": ".*"})
    ]
    _, position = drain(strict[0], strict[0].initialOffset())
    store.admin.delete_topic("more")
    produce(store, 1)

    for stream in strict:
        with pytest.raises(UnknownTopicOrPartition, match="topic more is in the checkpoint but was deleted"):
            step(stream, position)
    for options in ({"subscribePattern": "in|more"}, {"subscribe": "in"}):
        lenient = reader(store, **options, isolationLevel=isolation, failOnDataLoss="false")
        batches, end = drain(lenient, position)
        assert batches == [[1]]
        assert list(end["topics"]) == ["in"]


@LEVELS
def test_a_topic_named_by_subscribe_may_go_and_come_while_running(store: eoslog.Store, isolation: str) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    stream = reader(store, subscribe="in,more", isolationLevel=isolation, failOnDataLoss="false")
    _, position = drain(stream, stream.initialOffset())
    store.admin.delete_topic("more")
    produce(store, 1)
    batches, position = drain(stream, position)
    assert [batch for batch in batches if batch] == [[1]]
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, 2, topic="more")

    assert [batch for batch in drain(stream, position)[0] if batch] == [[2]]


def test_a_stream_that_may_lose_a_topic_knows_its_columns_without_it(store: eoslog.Store) -> None:
    options = {"path": store.url, "subscribe": "in,gone"}

    assert DefaultSource({**options, "failOnDataLoss": "false"}).schema().names[0] == "n"
    with pytest.raises(UnknownTopicOrPartition, match="'gone'"):
        DefaultSource(options).schema()
    with pytest.raises(UnknownTopicOrPartition, match="'gone'"):
        DefaultSource({**options, "subscribe": "gone", "failOnDataLoss": "false"}).schema()


@LEVELS
def test_a_deleted_topic_that_nobody_writes_to_is_told_once(
    store: eoslog.Store, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    stream = reader(store, subscribePattern="in|more", isolationLevel=isolation, failOnDataLoss="false")
    produce(store, 0, topic="more")
    _, position = drain(stream, stream.initialOffset())
    store.admin.delete_topic("more")

    _, position = drain(stream, position)
    for _ in range(3):
        assert step(stream, position) == position

    assert len([each for each in caplog.messages if "topic more is in the checkpoint but was deleted" in each]) == 1


@LEVELS
def test_a_recreated_topic_ends_the_stream_unless_loss_is_accepted(store: eoslog.Store, isolation: str) -> None:
    strict = reader(store, isolationLevel=isolation)
    produce(store, 0, 1, 2)
    _, position = drain(strict, strict.initialOffset())
    store.admin.delete_topic("in")
    store.admin.create_topic("in", schema=NUMBERS)
    produce(store, 3)

    with pytest.raises(
        UnknownTopicOrPartition, match=r"topic in was deleted and created again .* failOnDataLoss=false"
    ):
        step(strict, position)
    lenient = reader(store, isolationLevel=isolation, failOnDataLoss="false")
    end = step(lenient, position)
    assert rows(lenient, position, end) == [3]
    assert rows(reader(store, isolationLevel=isolation, failOnDataLoss="false"), position, end) == [3]


@LEVELS
def test_a_topic_is_deleted_between_a_micro_batchs_end_and_plan(store: eoslog.Store, isolation: str) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    produce(store, 0, topic="more")
    produce(store, 1)
    stream = reader(store, subscribe="in,more", isolationLevel=isolation)
    start = stream.initialOffset()
    end = step(stream, start)
    store.admin.delete_topic("more")

    with pytest.raises(UnknownTopicOrPartition, match="the repeated micro-batch reads topic more"):
        rows(reader(store, subscribePattern=".*", isolationLevel=isolation), start, end)
    lenient = reader(store, subscribePattern=".*", isolationLevel=isolation, failOnDataLoss="false")
    assert rows(lenient, start, end) == [1]


def test_a_topic_cannot_join_a_snapshot_stream_after_the_fact(store: eoslog.Store) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    alone = reader(store, isolationLevel="snapshot")
    produce(store, 0)
    _, position = drain(alone, alone.initialOffset())

    with pytest.raises(InvalidOption, match="topic more was not part of this stream"):
        step(reader(store, subscribe="in,more", isolationLevel="snapshot"), position)


def test_only_assigned_partitions_are_read(store: eoslog.Store) -> None:
    store.admin.create_partitions("in", 3)
    for partition in range(3):
        produce(store, partition, partition=partition)
    stream = reader(store, assign='{"in": [0, 2]}')

    batches, end = drain(stream, stream.initialOffset())
    store.admin.create_partitions("in", 4)

    assert sorted(batches[0]) == [0, 2]
    assert sorted(end["topics"]["in"]) == ["0", "2", "topic_id"]
    assert step(stream, end) == end
    wider = reader(store, assign='{"in": [0, 1, 2]}')
    assert rows(wider, end, step(wider, end)) == [1]
    with pytest.raises(InvalidOption, match="partition in-2 is in the checkpoint but no longer read"):
        step(reader(store, assign='{"in": [0]}'), end)
    narrower = reader(store, assign='{"in": [0]}', failOnDataLoss="false")
    assert sorted(step(narrower, end)["topics"]["in"]) == ["0", "topic_id"]


def test_a_name_that_was_never_there_is_told(store: eoslog.Store) -> None:
    start = reader(store).initialOffset()

    for options in ({"subscribe": "in,typo"}, {"assign": '{"in": [0, 1]}'}):
        with pytest.raises(UnknownTopicOrPartition):
            reader(store, **options, failOnDataLoss="false").initialOffset()
        with pytest.raises(UnknownTopicOrPartition):
            step(reader(store, **options), start)


def test_assigned_partitions_may_go_with_their_topic(store: eoslog.Store) -> None:
    store.admin.create_partitions("in", 2)
    produce(store, 0, partition=1)
    stream = reader(store, assign='{"in": [0, 1]}', failOnDataLoss="false")
    _, position = drain(stream, stream.initialOffset())
    store.admin.delete_topic("in")
    store.admin.create_topic("in", schema=NUMBERS)
    produce(store, 1)

    batches, position = drain(stream, position)

    assert batches == [[1]]
    assert sorted(position["topics"]["in"]) == ["0", "topic_id"]


def test_assigned_partitions_need_offsets(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match="option 'assign' counts offsets"):
        reader(store, assign='{"in": [0]}', isolationLevel="snapshot")


def test_a_stream_begins_at_a_time(store: eoslog.Store) -> None:
    produce(store, 1)
    first = store.scan("in", columns=["_timestamp"]).to_table()["_timestamp"][0].as_py()
    produce_later(store, 2)
    time_ms = int(first.timestamp() * 1000) + 1

    for options in (
        {"startingTimestamp": time_ms},
        {"startingOffsetsByTimestamp": json.dumps({"in": {"0": time_ms}})},
    ):
        stream = reader(store, **options)
        assert drain(stream, stream.initialOffset())[0] == [[2]]
    future = {"startingTimestamp": time_ms + 10**9}
    with pytest.raises(OffsetOutOfRange, match="no row with a timestamp of"):
        reader(store, **future).initialOffset()
    late = reader(store, **future, startingOffsetsByTimestampStrategy="latest")
    start = late.initialOffset()
    produce(store, 3)
    assert drain(late, start)[0] == [[3]]


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_snapshot_stream_does_not_begin_at_a_time(store: eoslog.Store, option: str) -> None:
    value = {"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"in": {"0": 1}}'}[option]

    with pytest.raises(InvalidOption, match=f"option '{option}' counts offsets"):
        reader(store, isolationLevel="snapshot", **{option: value})


@pytest.mark.parametrize("option", ["slot", "versionAsOf", "timestampAsOf", "endingOffsets", "endingTimestamp"])
def test_options_of_batches_are_refused(store: eoslog.Store, option: str) -> None:
    value = "latest" if option == "endingOffsets" else "1"

    with pytest.raises(InvalidOption, match=f"option '{option}' is for batch reads"):
        reader(store, **{option: value})


@LEVELS
@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 1}, {"maxFilesPerTrigger": 1}])
def test_a_deleted_stretch_is_skipped_at_once_if_loss_is_accepted(
    store: eoslog.Store, isolation: str, limit: dict[str, int]
) -> None:
    stream = reader(store, isolationLevel=isolation, failOnDataLoss="false", **limit)
    start = stream.initialOffset()
    for number in range(20):
        produce(store, number)
    topic_id = store.admin.describe_topic("in").topic_id
    store.append(Applying(lambda draft: replace_rows(draft, topic_id)))
    produce(store, 20)

    end = step(stream, start)

    assert rows(stream, start, end) == [20]


def test_an_old_checkpoint_is_read(store: eoslog.Store) -> None:
    """The texts that Spark's offset logs hold since the first version."""
    produce(store, 1, 2, 3)
    store_id = store.describe().store_id
    topic_id = store.admin.describe_topic("in").topic_id
    by_offset: Any = json.loads(
        f'{{"store_id": "{store_id}", "topics": {{"in": {{"topic_id": "{topic_id}", "0": 1}}}}}}'
    )
    by_slot: Any = json.loads(
        f'{{"store_id": "{store_id}", "slot": 2, "topics": {{"in": {{"topic_id": "{topic_id}"}}}}}}'
    )

    assert drain(reader(store), by_offset)[0] == [[2, 3]]
    assert drain(reader(store, isolationLevel="snapshot"), by_slot)[0] == [[1, 2, 3]]


def produce_later(store: eoslog.Store, number: int) -> None:
    """Write a row whose batch is at least two milliseconds younger than all before."""
    begun = store.now_ms()
    while store.now_ms() < begun + 2:
        pass
    with store.producer() as producer:
        producer.send_table("in", pa.table({"n": [number]}))


@pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])
def test_a_stream_continues_on_a_copy_with_the_same_identity_only(
    store: eoslog.Store, tmp_path: Path, isolation: str
) -> None:
    produce(store, 1)
    first = reader(store, isolationLevel=isolation)
    _, end = drain(first, first.initialOffset())
    same, new = eoslog.connect(tmp_path / "same"), eoslog.connect(tmp_path / "new")
    store.admin.copy(same)
    store.admin.copy(new, new_identity=True)

    produce(same, 2)
    produce(new, 3)

    assert drain(reader(same, isolationLevel=isolation), end)[0] == [[2]]
    with pytest.raises(UnknownTopicOrPartition, match="the checkpoint belongs to the store"):
        drain(reader(new, isolationLevel=isolation), end)


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "snapshot"])
def test_a_stream_that_has_read_beyond_the_end_of_a_copy_is_refused(
    store: eoslog.Store, tmp_path: Path, isolation: str, fails: str
) -> None:
    produce(store, 1)
    copy = eoslog.connect(tmp_path / "copy")
    store.admin.copy(copy)
    for number in range(2, 6):
        produce(store, number)
    first = reader(store, isolationLevel=isolation)
    _, end = drain(first, first.initialOffset())

    second = reader(copy, isolationLevel=isolation, failOnDataLoss=fails)
    for _ in range(2):
        # It stays refused when the copy gets rows. They have offsets that the stream has read already.
        with pytest.raises(OffsetOutOfRange, match=r"restored from a backup.*new checkpointLocation"):
            drain(second, end)
        produce(copy, 6)
