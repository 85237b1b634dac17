"""Compaction by key keeps the newest committed row of each key, and what Kafka's cleaner keeps beside it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import TopicConfig, TopicPartition
from eoslog.errors import InvalidRecord
from tests.unit.maintenance.compacted_log import DAY_MS, CompactedLog, Row

SEGMENTS = pytest.mark.parametrize("segment_batches", [1, 3, 100])


@SEGMENTS
def test_the_newest_committed_row_of_each_key_is_left_with_its_offset(segment_batches: int) -> None:
    log = CompactedLog(segment_batches=segment_batches)
    for round_ in range(4):
        log.send("plain", *range(round_, 6), value=b"%d" % round_)
    log.seal()
    end = log.partition().segment_base_offset
    before = log.rows("read_committed")

    log.compact()

    newest = {row.key: row.offset for row in before if row.offset < end}
    assert log.rows("read_committed") == [row for row in before if row.offset >= end or newest[row.key] == row.offset]
    assert log.partition().cleaned_offset == end


def test_an_empty_batch_goes_when_superseded_or_its_producer_is_forgotten() -> None:
    log = CompactedLog()
    log.send("plain-1", 1)
    log.send("plain-2", 1)
    log.compact()
    assert [batch.record_count for batch in log.batches()] == [0, 1]

    log.send("plain-1", 7)
    log.compact()

    assert [batch.base_offset for batch in log.batches()] == [1, 2]


def test_tombstones_hide_their_key_at_once_and_go_after_the_delete_retention() -> None:
    log = CompactedLog()
    log.send("plain", 1, 2)
    log.send("plain", 1, value=None)

    log.compact()
    assert log.rows() == [Row(1, b"2", b"value"), Row(2, b"1", None)]

    log.clock.now_ms += DAY_MS
    log.send("plain", 3)
    log.compact()
    assert log.rows() == [Row(1, b"2", b"value"), Row(3, b"3", b"value")]


@pytest.mark.usefixtures("files_are_objects")
def test_a_tombstone_is_kept_from_the_pass_that_deletes_its_key() -> None:
    log = CompactedLog(segment_batches=3)
    log.send("plain", 1)
    log.send("plain", 2, 3)
    log.send("plain", 1, value=None)
    log.compact(offset_map_bytes=1)
    assert log.partition().cleaned_offset == 1
    log.clock.now_ms += 2 * DAY_MS

    log.compact()
    assert log.rows() == [Row(1, b"2", b"value"), Row(2, b"3", b"value"), Row(3, b"1", None)]

    log.clock.now_ms += 2 * DAY_MS
    log.compact()
    assert log.rows() == [Row(1, b"2", b"value"), Row(2, b"3", b"value")]


def test_an_aborted_tombstone_deletes_nothing() -> None:
    log = CompactedLog(delete_retention_ms=0)
    log.write("p1", 1)
    log.write("p1", 1, commit=False, value=None)

    for _ in range(3):
        log.compact()
        log.clock.now_ms += DAY_MS

    assert log.rows() == [Row(0, b"1", b"value")]


@pytest.mark.usefixtures("files_are_objects")
def test_files_of_which_no_row_goes_stay() -> None:
    log = CompactedLog(segment_batches=2)
    log.send("plain", 1)
    log.send("plain", 2)
    log.send("plain", 3)
    log.send("plain", 1)
    log.seal()
    before = {batch.base_offset: batch.file for batch in log.batches()}

    log.compact()

    assert {batch.base_offset: batch.file for batch in log.batches()} == {
        offset: file for offset, file in before.items() if offset > 0
    }


def test_the_timestamps_of_a_batch_are_those_of_its_remaining_rows() -> None:
    log = CompactedLog(segment_batches=2)
    producer = log.producer("plain")
    for number, key in enumerate((b"a", b"b", b"c", b"a")):
        producer.send("t", b"v", key=key, timestamp=1000 - 100 * number)
    producer.flush()
    producer.send("t", b"v", key=b"z", timestamp=5000)
    producer.flush()

    log.compact()

    first = log.batches()[0]
    assert (first.min_timestamp, first.max_timestamp) == (700, 900)
    consumer = log.process().consumer()
    place = TopicPartition("t", 0)
    found = {when: consumer.offsets_for_times({place: when})[place] for when in (800, 850, 950)}
    assert {when: each.offset for when, each in found.items() if each is not None} == {800: 1, 850: 1, 950: 4}


def test_rows_from_before_1970_are_compacted_like_others() -> None:
    log = CompactedLog()
    producer = log.producer("plain")
    times = pa.array([-5000, -3000, 7000], pa.timestamp("ms", tz="UTC"))
    producer.send_table("t", pa.table({"key": [b"a", b"b", b"c"], "value": [b"v"] * 3, "timestamp": times}))
    producer.flush()
    log.send("plain", 0)
    producer.send("t", b"v", key=b"c")
    producer.flush()

    log.compact()

    first = log.batches()[0]
    assert (first.record_count, first.min_timestamp, first.max_timestamp) == (2, -1, -1)
    assert log.offsets() == [0, 1, 3, 4]


def test_columns_are_compacted_by_their_key_and_null_values_are_tombstones() -> None:
    log = CompactedLog()
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("miles", pa.int64()), ("note", pa.string())])
    config = TopicConfig(cleanup_policy="compact", segment_batches=1)
    log.store.admin.create_topic("c", schema=schema, key=["a", "b"], config=config)
    producer = log.store.producer()
    for rows in (
        [(1, "x", 10, "old"), (1, "y", 11, None), (2, None, 12, None)],
        [(1, "x", 20, None), (2, None, None, None)],
    ):
        columns = {name: [row[index] for row in rows] for index, name in enumerate(schema.names)}
        producer.send_table("c", pa.table(columns, schema))
        producer.flush()

    def left() -> list[tuple[int, int, str | None, int | None]]:
        table = log.process().scan("c", columns=["_offset", "a", "b", "miles"]).to_table()
        return [tuple(row.values()) for row in table.to_pylist()]

    log.compact(topic="c")
    assert left() == [(1, 1, "y", 11), (3, 1, "x", 20), (4, 2, None, None)]

    log.clock.now_ms += DAY_MS
    producer.send_table("c", pa.table({"a": [9], "b": ["z"], "miles": [1], "note": ["n"]}, schema))
    producer.flush()
    log.compact(topic="c")
    assert left() == [(1, 1, "y", 11), (3, 1, "x", 20), (5, 9, "z", 1)]


def test_a_compacted_topic_takes_no_row_without_a_key() -> None:
    log = CompactedLog()
    schema = pa.schema([("name", pa.string()), ("value", pa.int64())])
    log.store.admin.create_topic("c", schema=schema, key="name", config=TopicConfig(cleanup_policy="compact"))
    producer = log.store.producer()

    with pytest.raises(InvalidRecord, match="topic t is compacted"):
        producer.send("t", b"value")
    with pytest.raises(InvalidRecord, match="topic t is compacted"):
        producer.send_table("t", pa.table({"key": [b"k", None], "value": [b"v", b"v"]}))
    with pytest.raises(InvalidRecord, match="topic c is compacted"):
        producer.send_table("c", pa.table({"name": ["a", None], "value": [1, 2]}, schema))

    producer.send("t", b"value", key=b"k")
    producer.flush()
    assert [row.key for row in log.rows()] == [b"k"]


def test_the_snapshot_file_and_every_producers_last_sequence_stay() -> None:
    log = CompactedLog(segment_batches=4)
    for _ in range(4):
        log.send("plain", 1, 2)
        log.write("p1", 1, 2)
    log.seal()

    def last_of_each() -> dict[int, tuple[int, int]]:
        """Epoch and last sequence by producer id; a marker begins an epoch without one."""
        last: dict[int, tuple[int, int]] = {}
        for batch in log.batches():
            sequence = -1 if batch.control is not None else batch.base_sequence + batch.last_offset_delta
            last[batch.producer_id] = (batch.producer_epoch, sequence)
        return last

    snapshots = [segment.snapshot for segment in log.partition().sealed]
    before = last_of_each()
    assert len(before) == 2

    for _ in range(4):
        log.compact()
        log.clock.now_ms += DAY_MS

    assert [segment.snapshot for segment in log.partition().sealed] == snapshots
    assert last_of_each() == before
