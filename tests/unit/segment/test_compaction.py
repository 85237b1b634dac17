"""Compaction by key keeps the newest committed row of each key, and what Kafka's cleaner keeps beside it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import CorruptRecord, InvalidTopic, OffsetOutOfRange, Store, TopicConfig, TopicPartition
from eoslog.errors import InvalidRecord
from eoslog.rules.names import PartitionId
from eoslog.rules.segment_entries import LogStartMoved
from eoslog.segment.merging import merge_files
from eoslog.segment.vacuum import vacuum
from eoslog.store.environment import Environment
from eoslog.store.memory import MemoryStore
from tests.unit.segment.compacted_log import DAY_MS, At, CompactedLog, Row

POINTS = (
    "segment.compact.files_written",
    "segment.compact.index_written",
    "segment.compact.replaced",
    "segment.compact.cleaned",
)
SEGMENTS = pytest.mark.parametrize("segment_batches", [1, 3, 100])


class Died(BaseException):
    pass


def die() -> None:
    raise Died


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


def test_a_delete_horizon_is_set_in_one_pass_and_kept_to_in_a_later_one() -> None:
    log = CompactedLog()
    log.write("p1", 1, commit=False)
    log.write("p1", 2)
    for _ in range(2):
        log.compact()
        log.clock.now_ms += DAY_MS // 2

    log.compact()
    assert log.markers() == [1, 3]

    log.clock.now_ms += DAY_MS // 2 + 60_000
    log.compact()
    assert log.markers() == [3]


def test_the_last_batch_of_a_producer_stays_without_rows_and_holds_its_sequence() -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2)
    log.send("plain-1", 1, 2)
    log.send("plain-2", 1, 2)

    log.compact()

    left = [(batch.base_offset, batch.record_count, batch.file is None) for batch in log.batches()]
    assert left == [(2, 0, True), (4, 2, False)]
    assert [(batch.base_sequence, batch.last_offset_delta) for batch in log.batches()] == [(2, 1), (0, 1)]


def test_an_empty_batch_goes_when_its_producer_has_written_another_or_is_forgotten() -> None:
    log = CompactedLog()
    log.send("plain-1", 1)
    log.send("plain-2", 1)
    log.compact()
    assert [batch.record_count for batch in log.batches()] == [0, 1]

    log.send("plain-1", 7)
    log.compact()

    assert [batch.base_offset for batch in log.batches()] == [1, 2]


def test_compaction_moves_neither_the_last_stable_offset_nor_the_ends_of_the_log() -> None:
    log = CompactedLog()
    log.send("plain", 1, 1, 1)
    log.send("p1", 1, begin=True)
    before = log.store.admin.offsets("t")

    log.compact()

    assert log.store.admin.offsets("t") == before


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


def test_a_tombstone_that_a_pass_did_not_come_to_is_kept_from_the_pass_that_deletes_its_key_on() -> None:
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


def test_a_tombstone_that_a_newer_row_replaces_goes_at_once() -> None:
    log = CompactedLog()
    log.send("plain", 1, value=None)
    log.send("plain", 1)

    log.compact()

    assert log.rows() == [Row(1, b"1", b"value")]


def test_an_aborted_tombstone_deletes_nothing() -> None:
    log = CompactedLog(delete_retention_ms=0)
    log.write("p1", 1)
    log.write("p1", 1, commit=False, value=None)

    for _ in range(3):
        log.compact()
        log.clock.now_ms += DAY_MS

    assert log.rows() == [Row(0, b"1", b"value")]


def test_an_aborted_row_replaces_nothing() -> None:
    log = CompactedLog()
    log.write("p1", 1)
    log.write("p1", 1, commit=False)

    log.compact()

    assert log.rows() == [Row(0, b"1", b"value")]


def test_transactions_of_a_job_keep_their_marker_while_a_task_s_rows_are_left() -> None:
    log = CompactedLog()
    producer = log.store.producer("staged", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", key=b"1")
    producer.commit_transaction()
    log.compact()
    assert log.markers() == [1]

    log.send("plain", 1)
    for _ in range(3):
        log.compact()
        log.clock.now_ms += DAY_MS

    assert log.markers() == []
    assert log.offsets() == [2]


def test_a_pass_is_due_when_more_than_the_dirty_ratio_was_never_compacted() -> None:
    log = CompactedLog(min_cleanable_dirty_ratio=0.5)
    for key in range(4):
        log.send("plain", key)
    assert log.compact(force=False).partitions
    for key in range(3):
        log.send("plain", key)
        assert log.compact(force=False).partitions == []

    log.send("plain", 3)
    log.send("plain", 4)

    assert log.compact(force=False).partitions


def test_a_pass_is_due_when_rows_wait_for_longer_than_the_largest_lag() -> None:
    log = CompactedLog(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    assert log.compact(force=False).partitions == []

    log.clock.now_ms += 3_600_001

    assert log.compact(force=False).partitions
    assert log.record_keys() == [1]


def test_the_active_segment_of_a_compacted_topic_is_sealed_within_the_largest_lag() -> None:
    log = CompactedLog(segment_batches=100, max_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    log.clock.now_ms += 3_600_000 + 60_000

    assert log.compact(force=False).partitions

    assert log.offsets() == [1]


def test_rows_younger_than_the_least_lag_are_neither_cleaned_nor_clean_others() -> None:
    log = CompactedLog(min_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    log.clock.now_ms += 3_600_001
    log.send("plain", 1)

    log.compact()

    assert log.offsets() == [1, 2]
    assert log.partition().cleaned_offset == 2


def test_what_does_not_fit_into_the_offset_map_waits_for_the_next_pass() -> None:
    log = CompactedLog()
    for _ in range(2):
        for key in range(4):
            log.send("plain", key)

    log.compact(offset_map_bytes=300)
    assert 0 < log.partition().cleaned_offset < 8
    while log.partition().cleaned_offset < 8:
        log.compact(offset_map_bytes=300)

    assert log.offsets() == [4, 5, 6, 7]


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    log = CompactedLog(cleanup_policy="delete")
    log.send("plain", 1, 1)

    assert log.compact().partitions == []
    assert log.record_keys() == [1, 1]
    with pytest.raises(InvalidTopic, match="set its cleanup_policy to compact"):
        log.store.admin.compact("t")


def test_what_is_clean_is_not_written_again() -> None:
    log = CompactedLog(segment_batches=3)
    for _ in range(4):
        log.send("plain", 1, 2)
    log.compact()
    slot = log.store.read(lambda state, slot: slot)
    files = {info.path for info in log.objects.list("t/")}

    report = log.compact()

    assert [each.segments_replaced for each in report.partitions] == [0]
    assert log.store.read(lambda state, slot: slot) == slot
    assert {info.path for info in log.objects.list("t/")} == files


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


def test_the_timestamps_of_a_batch_are_those_of_the_rows_that_are_left() -> None:
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


def test_a_topic_of_columns_without_key_columns_cannot_be_compacted() -> None:
    log = CompactedLog()

    with pytest.raises(InvalidTopic, match="name the key's columns"):
        log.store.admin.create_topic(
            "c", schema=pa.schema([("a", pa.int64())]), config=TopicConfig(cleanup_policy="compact")
        )


def test_snapshots_from_before_rows_were_removed_are_out_of_range() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    slot = log.store.read(lambda state, slot: slot)
    log.send("plain", 1)

    log.compact()

    assert [row.offset for row in log.rows("snapshot")] == [1]
    with pytest.raises(OffsetOutOfRange, match="dropped rows at slot"):
        log.rows("snapshot", slot=slot)


def test_snapshots_outlive_the_removal_of_aborted_rows_alone() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    slot = log.store.read(lambda state, slot: slot)
    log.write("p1", 2, commit=False)

    log.compact()

    assert [row.offset for row in log.rows("read_uncommitted")] == [0]
    assert [row.offset for row in log.rows("snapshot", slot=slot)] == [0]


def test_the_snapshot_file_stays_and_every_producer_s_last_sequence_can_still_be_read_from_the_batches() -> None:
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


def test_a_consumer_steps_over_gaps_and_empty_batches() -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2, 3)
    log.write("p1", 4, 5, commit=False)
    log.send("plain-2", 1, 3)
    log.send("plain-3", *range(10, 20))
    log.send("plain-4", *range(10, 20))
    for _ in range(2):
        log.compact()
    consumer = log.process().consumer(auto_offset_reset="earliest", max_poll_records=1)
    place = TopicPartition("t", 0)
    consumer.assign([place])

    offsets = [record.offset for _ in range(3) for record in consumer.poll(0)]
    assert offsets == [1, 6, 7]

    consumer.seek(place, 2)
    assert [record.offset for record in consumer.poll(0)] == [6]
    consumer.seek(place, 9)
    assert [record.offset for record in consumer.poll(0)] == [18]
    consumer.seek(place, 27)
    assert [record.offset for record in consumer.poll(0)] == [27]
    while consumer.poll(0):
        continue
    assert consumer.position(place) == 28
    assert consumer.lag() == {place: 0}


def test_a_position_moves_over_what_compaction_left_empty_at_the_end() -> None:
    log = CompactedLog()
    log.send("plain-1", 1)
    log.send("plain-2", *range(10, 28))
    log.write("p1", *range(10, 28), commit=False)
    log.compact()
    consumer = log.process().consumer(auto_offset_reset="earliest")
    place = TopicPartition("t", 0)
    consumer.assign([place])
    consumer.seek(place, 19)

    assert consumer.poll(0) == []
    assert consumer.position(place) == 38
    consumer.seek(place, 37)
    assert consumer.position(place) == 37


@pytest.mark.parametrize("start", range(0, 13, 3))
def test_ranges_of_a_compacted_partition_begin_and_end_anywhere(start: int) -> None:
    log = CompactedLog(segment_batches=2)
    log.send("plain", 1, 2, 3, 4, 5, 6)
    log.send("plain", 2, 4, 5, 7, 8, 9)
    log.compact()
    everything = log.rows()

    for end in range(start, 13):
        found = log.rows(starting_offsets={0: start}, ending_offsets={0: end})
        assert found == [row for row in everything if start <= row.offset < end]


def _history() -> CompactedLog:
    log = CompactedLog(segment_batches=3)
    for number in range(6):
        log.send("plain", number % 2, number % 3 + 10)
        log.write("p1", number % 3, number % 2 + 20, commit=number % 3 != 1)
    log.seal()
    return log


@pytest.mark.parametrize(
    ("point", "times"), [*((point, times) for point in POINTS[:3] for times in (1, 2)), (POINTS[3], 1)]
)
def test_a_pass_that_dies_leaves_no_key_without_its_newest_row(point: str, times: int) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()
    newest = {row.key: row for row in log.rows("read_committed")}

    with pytest.raises(Died):
        log.compact(At(point, die, times))

    assert {row.key: row for row in log.rows("read_committed")} == newest
    log.compact()
    assert log.rows() == undisturbed.rows()
    log.clock.now_ms += 8 * DAY_MS
    vacuum(log.store.log, log.objects)
    assert log.rows() == undisturbed.rows()
    named = {batch.file.path for batch in log.batches() if batch.file is not None}
    files = {info.path for info in log.objects.list("t/") if info.path.endswith(".parquet")}
    assert named == {path for path in files if not path.endswith(".index.parquet")}


@pytest.mark.parametrize("point", POINTS[:3])
def test_of_two_passes_at_once_each_removes_only_what_has_a_newer_row(point: str) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()

    report = log.compact(At(point, lambda: log.compact()))

    assert report.lost_races == 1
    assert log.rows() == undisturbed.rows()
    assert log.partition().cleaned_offset == undisturbed.partition().cleaned_offset


@pytest.mark.parametrize("point", POINTS[:3])
def test_a_merge_and_a_pass_at_once_end_in_the_same_rows(point: str) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()
    other = log.process()

    log.compact(At(point, lambda: merge_files(other.log, log.objects, Environment())))
    log.compact()

    assert log.rows() == undisturbed.rows()


def test_a_pass_that_the_log_start_overtakes_goes_no_further() -> None:
    log = _history()
    topic_id = log.store.admin.describe_topic("t").topic_id
    end = log.partition().sealed[1].end_offset
    entry = LogStartMoved(topic_id=topic_id, partition=0, offset=end, reason="delete_records")

    report = log.compact(At(POINTS[1], lambda: log.store.append(lambda draft: draft.append(entry))))

    assert (report.partitions, report.lost_races) == ([], 1)
    log.compact()
    assert min(row.offset for row in log.rows()) >= end


def test_a_pass_over_a_topic_that_is_deleted_meanwhile_is_given_up() -> None:
    log = _history()

    report = log.compact(At(POINTS[1], lambda: log.store.admin.delete_topic("t")))

    assert (report.partitions, report.lost_races) == ([], 1)


def test_readers_that_planned_before_find_their_rows_for_a_day() -> None:
    log = _history()
    scan = log.process().scan("t")
    before = scan.to_table()
    log.compact()
    log.clock.now_ms += DAY_MS // 2
    vacuum(log.store.log, log.objects)

    assert scan.to_table().equals(before)


def test_admin_compacts_one_topic_at_once_and_all_when_due(memory_store: MemoryStore) -> None:
    store = Store(memory_store, Environment())
    for topic, ratio in (("due", 0.0), ("later", 1.0)):
        config = TopicConfig(cleanup_policy="compact", segment_batches=1, min_cleanable_dirty_ratio=ratio)
        store.admin.create_topic(topic, config=config)
        producer = store.producer()
        for _ in range(2):
            producer.send(topic, b"value", key=b"key")
            producer.flush()
    store.log.before_checkpoint()

    assert [each.topic for each in store.admin.compact().partitions] == ["due"]
    assert [each.topic for each in store.admin.compact("later").partitions] == ["later"]
    assert store.admin.merge_files("due").merged == []
    topic_id = store.admin.describe_topic("due").topic_id
    assert store.read(lambda state, slot: state.partitions[PartitionId(topic_id, 0)].cleaned_offset) == 2


def test_a_damaged_topic_keeps_no_other_from_being_merged_and_compacted(memory_store: MemoryStore) -> None:
    store = Store(memory_store, Environment())
    config = TopicConfig(cleanup_policy="compact", segment_batches=1, min_cleanable_dirty_ratio=0)
    producer = store.producer()
    for topic in ("damaged", "sound"):
        store.admin.create_topic(topic, config=config)
        for key in (b"a", b"a", b"b"):
            producer.send(topic, b"value", key=key)
            producer.flush()
    store.log.before_checkpoint()
    victim = store.scan("damaged").plans[0].slices[1].path
    memory_store.delete([victim])

    for work in (store.admin.merge_files, store.admin.compact):
        with pytest.raises(CorruptRecord, match=victim):
            work()

    assert store.scan("sound", columns=["offset"]).to_table()["offset"].to_pylist() == [1, 2]
    topic_id = store.admin.describe_topic("sound").topic_id
    assert len(store.read(lambda state, slot: state.partitions[PartitionId(topic_id, 0)].sealed)) == 1


def test_damage_is_told_also_after_segments_before_it_were_replaced() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    log.send("plain", 1)
    log.send("plain", 2)
    log.seal()
    cleaned_before = log.batches()[2].file
    assert cleaned_before is not None

    with pytest.raises(CorruptRecord, match=cleaned_before.path):
        log.compact(At("segment.compact.replaced", lambda: log.objects.delete([cleaned_before.path])))
