"""The log start: what goes with the rows below it, and what outlives them."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.state.draft import Draft
from eoslog.state.entries import LogStartMoved
from eoslog.state.partition_state import NO_SLOT
from tests.unit.state.histories import TOPIC_ID, History
from tests.unit.state.test_partitions import Writers


def move(history: History, offset: int) -> Exception | None:
    entry = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records")
    try:
        history.append(lambda draft: draft.append(entry))
    except Exception as error:
        return error
    return None


@pytest.mark.scenario(52)
def test_the_log_start_stops_at_the_last_stable_offset_and_never_moves_back() -> None:
    """Kafka moves the log start into an open transaction and the stable offset with it; here no open row is lost."""
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.txn("p1", 2)

    assert isinstance(move(history, 4), OffsetOutOfRange)
    assert move(history, 3) is None
    assert isinstance(move(history, 3), InvalidEntry)
    assert isinstance(move(history, 2), InvalidEntry)


def test_rows_below_the_log_start_are_pending_deletion_with_the_slot_that_dropped_them() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    history.seal(3)
    writers.alone(2)
    writers.alone(2)

    move(history, 6)

    partition = history.partition()
    assert (partition.log_start_offset, partition.snapshot_floor) == (6, history.slot)
    assert [batch.base_offset for batch in partition.active] == [5]
    assert partition.active_bytes == 100
    assert partition.segment_base_offset == 5
    (deletion,) = history.state.pending_deletions
    assert deletion.slot == history.slot
    assert len(deletion.indexes) == 1
    assert len(deletion.files) == 2


def test_the_producers_at_the_start_of_a_segment_outlive_the_segments_before_it() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.txn("p1", 2)
    writers.end("p1", "commit")
    history.seal(3)
    move(history, 6)

    partition = history.partition()
    assert (partition.sealed, partition.active, partition.segment_base_offset) == ((), [], 6)
    assert partition.start_producers == {
        producer: state._replace(batches=state.batches[-1:]) for producer, state in partition.producers.items()
    }
    assert len(partition.start_producers) == 2


def test_a_log_start_within_a_batch_or_segment_keeps_it_whole() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.alone(3)
    history.seal(6)
    writers.alone(3)

    move(history, 4)
    assert [segment.base_offset for segment in history.partition().sealed] == [0]
    assert history.state.pending_deletions == ()

    move(history, 7)
    partition = history.partition()
    assert (partition.sealed, [batch.base_offset for batch in partition.active]) == ((), [6])
    assert (partition.log_start_offset, partition.segment_base_offset) == (7, 6)


def test_aborted_transactions_go_with_the_segment_of_their_marker() -> None:
    history = History()
    writers = Writers(history)
    writers.txn("p1", 2)
    writers.end("p1", "abort")
    writers.txn("p1", 2)
    writers.end("p1", "abort")

    move(history, 1)
    assert [txn.first_offset for txn in history.partition().aborted] == [0, 3]
    move(history, 3)
    assert [txn.first_offset for txn in history.partition().aborted] == [3]


def test_a_file_is_pending_deletion_when_no_batch_that_is_left_names_it() -> None:
    history = History()
    writers = Writers(history)
    shared = history.file(name="shared")
    for sequence in (0, 1):
        batch = history.batch(writers.plain, sequence, transactional_id=None, file=shared)
        history.append(lambda draft, batch=batch: draft.append(batch).base_offset)

    move(history, 1)
    assert history.state.pending_deletions == ()
    move(history, 2)
    (deletion,) = history.state.pending_deletions
    assert deletion.files == (shared,)


def test_the_last_removed_slot_ignores_appends_of_the_same_record() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    written = history.slot
    history.seal(3)
    late = history.batch(writers.plain, 3, transactional_id=None)
    moved = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=3, reason="delete_records")

    def propose(draft: Draft) -> None:
        draft.append(late)
        draft.append(moved)

    history.append(propose)

    assert history.partition().removed_end_slot == written


@pytest.mark.parametrize(("claimed", "known"), [(None, 1), (0, 0), (-1, NO_SLOT)])
def test_of_a_segment_that_is_cut_the_entry_may_know_what_is_lost(claimed: int | None, known: int) -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    first = history.slot
    writers.alone(3)
    history.seal(6)
    end_slots = {None: None, 0: first, 1: first + 1, NO_SLOT: NO_SLOT}

    history.append(lambda draft: draft.append(cut(4, end_slots[claimed])))

    assert history.partition().removed_end_slot == end_slots[known]


def test_a_truncation_with_impossible_losses_is_invalid() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    history.seal(3)
    writers.alone(3)
    last = history.partition().sealed[0].max_end_slot

    for entry in (cut(2, last + 1), cut(3, last), cut(4, last)):
        assert isinstance(history.refused(lambda draft, entry=entry: draft.append(entry)), InvalidEntry)
    history.append(lambda draft: draft.append(cut(2, last)))


def cut(offset: int, removed_end_slot: int | None) -> LogStartMoved:
    return LogStartMoved(
        topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records", removed_end_slot=removed_end_slot
    )
