"""Compaction by key: what a pass may remove, what it keeps for whom, and for how long."""

from __future__ import annotations

import pytest

from eoslog import TopicPartition
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import AbortedTransaction
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.transaction_entries import BatchAppended
from tests.requests import Applying
from tests.unit.maintenance.compacted_log import CompactedLog

PLACE = TopicPartition("t", 0)
RETENTION_MS = 50_000


def repeated(log: CompactedLog) -> list[BatchAppended]:
    """The requests of the batches in the log, as their producers would send them again."""
    topic_id = log.store.admin.describe_topic("t").topic_id
    return [
        BatchAppended(
            topic_id=topic_id,
            partition=0,
            base_offset=0,
            record_count=batch.last_offset_delta + 1,
            file=batch.file or FileReference(path="gone", length=0, crc32c=0),
            upload_ms=log.clock.now_ms,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            min_timestamp=1,
            max_timestamp=1,
            time_ms=log.clock.now_ms,
        )
        for batch in log.batches()
        if batch.control is None
    ]


@pytest.mark.scenario(58)
def test_the_sequence_of_a_producer_goes_on_after_all_its_rows_were_compacted_away() -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2)
    log.send("plain-1", 3)
    log.send("plain-2", 1, 2, 3)

    log.compact()

    assert [(batch.base_sequence, batch.record_count) for batch in log.batches()] == [(2, 0), (0, 3)]
    log.send("plain-1", 4)
    assert log.batches()[-1].base_sequence == 3


@pytest.mark.scenario(70)
@pytest.mark.parametrize("segment_batches", [1, 4, 9])
def test_aborted_rows_go_and_offsets_and_the_aborted_index_stay(segment_batches: int) -> None:
    log = CompactedLog(segment_batches=segment_batches)
    log.send("p1", 1, 2, begin=True)
    log.send("p2", 2, 3, begin=True)
    log.send("p1", 3, 4)
    log.end("p1", commit=False)
    log.end("p2", commit=True)
    log.write("p1", 2)
    log.send("plain", *range(10, 20))
    log.send("plain", *range(20, 30))
    log.seal()
    indexed = log.aborted()

    log.compact()

    assert [key for key in log.record_keys() if key < 10] == [3, 2]
    assert [offset for offset in log.offsets() if offset < 10] == [3, 6, 7, 8, 9]
    assert log.aborted() == indexed
    assert [(entry.first_offset, entry.last_offset) for entry in indexed] == [(0, 6)]


@pytest.mark.scenario(71)
def test_transactions_over_several_segments_are_compacted_by_their_outcomes() -> None:
    log = CompactedLog(segment_batches=5)
    log.send("p1", 1, begin=True)
    log.send("p2", 2, begin=True)
    log.send("p3", 3, begin=True)
    log.send("p1", 4)
    log.send("p2", 5)
    log.send("p3", 6)
    log.end("p1", commit=False)
    log.send("p2", 7, 8)
    log.end("p2", commit=True)
    log.end("p3", commit=False)
    log.seal()
    log.send("p1", 11, begin=True)
    log.send("p1", 12)

    log.compact()

    assert len(log.partition().sealed) == 2
    assert log.record_keys("read_uncommitted") == [2, 5, 7, 8, 11, 12]
    assert log.record_keys() == [2, 5, 7, 8]


@pytest.mark.scenario(73)
def test_an_abort_marker_goes_two_passes_after_its_rows() -> None:
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.send("p1", 1, begin=True)
    log.send("p1", 2, 3)
    log.end("p1", commit=False)
    log.write("p1", 2)

    log.compact()
    assert log.offsets() == [3, 4, 5]
    log.compact()
    assert log.offsets() == [3, 4, 5]

    log.clock.now_ms += 2 * RETENTION_MS
    log.compact()
    assert log.offsets() == [4, 5]


@pytest.mark.scenario(74)
@pytest.mark.parametrize("segment_batches", [1, 3])
def test_rows_go_first_then_index_entries_then_markers(segment_batches: int) -> None:
    log = CompactedLog(segment_batches=segment_batches, delete_retention_ms=RETENTION_MS)
    log.send("plain", *range(8))
    log.write("p1", 100, 101, commit=False)
    log.write("p2", *range(102, 107), commit=False)
    log.write("p1", 200)
    log.write("p2", 201)
    log.send("plain", *range(300, 304))
    log.seal()
    ids = [log.store.admin.describe_transaction(name).producer_id for name in ("p1", "p2")]
    entries = [AbortedTransaction(ids[0], 8, 10, 11), AbortedTransaction(ids[1], 11, 16, 17)]
    assert log.aborted() == entries
    others = [*range(8), 17, 18, 19, 20]

    log.compact()
    assert [offset for offset in log.offsets() if offset < 21] == sorted([*others, 10, 16])
    assert log.aborted() == entries

    log.compact()
    assert [offset for offset in log.offsets() if offset < 21] == sorted([*others, 10, 16])
    assert log.aborted() == []

    log.clock.now_ms += 2 * RETENTION_MS
    log.compact()
    assert [offset for offset in log.offsets() if offset < 21] == others


@pytest.mark.scenario(75)
def test_the_last_batch_of_a_producer_stays_empty_and_keeps_its_sequence() -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2)
    log.send("plain-2", 1, 2)

    for _ in range(3):
        log.compact()
        log.clock.now_ms += 10 * 24 * 3600 * 1000

    assert [(batch.base_offset, batch.base_sequence, batch.record_count) for batch in log.batches()] == [
        (0, 0, 0),
        (2, 0, 2),
    ]


@pytest.mark.scenario(75)
@pytest.mark.parametrize("commit", [True, False])
def test_the_last_marker_of_a_producer_stays_empty_and_keeps_its_epoch(commit: bool) -> None:
    """After a marker the epoch is the next one, and it is the marker that holds it."""
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.write("p1", 1, commit=commit)
    log.write("p2", 1)

    for _ in range(3):
        log.compact()
        log.clock.now_ms += 2 * RETENTION_MS

    marker = log.batches()[0]
    assert (marker.base_offset, marker.record_count) == (1, 0)
    assert marker.producer_epoch == log.partition().producers[marker.producer_id].producer_epoch

    log.write("p1", 3)
    log.compact()
    assert [batch.base_offset for batch in log.batches()] == [2, 3, 4, 5]


@pytest.mark.scenario(77)
@pytest.mark.parametrize("outcome", [True, False])
def test_a_key_with_the_bytes_of_a_marker_s_key_is_one_like_any_other(outcome: bool) -> None:
    log = CompactedLog()
    keys = [b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"]
    for commits in (True, outcome):
        producer = log.producer("p1")
        producer.begin_transaction()
        for key in keys:
            producer.send("t", b"value", key=key)
        producer.flush()
        log.end("p1", commit=commits)

    log.compact()

    kept = [3, 4] if outcome else [0, 1]
    assert [(row.offset, row.key) for row in log.rows()] == list(zip(kept, keys, strict=True))
    assert log.markers() == [2, 5]


@pytest.mark.scenario(78)
def test_undecided_rows_and_what_follows_them_are_not_compacted_however_long_they_wait() -> None:
    log = CompactedLog(max_compaction_lag_ms=1000)
    log.send("plain", 1)
    log.send("p1", 2, begin=True)
    # A prepared transaction waits for longer than any time-out.
    log.producer("p1").prepare_transaction()
    log.send("plain", 1)
    log.send("plain", 1)
    log.clock.now_ms += 6 * 24 * 3600 * 1000

    log.compact(force=False)
    log.compact()

    assert log.record_keys("read_uncommitted") == [1, 2, 1, 1]
    assert log.partition().cleaned_offset == 1
    log.end("p1", commit=True)
    log.compact()
    assert log.record_keys() == [2, 1]


@pytest.mark.scenario(79)
def test_a_repeat_of_a_batch_whose_rows_were_compacted_away_has_its_first_offset() -> None:
    log = CompactedLog()
    for _ in range(3):
        log.send("plain", 1, 2)
    sent = repeated(log)
    log.compact()
    assert log.offsets() == [4, 5]

    for number, batch in enumerate(sent):
        with pytest.raises(DuplicateBatch, match=f"at offset {2 * number}"):
            log.store.append(Applying(lambda draft, batch=batch: draft.append(batch).base_offset))  # type: ignore[misc]

    assert log.offsets() == [4, 5]


@pytest.mark.scenario(143)
def test_a_marker_without_rows_hides_nothing_of_what_follows() -> None:
    log = CompactedLog()
    log.send("plain", *range(20, 22))
    log.send("p1", 1, 2, 3, begin=True)
    log.end("p1", commit=False)
    log.write("p1", 6, 7, 8)
    log.compact()
    consumer = log.process().consumer(auto_offset_reset="earliest")
    consumer.assign([PLACE])
    consumer.seek(PLACE, 2)

    records = consumer.poll(0)

    assert log.markers() == [5, 9]
    assert [(record.offset, record.key) for record in records] == [(6, b"6"), (7, b"7"), (8, b"8")]
