"""Passes of compaction one after another: over markers, segments that share transactions, and what is gone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eoslog import TopicPartition
from eoslog.errors import ProducerFenced
from eoslog.format.file_writer import DataFileWriter, TopicTarget
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.end_requests import TransactionContent
from eoslog.state.jobs import CommitJob
from eoslog.state.transaction_entries import CommitSummary
from tests.unit.maintenance.compacted_log import DAY_MS, CompactedLog
from tests.unit.support.paused_processes import At, Died, die

pytestmark = pytest.mark.further("Compaction")

PLACE = TopicPartition("t", 0)
RETENTION_MS = 50_000


def commit_job(log: CompactedLog, *tasks: list[int]) -> None:
    """One commit of a job whose tasks wrote rows with these keys."""
    topic = log.store.admin.describe_topic("t")
    target = log.store.read(lambda state, slot: TopicTarget.of(state, topic))
    upload_ms = log.objects.clock.last_date_ms
    batches = []
    for task, keys in enumerate(tasks):
        writer = DataFileWriter(log.objects, log.store.environment.new_id)
        rows = [{"key": b"%d" % key, "value": b"value", "timestamp": log.clock.now_ms} for key in keys]
        writer.append(target, 0, pa.Table.from_pylist(rows, stored_schema(topic)), log.clock.now_ms)
        batches += [each.staged(task) for each in writer.flush(log.clock.now_ms)]
    log.store.append(
        CommitJob(
            job_id="job",
            owner="run",
            take_over=True,
            content=TransactionContent(
                batches=batches, upload_ms=upload_ms, task_count=len(tasks), summary=CommitSummary()
            ),
            time_ms=log.clock.now_ms,
        )
    )


def later(log: CompactedLog) -> None:
    """So much time passes that every delete horizon has."""
    log.clock.now_ms += 2 * RETENTION_MS


def test_a_commit_marker_goes_two_passes_after_the_last_row_of_its_transaction() -> None:
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.send("p1", 1, begin=True)
    log.send("p1", 2, 3)
    log.end("p1", commit=True)
    log.write("p1", 2)
    log.compact()
    assert (log.record_keys(), log.offsets()) == ([1, 3, 2], [0, 2, 3, 4, 5])

    log.write("p1", 1, 3)
    log.compact()
    assert (log.record_keys(), log.offsets()) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    log.compact()
    assert log.offsets() == [3, 4, 5, 6, 7, 8]

    later(log)
    log.compact()
    assert (log.record_keys(), log.offsets()) == ([2, 1, 3], [4, 5, 6, 7, 8])


def test_a_committed_row_stays_with_its_marker_though_they_lie_in_two_segments() -> None:
    log = CompactedLog()
    log.write("p1", 1)

    for _ in range(3):
        log.compact()
        log.clock.now_ms += 2 * DAY_MS

    assert len(log.partition().sealed) == 2
    assert (log.record_keys(), log.offsets()) == ([1], [0, 1])


def test_aborted_rows_go_while_their_marker_is_still_in_the_state() -> None:
    log = CompactedLog(segment_batches=2, delete_retention_ms=RETENTION_MS)
    log.send("p1", 1, begin=True)
    log.send("p1", 2)
    log.end("p1", commit=False)

    log.compact()

    assert [batch.base_offset for batch in log.partition().active] == [2]
    assert log.offsets() == [2]
    log.write("p1", 3)
    assert log.record_keys() == [3]
    for _ in range(2):
        log.compact()
        later(log)
    log.compact()
    assert (log.record_keys(), log.offsets(), log.aborted()) == ([3], [3, 4], [])


@pytest.mark.parametrize("commit", [True, False])
def test_an_old_epoch_is_fenced_and_the_new_one_goes_on_when_all_rows_of_a_producer_are_gone(commit: bool) -> None:
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    zombie = log.producer("p1")
    log.write("p1", 1, commit=commit)
    log.send("plain", 1)
    for _ in range(3):
        log.compact()
        later(log)
    log.store.log.checkpoint()
    successor = log.process().producer("p1")
    successor.init_transactions()

    zombie.begin_transaction()
    zombie.send("t", b"late", key=b"9")
    with pytest.raises(ProducerFenced):
        zombie.flush()

    successor.begin_transaction()
    successor.send("t", b"value", key=b"2")
    successor.commit_transaction()
    assert log.record_keys() == [1, 2]


def test_rows_without_a_key_that_a_compacted_topic_holds_stay() -> None:
    log = CompactedLog(cleanup_policy="delete")
    producer = log.producer("plain")
    for key, value in ((b"1", b"old"), (None, b"value"), (b"1", b"new"), (None, None)):
        producer.send("t", value, key=key)
    log.store.admin.alter_topic("t", cleanup_policy="compact")
    producer.flush()

    log.compact()

    assert [(row.offset, row.key, row.value) for row in log.rows()] == [
        (1, None, b"value"),
        (2, b"1", b"new"),
        (3, None, None),
    ]


def test_a_log_that_begins_in_the_middle_is_compacted_from_there() -> None:
    log = CompactedLog(cleanup_policy="compact,delete")
    for _ in range(3):
        log.send("plain", 1, 2, 3)
    log.store.admin.delete_records({PLACE: 4})

    log.compact()
    assert log.offsets() == [6, 7, 8]
    assert log.partition().log_start_offset == 4
    assert log.partition().cleaned_offset == 9

    log.send("plain", 1)
    log.store.admin.delete_records({PLACE: 7})
    log.compact()
    assert log.rows("read_committed", starting_offsets={0: 7}) == log.rows()
    assert [row.offset for row in log.rows()] == [7, 8, 9]


def test_rows_below_the_log_start_are_no_reason_to_keep_a_marker() -> None:
    log = CompactedLog(cleanup_policy="compact,delete", delete_retention_ms=RETENTION_MS)
    log.write("p1", 1)
    log.write("p1", 2)
    log.seal()
    log.store.admin.delete_records({PLACE: 1})
    for _ in range(2):
        log.compact()
        later(log)

    assert log.offsets() == [2, 3]


def test_a_topic_of_both_policies_is_compacted_and_loses_what_is_too_old() -> None:
    log = CompactedLog(cleanup_policy="compact,delete", retention_ms=30 * DAY_MS)
    log.send("plain", 1, 2)
    log.send("plain", 1)
    log.compact()
    assert log.offsets() == [1, 2]

    log.clock.now_ms += 31 * DAY_MS
    Coordinator(log.store).apply_retention()

    assert log.record_keys() == []
    assert log.partition().log_start_offset == log.partition().high_watermark == 3


def test_a_row_that_was_decided_just_now_is_young_however_long_ago_it_was_written() -> None:
    log = CompactedLog(min_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("p1", 1, begin=True)
    log.producer("p1").prepare_transaction()
    log.clock.now_ms += 3_600_001
    log.send("plain", 1)
    log.end("p1", commit=True)

    log.compact()
    assert log.record_keys() == [1, 1, 1]

    log.clock.now_ms += 3_600_001
    log.compact()
    assert log.record_keys() == [1]


@pytest.mark.parametrize("segment_batches", [1, 3, 100])
def test_many_small_passes_leave_the_same_rows_as_one_pass(segment_batches: int) -> None:
    whole, piece_by_piece = (CompactedLog(segment_batches=segment_batches) for _ in range(2))
    for log in (whole, piece_by_piece):
        for number in range(12):
            log.write(f"p{number % 3}", number % 4, number % 5, commit=number % 4 != 1)
        log.seal()

    whole.compact()
    end = whole.partition().segment_base_offset
    while piece_by_piece.partition().cleaned_offset < end:
        before = piece_by_piece.partition().cleaned_offset
        piece_by_piece.compact(offset_map_bytes=1)
        assert piece_by_piece.partition().cleaned_offset > before

    assert piece_by_piece.rows() == whole.rows()


def test_a_pass_that_dies_between_two_segments_of_a_transaction_loses_nothing_of_it() -> None:
    log = CompactedLog()
    log.send("p1", 1, begin=True)
    log.send("p1", 2)
    log.send("p1", 1)
    log.end("p1", commit=True)
    log.write("p2", 2, commit=False)

    with pytest.raises(Died):
        log.compact(At("segment.compact_keys.replaced", die))

    assert log.record_keys() == [2, 1]
    log.compact()
    assert (log.record_keys(), log.offsets()) == ([2, 1], [1, 2, 3, 5])


def test_the_marker_of_a_job_stays_while_rows_of_one_of_its_tasks_do() -> None:
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    commit_job(log, [1, 2], [3])
    log.send("plain", 1, 2)
    log.compact()
    assert log.offsets() == [2, 3, 4, 5]

    log.send("plain", 3)
    log.compact()
    assert log.offsets() == [3, 4, 5, 6]
    log.compact()
    later(log)
    log.compact()

    assert log.offsets() == [4, 5, 6]
