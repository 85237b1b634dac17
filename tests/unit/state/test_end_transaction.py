"""Kafka's table of EndTxn, cell by cell, and what begins and ends leave in the partitions."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    EosLogError,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.store_state import TransactionState
from tests.unit.state.answers import end_refused, previous
from tests.unit.state.histories import OTHER_TOPIC_ID, History, topic_created

STATES = ("EMPTY", "ONGOING", "ONGOING, prepared", "ONGOING, prepared, kept", "COMPLETE_ABORT", "COMPLETE_COMMIT")
RAISED, REPEATED = "done, and the epoch raised", "answered again"
CELLS = [
    ("EMPTY", "abort", "retry", ProducerFenced),
    ("EMPTY", "abort", "current", RAISED),
    ("EMPTY", "commit", "retry", ProducerFenced),
    ("EMPTY", "commit", "current", InvalidTxnState),
    ("COMPLETE_ABORT", "abort", "retry", REPEATED),
    ("COMPLETE_ABORT", "abort", "current", RAISED),
    ("COMPLETE_ABORT", "commit", "retry", InvalidTxnState),
    ("COMPLETE_ABORT", "commit", "current", InvalidTxnState),
    ("COMPLETE_COMMIT", "abort", "retry", InvalidTxnState),
    ("COMPLETE_COMMIT", "abort", "current", RAISED),
    ("COMPLETE_COMMIT", "commit", "retry", REPEATED),
    ("COMPLETE_COMMIT", "commit", "current", InvalidTxnState),
    ("ONGOING", "abort", "retry", ProducerFenced),
    ("ONGOING", "abort", "current", RAISED),
    ("ONGOING", "commit", "retry", ProducerFenced),
    ("ONGOING", "commit", "current", RAISED),
    ("ONGOING, prepared", "abort", "retry", ProducerFenced),
    ("ONGOING, prepared", "abort", "current", RAISED),
    ("ONGOING, prepared", "commit", "retry", ProducerFenced),
    ("ONGOING, prepared", "commit", "current", RAISED),
    ("ONGOING, prepared, kept", "abort", "retry", ProducerFenced),
    ("ONGOING, prepared, kept", "abort", "current", RAISED),
    ("ONGOING, prepared, kept", "commit", "retry", ProducerFenced),
    ("ONGOING, prepared, kept", "commit", "current", RAISED),
]


def bring_to(history: History, state: str) -> ProducerIdentity:
    """An id in this state, with a transaction of the epoch before. Returns the current identity."""
    identity = history.init()
    history.send(identity)
    identity = history.end(identity, "abort" if state == "COMPLETE_ABORT" else "commit")
    if state.startswith("ONGOING"):
        history.send(identity)
        if "prepared" in state:
            history.prepare(identity)
        if "kept" in state:
            identity = history.init(keep_prepared=True)
    elif state == "EMPTY":
        identity = history.init()
    assert history.transaction().state.name == state.partition(",")[0]
    return identity


@pytest.mark.scenario(106)
@pytest.mark.parametrize(("state", "outcome", "epoch", "answer"), CELLS)
def test_an_end_is_answered_as_in_kafkas_table(
    history: History, state: str, outcome: str, epoch: str, answer: str | type[EosLogError]
) -> None:
    current = bring_to(history, state)
    asked = current if epoch == "current" else previous(current)
    slot = history.slot

    if isinstance(answer, type):
        assert end_refused(history, asked, outcome) is answer
    elif answer == REPEATED:
        assert history.end(asked, outcome) == current
        assert history.slot == slot
    else:
        assert history.end(asked, outcome) == (current.producer_id, current.producer_epoch + 1)
        assert history.transaction().state.name == f"COMPLETE_{outcome.upper()}"


@pytest.mark.scenario(106)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_of_an_epoch_that_is_neither_current_nor_before_is_fenced(
    history: History, state: str, outcome: str
) -> None:
    current = bring_to(history, state)

    for change in (-2, 1, 2):
        epoch = current.producer_epoch + change
        if epoch >= 0:
            assert end_refused(history, current._replace(producer_epoch=epoch), outcome) is ProducerFenced


@pytest.mark.scenario(106)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_of_an_unknown_id_or_of_another_producer_id_is_refused(
    history: History, state: str, outcome: str
) -> None:
    current = bring_to(history, state)

    assert end_refused(history, current, outcome, "unknown") is InvalidProducerIdMapping
    other = current._replace(producer_id=current.producer_id + 1)
    assert end_refused(history, other, outcome) is InvalidProducerIdMapping


@pytest.mark.scenario(106)
@pytest.mark.parametrize("deciding", ["commit", "abort"])
@pytest.mark.parametrize("late", ["commit", "abort"])
def test_an_end_that_meets_another_on_its_way_is_answered_as_after_it(
    history: History, deciding: str, late: str
) -> None:
    """Kafka answers CONCURRENT_TRANSACTIONS or a fence while an end is prepared; here it is decided or it is not."""
    identity = bring_to(history, "ONGOING")
    after = history.end(identity, deciding)

    if late == deciding:
        assert history.end(identity, late) == after
    else:
        assert end_refused(history, identity, late) is InvalidTxnState


@pytest.mark.scenario(104)
@pytest.mark.parametrize("state", [state for state in STATES if "prepared" not in state])
def test_a_batch_adds_its_partition_in_every_state_at_rest(history: History, state: str) -> None:
    identity = bring_to(history, state)

    history.send(identity, partition=1)

    transaction = history.transaction()
    assert transaction.state is TransactionState.ONGOING
    assert {place.partition for place in transaction.partitions} == ({0, 1} if state == "ONGOING" else {1})


@pytest.mark.scenario(104, 165)
def test_a_batch_that_is_there_already_adds_nothing(history: History) -> None:
    identity = history.init()
    history.send(identity)
    slot, update = history.slot, history.transaction()
    again = history.batch(identity)

    with pytest.raises(DuplicateBatch):
        history.append(lambda draft: draft.append(again).base_offset)

    assert (history.slot, history.transaction()) == (slot, update)


@pytest.mark.scenario(118)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("created_again", [False, True])
def test_a_topic_that_was_deleted_meanwhile_gets_no_marker_and_hinders_nobody(
    history: History, outcome: str, created_again: bool
) -> None:
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID, 1)))
    identity = history.init()
    history.send(identity)
    history.send(identity, topic_id=OTHER_TOPIC_ID)
    history.delete_topic("other", OTHER_TOPIC_ID)
    if created_again:
        history.append(lambda draft: draft.append(topic_created("other", "c" * 32, 1)))

    history.end(identity, outcome)

    assert history.partition().last_stable_offset == 2
    if created_again:
        assert history.partition(0, "c" * 32).high_watermark == 0


@pytest.mark.scenario(118)
def test_markers_of_several_transactions_keep_the_order_of_their_ends(history: History) -> None:
    identities = {name: history.init(name) for name in ("a", "b", "c")}
    for name, identity in identities.items():
        history.send(identity, transactional_id=name)
    for name in ("b", "c", "a"):
        history.commit(identities[name], name)

    markers = [batch.transactional_id for batch in history.partition().active if batch.control is not None]
    assert markers == ["b", "c", "a"]
