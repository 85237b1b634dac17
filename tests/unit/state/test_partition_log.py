"""Offsets of a partition, its last stable offset and its log start."""

from __future__ import annotations

import pytest

from eoslog.state.draft import Draft
from eoslog.state.entries import LogStartMoved
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.state_machine import encode_entry
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import TOPIC_ID, History


def log_start(offset: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records")


@pytest.mark.scenario(41)
def test_idempotent_rows_are_stable_at_once(history: History) -> None:
    identity = history.init(None)
    history.send(identity, 0, 3, transactional_id=None)
    history.send(identity, 3, 2, transactional_id=None)

    assert history.partition().open_transactions == {}
    assert history.partition().last_stable_offset == 5


@pytest.mark.scenario(42)
def test_the_first_row_of_an_open_transaction_is_unstable_until_its_marker_is_durable(history: History) -> None:
    plain = history.init(None)
    history.send(plain, 0, 2, transactional_id=None)
    identity = history.init()
    history.send(identity, 0, 3)
    assert history.partition().last_stable_offset == 2
    history.send(identity, 3, 2)
    assert history.partition().last_stable_offset == 2

    history.commit(identity)

    assert history.partition().last_stable_offset == history.partition().high_watermark == 8


@pytest.mark.scenario(48)
def test_each_batch_of_several_producers_in_one_record_is_validated_alone(history: History) -> None:
    one, other = history.init(None), history.init(None)

    def propose(draft: Draft) -> list[int]:
        answers = []
        for identity, base_sequence in ((one, 0), (other, 0), (one, 1), (other, 0), (other, 1), (one, 1)):
            batch = history.batch(identity, base_sequence, transactional_id=None)
            try:
                answers.append(draft.append(batch).base_offset)
            except DuplicateBatch as duplicate:
                answers.append(duplicate.base_offset)
        return answers

    assert history.append(propose) == [0, 1, 2, 1, 3, 2]

    assert history.partition().high_watermark == 4
    assert history.follower == history.state


@pytest.mark.scenario(48)
def test_a_duplicate_that_stands_in_the_log_is_inert_for_those_who_follow(history: History) -> None:
    identity = history.init(None)
    batch = history.batch(identity, transactional_id=None)
    history.append(lambda draft: draft.append(batch).base_offset)

    assert is_inert(history.follower, history.slot + 1, [encode_entry(batch)])


@pytest.mark.scenario(52)
@pytest.mark.parametrize("offset", [3, 4, 6])
def test_the_last_stable_offset_is_never_below_the_log_start(history: History, offset: int) -> None:
    identity = history.init()
    for _ in range(2):
        history.send(identity, 0, 2)
        identity = history.commit(identity)
    history.send(identity)
    history.seal(3)

    history.append(lambda draft: draft.append(log_start(offset)))

    partition = history.partition()
    assert partition.log_start_offset == offset <= partition.last_stable_offset == 6


@pytest.mark.scenario(56)
def test_an_open_transaction_stays_when_the_log_start_moves_up_to_it(history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 2)
    identity = history.commit(identity)
    history.send(identity, 0, 2)

    history.append(lambda draft: draft.append(log_start(3)))

    assert history.partition().open_transactions == {identity.producer_id: 3}
    history.abort(identity)
    assert history.partition().last_stable_offset == 6


@pytest.mark.scenario(58)
def test_producer_state_outlives_the_rows_that_made_it(history: History) -> None:
    identity = history.init(None)
    history.send(identity, 0, 3, transactional_id=None)
    history.append(lambda draft: draft.append(log_start(3)))

    assert reloaded(history) == history.state
    repeat = history.batch(identity, 0, 3, transactional_id=None)
    with pytest.raises(DuplicateBatch) as duplicate:
        history.append(lambda draft: draft.append(repeat).base_offset)
    assert duplicate.value.base_offset == 0
    assert history.send(identity, 3, transactional_id=None) == 3


@pytest.mark.further("Partition log and last stable offset")
def test_a_transaction_holds_the_stable_offset_only_in_the_partitions_that_it_touched(history: History) -> None:
    identity = history.init()
    history.send(identity, partition=1)
    history.send(history.init(None), transactional_id=None)

    assert [history.partition(p).last_stable_offset for p in (0, 1)] == [1, 0]
