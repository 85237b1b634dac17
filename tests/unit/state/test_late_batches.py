"""A batch that comes late opens no hanging transaction: the end of one transaction and the begin of the next are slots.

Kafka guards the first append of a transaction to a partition with a token of the coordinator's. Here a batch is
validated against its transactional id in the very slot that appends it, so no step between two needs a guard.
"""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidProducerIdMapping,
    OutOfOrderSequence,
    ProducerFenced,
)
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import TransactionState
from tests.unit.state.answers import batch_refused, end_refused, previous
from tests.unit.state.histories import History


@pytest.mark.scenario(65, 104, 105)
def test_only_who_holds_the_transactional_id_begins_a_transaction_in_a_partition(history: History) -> None:
    identity = history.init()

    assert batch_refused(history, identity, transactional_id="unknown") is InvalidProducerIdMapping
    assert batch_refused(history, ProducerIdentity(identity.producer_id + 1, 0)) is InvalidProducerIdMapping
    assert batch_refused(history, identity._replace(producer_epoch=5)) is ProducerFenced
    assert history.partition().open_transactions == {}
    history.send(identity)
    history.send(identity, 1)
    assert history.partition().open_transactions == {identity.producer_id: 0}


@pytest.mark.scenario(65, 66)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_batch_that_comes_after_the_end_of_its_transaction_opens_no_other(history: History, outcome: str) -> None:
    identity = history.init()
    history.send(identity)
    history.end(identity, outcome)

    for base_sequence in (0, 1):
        assert batch_refused(history, identity, base_sequence) is ProducerFenced

    assert history.partition().last_stable_offset == history.partition().high_watermark == 2


@pytest.mark.scenario(65)
def test_a_late_batch_to_a_partition_without_a_marker_is_refused(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.abort(identity)
    late = history.batch(identity, partition=1)

    assert isinstance(history.refused(lambda draft: draft.append(late).base_offset), ProducerFenced)
    assert history.partition(1).high_watermark == 0


@pytest.mark.scenario(66)
def test_the_end_of_one_transaction_does_not_touch_the_next(history: History) -> None:
    """KAFKA-17754, found by Jepsen: aborted reads, lost and torn writes."""
    first = history.init()
    history.send(first)
    second = history.commit(first)
    history.send(second)

    assert end_refused(history, first, "commit") is ProducerFenced

    assert history.transaction().state is TransactionState.ONGOING
    history.send(second, 1)
    history.commit(second)
    assert history.partition().last_stable_offset == 5


@pytest.mark.scenario(66)
def test_an_empty_transaction_leaves_nothing_behind_for_the_next(history: History) -> None:
    after = history.abort(history.init())

    assert batch_refused(history, previous(after)) is ProducerFenced
    history.send(after)
    history.commit(after)

    assert history.partition().last_stable_offset == 2


@pytest.mark.scenario(67)
def test_a_first_batch_after_several_transactions_begins_at_sequence_zero(history: History) -> None:
    identity = history.init()
    for _ in range(3):
        history.send(identity)
        identity = history.commit(identity)

    assert batch_refused(history, identity, 1) is OutOfOrderSequence
    history.send(identity, partition=1)


@pytest.mark.scenario(165)
@pytest.mark.parametrize("first_to_come", ["old", "new"])
def test_of_two_epochs_that_begin_at_once_only_the_higher_may_write(history: History, first_to_come: str) -> None:
    old = history.init()
    new = history.init()
    if first_to_come == "old":
        assert batch_refused(history, old) is ProducerFenced
        history.send(new)
    else:
        history.send(new)
        assert batch_refused(history, old) is ProducerFenced

    assert [batch.producer_epoch for batch in history.partition().active] == [new.producer_epoch]


@pytest.mark.further("Partition log and last stable offset")
def test_no_order_of_late_requests_leaves_a_transaction_that_nobody_can_end(history: History) -> None:
    zombie = history.init()
    history.send(zombie)
    successor = history.init()

    for base_sequence in (0, 1, 2):
        assert batch_refused(history, zombie, base_sequence) is ProducerFenced
    for outcome in ("commit", "abort"):
        assert end_refused(history, zombie, outcome) is ProducerFenced

    assert history.partition().open_transactions == {}
    history.send(successor)
    history.abort_by_admin()
    assert history.partition().last_stable_offset == history.partition().high_watermark
