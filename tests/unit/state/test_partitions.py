"""Offsets, high watermark, last stable offset, aborted transactions and seals of one partition."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.state.entries import HorizonMoved, TopicConfig
from eoslog.state.expiry import PRODUCER_ID_EXPIRATION_MS
from eoslog.state.partition_state import AbortedTransaction, Control, Outcome
from eoslog.state.partitions import sealable_end
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import DuplicateBatch
from tests.unit.state.histories import NOW_MS, OTHER_TOPIC_ID, History, fold, planned_expiry


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

    def end(self, name: str, outcome: str) -> None:
        self.ids[name] = self.history.end(self.ids[name], outcome, name)
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


@pytest.mark.further("Partition log and last stable offset")
def test_the_last_stable_offset_never_moves_back() -> None:
    history, _ = kafkas_fixture()
    replay = History()
    stable = 0
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

    outcomes = [(batch.base_offset, batch.outcome) for batch in history.partition().active]
    assert outcomes == [(0, Outcome.ABORTED), (2, Outcome.OPEN), (4, Outcome.ABORTED)]
    assert history.partition().active[-1].control is Control.ABORT
    assert history.partition().next_offset == 5


def test_unknown_topics_and_partitions_are_refused() -> None:
    history = History()
    identity = history.init()
    for batch in (history.batch(identity, partition=9), history.batch(identity, topic_id=OTHER_TOPIC_ID)):
        assert isinstance(history.refused(lambda draft, b=batch: draft.append(b).base_offset), UnknownTopicOrPartition)


def test_a_batch_with_another_base_offset_than_the_next_is_invalid() -> None:
    history = History()
    identity = history.init()
    entry = history.batch(identity, base_offset=1)

    assert history.is_invalid(entry)
    assert not history.is_invalid(entry.model_copy(update={"base_offset": 0}))


def test_a_batch_uploaded_at_or_before_the_horizon_is_refused() -> None:
    history = History()
    identity = history.init()
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    refused = history.batch(identity, upload_ms=history.now_ms)
    assert isinstance(history.refused(lambda draft: draft.append(refused).base_offset), StagedFilesExpired)
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


def test_a_segment_is_sealable_by_the_age_of_its_first_decision() -> None:
    history = History()
    writers = Writers(history)
    batch = history.batch(writers.plain, 0, 3, transactional_id=None, min_timestamp=0, max_timestamp=0)
    history.append(lambda draft: draft.append(batch).base_offset)
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


def test_an_expired_producer_is_forgotten_at_the_segments_start_too() -> None:
    history = History()
    writers = Writers(history)
    writers.alone(3)
    history.seal(3)
    writers.alone(3)
    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    expired = planned_expiry(history.state, history.now_ms)
    assert expired is not None
    history.append(lambda draft: draft.append(expired))

    assert history.partition().start_producers == {}
    history.seal(6)
    assert history.partition().start_producers == {}


def test_a_repeated_batch_is_recognised_though_the_horizon_has_passed_its_file() -> None:
    history = History()
    identity = history.init()
    batch = history.batch(identity)
    history.append(lambda draft: draft.append(batch).base_offset)
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), DuplicateBatch)
