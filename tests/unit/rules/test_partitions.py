"""Offsets, high watermark, last stable offset, aborted transactions and seals of one partition."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, InvalidTxnState, OffsetOutOfRange, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.coordinator import append_batch
from eoslog.rules.draft import Draft
from eoslog.rules.entries import HorizonMoved, LogStartMoved, TopicConfig
from eoslog.rules.forgetting import PRODUCER_ID_EXPIRATION_MS, plan_expiry
from eoslog.rules.partitions import check_batch, sealable_end
from eoslog.rules.producer_ids import ProducerIdentity
from eoslog.rules.sequences import DuplicateBatch
from eoslog.rules.state import NO_SLOT, Control, Verdict
from tests.unit.rules.histories import NOW_MS, OTHER_TOPIC_ID, TOPIC_ID, History


class Writers:
    """Producers of one partition that keep their own sequences, as in Kafka's log tests."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.ids: dict[str, ProducerIdentity] = {}
        self.sequences: dict[str, int] = {}
        self.plain = history.init(None)
        self.plain_sequence = 0

    def txn(self, name: str, count: int) -> None:
        if name not in self.ids:
            self.ids[name] = self.history.init(name)
        self.history.send(self.ids[name], self.sequences.get(name, 0), count, transactional_id=name)
        self.sequences[name] = self.sequences.get(name, 0) + count

    def alone(self, count: int) -> None:
        self.history.send(self.plain, self.plain_sequence, count, transactional_id=None)
        self.plain_sequence += count

    def end(self, name: str, verdict: str) -> None:
        self.ids[name] = self.history.end(self.ids[name], verdict, name)
        self.sequences[name] = 0


def kafkas_fixture() -> tuple[History, Writers]:
    """The appends of ``UnifiedLogTest.testTransactionIndexUpdated``."""
    history = History()
    writers = Writers(history)
    writers.txn("p1", 5)
    writers.alone(3)
    writers.txn("p2", 2)
    writers.txn("p1", 4)
    writers.txn("p3", 3)
    writers.alone(2)
    writers.txn("p1", 10)
    writers.end("p1", "abort")
    writers.txn("p2", 6)
    writers.txn("p4", 3)
    writers.alone(10)
    writers.txn("p3", 9)
    writers.end("p3", "commit")
    writers.txn("p4", 8)
    writers.txn("p2", 7)
    writers.end("p2", "abort")
    writers.alone(10)
    writers.txn("p4", 4)
    writers.end("p4", "commit")
    return history, writers


def test_the_aborted_index_is_kafkas() -> None:
    history, writers = kafkas_fixture()

    assert history.partition().next_offset == 90
    assert history.partition().aborted == [
        AbortedTransaction(writers.ids["p1"].producer_id, 0, 29, 8),
        AbortedTransaction(writers.ids["p2"].producer_id, 8, 74, 36),
    ]


def test_the_last_stable_offset_is_the_first_offset_of_the_earliest_open_transaction() -> None:
    history = History()
    writers = Writers(history)
    partition = history.partition

    writers.alone(4)
    assert partition().last_stable_offset == partition().high_watermark == 4
    writers.txn("p1", 5)
    assert partition().last_stable_offset == 4
    writers.alone(3)
    writers.txn("p2", 2)
    writers.txn("p1", 4)
    assert (partition().last_stable_offset, partition().high_watermark) == (4, 18)
    writers.end("p1", "commit")
    assert partition().last_stable_offset == 12
    writers.end("p2", "abort")
    assert partition().last_stable_offset == partition().high_watermark == 20


def test_the_last_stable_offset_never_moves_back() -> None:
    history, _ = kafkas_fixture()
    replay = History()
    stable = 0
    from eoslog.rules.machine import fold

    for slot, record in enumerate(history.records[2:], 2):
        assert fold(replay.state, slot, record) is None
        assert replay.partition().last_stable_offset >= stable
        stable = replay.partition().last_stable_offset


def test_a_marker_takes_one_offset_and_settles_the_rows_of_its_transaction_alone() -> None:
    history = History()
    writers = Writers(history)
    writers.txn("p1", 2)
    writers.txn("p2", 2)
    writers.end("p1", "abort")

    verdicts = [(batch.base_offset, batch.verdict) for batch in history.partition().active]
    assert verdicts == [(0, Verdict.ABORTED), (2, Verdict.OPEN), (4, Verdict.ABORTED)]
    assert history.partition().active[-1].control is Control.ABORT
    assert history.partition().next_offset == 5


def test_a_batch_without_transaction_is_refused_while_its_producer_has_one_open() -> None:
    history = History()
    identity = history.init()
    history.send(identity)

    with pytest.raises(InvalidTxnState):
        check_batch(history.partition(), "t-0", history.batch(identity, 1, transactional_id=None))


def test_a_repeated_batch_is_answered_with_its_offset_and_takes_no_slot() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.alone(2)
    slot = history.slot
    batch = history.batch(writers.plain, 3, 2, transactional_id=None)

    error = history.refused(lambda draft: append_batch(draft, batch))

    assert isinstance(error, DuplicateBatch)
    assert error.base_offset == 3
    assert history.slot == slot


def test_sequences_are_kept_per_partition() -> None:
    history = History()
    identity = history.init(None)

    history.send(identity, 0, 5, transactional_id=None, partition=0)
    history.send(identity, 0, 5, transactional_id=None, partition=1)

    assert [history.partition(p).next_offset for p in range(2)] == [5, 5]


def test_unknown_topics_and_partitions_are_refused() -> None:
    history = History()
    identity = history.init()
    for batch in (history.batch(identity, partition=9), history.batch(identity, topic_id=OTHER_TOPIC_ID)):
        assert isinstance(history.refused(lambda draft, b=batch: append_batch(draft, b)), UnknownTopicOrPartition)


def test_a_batch_with_another_base_offset_than_the_next_is_invalid() -> None:
    history = History()
    identity = history.init()
    entry = history.batch(identity, base_offset=1)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_a_batch_uploaded_at_or_before_the_horizon_is_refused() -> None:
    history = History()
    identity = history.init()
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    refused = history.batch(identity, upload_ms=history.now_ms)
    assert isinstance(history.refused(lambda draft: append_batch(draft, refused)), StagedFilesExpired)
    history.send(identity, upload_ms=history.now_ms + 1)


def test_a_seal_moves_decided_batches_out_of_the_state() -> None:
    history, writers = kafkas_fixture()
    before = history.partition().copy()

    history.seal(30)

    partition = history.partition()
    assert partition.segment_base_offset == 30
    assert [batch.base_offset for batch in partition.active] == [
        batch.base_offset for batch in before.active if batch.base_offset >= 30
    ]
    assert partition.aborted == before.aborted[1:]
    assert partition.producers == before.producers
    (segment,) = partition.sealed
    assert (segment.base_offset, segment.end_offset, segment.batch_count) == (0, 30, 8)
    assert segment.bytes == 700
    assert partition.active_bytes == before.active_bytes - 700
    assert segment.slot == history.slot
    writers.alone(1)
    assert history.partition().next_offset == 91


def test_a_seal_goes_up_to_the_last_stable_offset_and_not_beyond() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.txn("p1", 2)
    writers.alone(1)

    beyond = history.seal_entry(5)
    assert isinstance(history.refused(lambda draft: draft.append(beyond)), InvalidEntry)
    history.seal(3)
    assert history.partition().last_stable_offset == 3


def test_a_seal_cuts_no_batch() -> None:
    history = History()
    Writers(history).alone(3)
    entry = history.seal_entry(2)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_a_segment_is_sealed_once() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    entry = history.seal_entry(3)
    history.append(lambda draft: draft.append(entry))

    assert isinstance(history.refused(lambda draft: draft.append(entry)), OffsetOutOfRange)


def test_a_seal_leaves_no_gap_and_is_not_empty() -> None:
    history = History()
    Writers(history).alone(3)
    for entry in (history.seal_entry(3, base_offset=1), history.seal_entry(0), history.seal_entry(9)):
        assert isinstance(history.refused(lambda draft, e=entry: draft.append(e)), InvalidEntry)


def test_a_seal_may_not_forget_aborted_transactions() -> None:
    history, _ = kafkas_fixture()
    entry = history.seal_entry(30, index=False)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_a_seal_of_files_before_the_horizon_is_refused() -> None:
    history = History()
    Writers(history).alone(3)
    entry = history.seal_entry(3)
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    assert isinstance(history.refused(lambda draft: draft.append(entry)), StagedFilesExpired)


def test_a_segment_is_sealable_when_it_is_large_enough_and_decided() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.alone(3)
    writers.txn("p1", 1)
    partition = history.partition()

    assert sealable_end(partition, TopicConfig(segment_batches=2), NOW_MS) == 6
    assert sealable_end(partition, TopicConfig(segment_bytes=150), NOW_MS) == 6
    assert sealable_end(partition, TopicConfig(segment_batches=3), NOW_MS) is None
    assert sealable_end(partition, TopicConfig(), NOW_MS) is None


def test_a_segment_is_sealable_when_its_first_batch_was_decided_long_ago_whatever_the_times_of_its_rows() -> None:
    history = History()
    writers = Writers(history)
    batch = history.batch(writers.plain, 0, 3, transactional_id=None, min_timestamp=0, max_timestamp=0)
    history.append(lambda draft: append_batch(draft, batch))
    writers.plain_sequence = 3
    history.now_ms += 600
    writers.alone(3)
    writers.txn("p1", 1)
    partition, config = history.partition(), TopicConfig(segment_ms=1000)

    assert sealable_end(partition, config, NOW_MS + 1000) is None
    assert sealable_end(partition, config, NOW_MS + 1001) == 6


def test_a_segment_of_which_nothing_is_decided_is_never_sealable() -> None:
    history = History()
    Writers(history).txn("p1", 1)

    assert sealable_end(history.partition(), TopicConfig(segment_ms=1), NOW_MS + 10**9) is None


def move(history: History, offset: int) -> Exception | None:
    entry = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records")
    try:
        history.append(lambda draft: draft.append(entry))
    except Exception as error:
        return error
    return None


def test_the_log_start_stops_at_the_last_stable_offset_and_never_moves_back() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    writers.txn("p1", 2)

    assert isinstance(move(history, 4), OffsetOutOfRange)
    assert move(history, 3) is None
    assert isinstance(move(history, 3), InvalidEntry)
    assert isinstance(move(history, 2), InvalidEntry)


def test_producer_state_outlives_the_rows_below_the_log_start() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    move(history, 3)

    assert history.partition().active == []
    batch = history.batch(writers.plain, 0, 3, transactional_id=None)
    assert isinstance(history.refused(lambda draft: append_batch(draft, batch)), DuplicateBatch)
    writers.alone(2)
    assert history.partition().next_offset == 5
    history.seal(5)


def test_rows_below_the_log_start_are_doomed_with_the_slot_that_dropped_them() -> None:
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
    (doomed,) = history.state.doomed
    assert doomed.slot == history.slot
    assert len(doomed.indexes) == 1
    assert len(doomed.files) == 2


def test_what_was_known_of_producers_at_a_segments_start_outlives_the_segments_before() -> None:
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
    assert history.state.doomed == ()

    move(history, 7)
    partition = history.partition()
    assert (partition.sealed, [batch.base_offset for batch in partition.active]) == ((), [6])
    assert (partition.log_start_offset, partition.segment_base_offset) == (7, 6)


def test_a_transaction_that_opens_at_the_log_start_holds_the_last_stable_offset_there() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(5)
    writers.txn("p1", 2)
    move(history, 5)

    assert (history.partition().log_start_offset, history.partition().last_stable_offset) == (5, 5)
    assert isinstance(move(history, 6), OffsetOutOfRange)


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


def test_a_file_is_doomed_when_no_batch_that_is_left_names_it() -> None:
    history = History()
    writers = Writers(history)
    shared = history.file(name="shared")
    for sequence in (0, 1):
        batch = history.batch(writers.plain, sequence, transactional_id=None, file=shared)
        history.append(lambda draft, batch=batch: append_batch(draft, batch))

    move(history, 1)
    assert history.state.doomed == ()
    move(history, 2)
    (doomed,) = history.state.doomed
    assert doomed.files == (shared,)


def test_the_last_slot_of_removed_rows_is_known_though_the_same_record_changed_the_partition_before() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    written = history.slot
    history.seal(3)
    late = history.batch(writers.plain, 3, transactional_id=None)
    moved = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=3, reason="delete_records")

    def propose(draft: Draft) -> None:
        append_batch(draft, late)
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


def test_an_entry_that_claims_to_lose_what_the_segment_it_cuts_cannot_hold_is_invalid() -> None:
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


def test_an_expired_producer_is_forgotten_at_the_segments_start_too() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    history.seal(3)
    writers.alone(3)
    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    expired = plan_expiry(history.state, history.now_ms)
    assert expired is not None
    history.append(lambda draft: draft.append(expired))

    assert history.partition().start_producers == {}
    history.seal(6)
    assert history.partition().start_producers == {}


def test_a_repeated_batch_is_recognised_though_the_horizon_has_passed_its_file() -> None:
    history = History()
    identity = history.init()
    batch = history.batch(identity)
    history.append(lambda draft: append_batch(draft, batch))
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    assert isinstance(history.refused(lambda draft: append_batch(draft, batch)), DuplicateBatch)
