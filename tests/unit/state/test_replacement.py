"""Sealed segments are replaced as they were seen, or not at all; files that only they named are to be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.errors import InvalidEntry, InvalidTopic, OffsetOutOfRange, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.entries import (
    HorizonMoved,
    LogCleaned,
    LogStartMoved,
    TopicConfig,
    TopicConfigChanged,
    TopicCreated,
    TopicSchema,
)
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.store_state import PendingDeletion, StoreState
from tests.unit.state.histories import NOW_MS, OTHER_TOPIC_ID, TOPIC_ID, History


@pytest.fixture
def history() -> History:
    """Sealed segments of offsets 0 to 2, 2 to 4 (an aborted transaction) and 4 to 6, and two offsets more."""
    history = History()
    identity = history.init()
    for outcome in ("commit", "abort", "commit", "commit"):
        history.send(identity)
        identity = history.end(identity, outcome)
    for end_offset in (2, 4, 6):
        history.seal(end_offset)
    return history


def cleaned(dirty_offset: int, cleaned_offset: int) -> LogCleaned:
    return LogCleaned(
        topic_id=TOPIC_ID, partition=0, dirty_offset=dirty_offset, cleaned_offset=cleaned_offset, time_ms=NOW_MS
    )


def log_start(offset: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records")


def append(history: History, entry: Any) -> None:
    history.append(lambda draft: draft.append(entry))


def refused(history: History, entry: Any) -> Exception:
    return history.refused(lambda draft: draft.append(entry))


def test_one_segment_stands_for_those_that_it_replaces(history: History) -> None:
    before = history.partition()
    entry = history.replace_entry(0, 1)

    append(history, entry)

    first, second = history.partition().sealed
    assert (first.base_offset, first.end_offset, first.batch_count) == (0, 4, 4)
    assert first.max_end_slot == max(before.sealed[0].max_end_slot, before.sealed[1].max_end_slot)
    assert (first.index, first.txnindex, first.snapshot) == (entry.index, entry.txnindex, before.sealed[0].snapshot)
    assert second == before.sealed[2]
    assert history.partition().active == before.active


def test_compaction_of_files_moves_no_bound_of_any_reader(history: History) -> None:
    before = history.partition()

    append(history, history.replace_entry(0, 2))

    after = history.partition()
    assert (after.log_start_offset, after.last_stable_offset, after.high_watermark) == (0, 8, 8)
    assert (after.snapshot_floor, after.removed_end_slot) == (NO_SLOT, NO_SLOT)
    assert after.producers == before.producers


def test_files_that_only_the_replaced_segments_named_are_pending_deletion(history: History) -> None:
    first, second, _ = history.partition().sealed

    append(history, history.replace_entry(0, 1))

    (deletion,) = history.state.pending_deletions
    assert deletion == PendingDeletion(
        history.slot, "", (second.txnindex, second.snapshot), (first.index, second.index)
    )


def test_a_txnindex_that_the_replacement_still_names_is_not_pending_deletion(history: History) -> None:
    second = history.partition().sealed[1]

    append(history, history.replace_entry(0, 1, txnindex=second.txnindex))

    (deletion,) = history.state.pending_deletions
    assert deletion.files == (second.snapshot,)


def test_compaction_that_removed_committed_rows_moves_the_snapshot_floor(history: History) -> None:
    end_slot = history.partition().sealed[0].max_end_slot

    append(history, history.replace_entry(0, 0, reason="compact_keys", removed_end_slot=end_slot, time_ms=NOW_MS + 5))

    partition = history.partition()
    assert (partition.snapshot_floor, partition.snapshot_floor_ms) == (history.slot, NOW_MS + 5)
    assert partition.removed_end_slot == end_slot


def test_compaction_may_leave_a_segment_without_batches(history: History) -> None:
    entry = history.replace_entry(
        1, 1, reason="compact_keys", batch_count=0, bytes=0, min_timestamp=-1, max_timestamp=-1, txnindex=None
    )

    append(history, entry)
    append(history, history.replace_entry(0, 1, min_timestamp=NOW_MS, max_timestamp=NOW_MS))

    assert [segment.batch_count for segment in history.partition().sealed] == [2, 2]


def test_the_second_of_two_replacements_is_refused_because_the_segments_moved(history: History) -> None:
    late = history.replace_entry(1, 2)
    append(history, history.replace_entry(0, 1))

    assert isinstance(refused(history, late), OffsetOutOfRange)


def test_segments_below_a_new_log_start_are_not_replaced(history: History) -> None:
    late = history.replace_entry(0, 1)
    append(history, log_start(2))

    assert isinstance(refused(history, late), OffsetOutOfRange)


def test_segments_of_a_deleted_topic_are_not_replaced(history: History) -> None:
    late = history.replace_entry(0, 1)
    history.delete_topic()

    assert isinstance(refused(history, late), UnknownTopicOrPartition)


def test_files_older_than_the_horizon_replace_nothing(history: History) -> None:
    late = history.replace_entry(0, 1)
    append(history, HorizonMoved(horizon_ms=NOW_MS))

    assert isinstance(refused(history, late), StagedFilesExpired)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"end_offset": 6}, "begins or ends elsewhere"),
        ({"snapshot": {"path": f"t/{TOPIC_ID}/0/other", "length": 1, "crc32c": 1}}, "names another snapshot"),
        ({"batch_count": 5}, "has more batches"),
        ({"batch_count": 3}, "lacks batches"),
        ({"removed_end_slot": 3}, "lacks rows"),
        ({"removed_end_slot": 99, "reason": "compact_keys"}, "transactions that the replaced segments never held"),
        ({"max_timestamp": NOW_MS + 1}, "has other timestamps"),
        ({"txnindex": None}, "forgets aborted transactions"),
        ({"index": {"path": f"t/{TOPIC_ID}/1/index", "length": 1, "crc32c": 1}}, "lies outside partition t-0"),
    ],
)
def test_a_replacement_that_cannot_hold_what_was_there_is_refused(
    history: History, fields: dict[str, Any], problem: str
) -> None:
    error = refused(history, history.replace_entry(0, 1, **fields))

    assert isinstance(error, InvalidEntry)
    assert problem in str(error)


def test_an_index_replaces_no_segment_by_itself(history: History) -> None:
    entry = history.replace_entry(0, 0, index=history.partition().sealed[0].index)

    assert "names an index that is in use" in str(refused(history, entry))


def test_the_progress_of_compaction_is_recorded_once(history: History) -> None:
    append(history, cleaned(0, 4))

    assert history.partition().cleaned_offset == 4
    assert isinstance(refused(history, cleaned(0, 6)), OffsetOutOfRange)
    append(history, cleaned(4, 6))
    assert history.partition().cleaned_offset == 6


@pytest.mark.parametrize("cleaned_offset", [0, 7])
def test_compaction_goes_forward_and_ends_where_the_log_is_not_sealed(history: History, cleaned_offset: int) -> None:
    assert isinstance(refused(history, cleaned(0, cleaned_offset)), InvalidEntry)


def test_a_checkpoint_keeps_replaced_segments_and_what_is_compacted(history: History) -> None:
    append(history, history.replace_entry(0, 1))
    append(history, cleaned(0, 4))

    restored: StoreState = restore({part.name: part.encode() for part in parts(history.state, history.slot)})

    assert restored == history.state


def test_columns_without_a_key_cannot_be_compacted(history: History) -> None:
    created = TopicCreated(
        topic="keyless",
        topic_id=OTHER_TOPIC_ID,
        partitions=1,
        topic_schema=TopicSchema(kind="columns", arrow="any"),
        config=TopicConfig(cleanup_policy="compact,delete"),
        time_ms=NOW_MS,
    )

    assert isinstance(refused(history, created), InvalidTopic)


def test_a_topic_of_columns_without_a_key_cannot_be_altered_to_be_compacted(history: History) -> None:
    schema = TopicSchema(kind="columns", arrow="any")
    created = TopicCreated(topic="keyless", topic_id=OTHER_TOPIC_ID, partitions=1, topic_schema=schema, time_ms=NOW_MS)
    append(history, created)
    compacted = TopicConfig(cleanup_policy="compact")

    error = refused(history, TopicConfigChanged(topic="keyless", topic_id=OTHER_TOPIC_ID, config=compacted))

    assert isinstance(error, InvalidTopic)


def test_both_cleanup_policies_may_be_named_in_either_order() -> None:
    assert TopicConfig.model_validate({"cleanup_policy": "delete,compact"}).cleanup_policy == "compact,delete"


def test_a_compacted_topic_seals_segments_before_its_compaction_lag_is_over() -> None:
    assert TopicConfig(cleanup_policy="compact", max_compaction_lag_ms=5, segment_ms=9).longest_segment_ms == 5
    assert TopicConfig(cleanup_policy="compact", max_compaction_lag_ms=-1, segment_ms=9).longest_segment_ms == 9
    assert TopicConfig(cleanup_policy="delete", max_compaction_lag_ms=5, segment_ms=9).longest_segment_ms == 9
