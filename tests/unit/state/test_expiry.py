"""What a store forgets, and what it never does."""

from __future__ import annotations

import pytest

from eoslog.errors import EosLogError, InvalidEntry
from eoslog.state.entries import HorizonMoved, PendingDeletionsDone
from eoslog.state.expiry import PRODUCER_ID_EXPIRATION_MS, TRANSACTIONAL_ID_EXPIRATION_MS, Expired
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from tests.unit.state.histories import History, planned_expiry


def expiry(history: History) -> Expired:
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    return planned


def test_the_horizon_never_moves_back() -> None:
    history = History()
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=10)))
    for horizon_ms in (10, 9):
        entry = HorizonMoved(horizon_ms=horizon_ms)
        assert isinstance(history.refused(lambda draft, e=entry: draft.append(e)), InvalidEntry)


def test_ids_expire_when_nobody_used_them_for_long_and_not_before() -> None:
    history = History()
    history.init()
    history.init(None)
    assert planned_expiry(history.state, history.now_ms + PRODUCER_ID_EXPIRATION_MS - 1) is None

    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    assert (len(expiry(history).producers), len(expiry(history).transactional_ids)) == (1, 0)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = expiry(history)
    history.append(lambda draft: draft.append(planned))

    assert not history.state.producers
    assert not history.state.transactions
    assert planned_expiry(history.state, history.now_ms) is None


def test_an_id_that_was_used_after_its_expiry_was_planned_does_not_expire() -> None:
    history = History()
    history.init()
    idempotent = history.init(None)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = expiry(history)
    history.send(idempotent, transactional_id=None)
    assert isinstance(history.refused(lambda draft: draft.append(planned)), InvalidEntry)

    only_txn = planned.model_copy(update={"producers": ()})
    history.init()
    assert isinstance(history.refused(lambda draft: draft.append(only_txn)), InvalidEntry)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_producer_id_that_rolled_over_is_forgotten_by_partitions_at_once(outcome: str) -> None:
    """It never comes again, and an id that is used for years must not leave its whole line behind."""
    history = History()
    identity = history.init()
    for _ in range(3):
        first = history.end(sealed(history, identity), outcome)
        last = history.at_epoch(LAST_USABLE_EPOCH)
        history.send(last)
        late = history.batch(last, 1)
        identity = history.end(last, outcome)

        assert first.producer_id == last.producer_id < identity.producer_id
        assert not history.partition().producers
        assert not history.partition().start_producers
        assert history.end(last, outcome) == identity
        assert isinstance(history.refused(lambda draft, late=late: draft.append(late).base_offset), EosLogError)

    history.seal(history.partition().next_offset)
    assert not history.partition().start_producers


def sent(history: History, identity: ProducerIdentity) -> ProducerIdentity:
    history.send(identity)
    return identity


def sealed(history: History, identity: ProducerIdentity) -> ProducerIdentity:
    """The producer in a transaction, after one whose rows stand in a sealed segment."""
    after = history.commit(sent(history, identity))
    history.seal(history.partition().next_offset)
    assert history.partition().start_producers
    return sent(history, after)


def test_an_init_that_rolls_over_forgets_the_producer_id_before() -> None:
    history = History()
    history.commit(sent(history, history.init()))
    assert history.partition().producers
    history.at_epoch(LAST_USABLE_EPOCH)

    after = history.init()

    assert after.producer_epoch == 0
    assert not history.partition().producers


def test_of_a_prepared_transaction_the_old_producer_id_is_known_until_it_ends() -> None:
    history = History()
    history.init()
    named = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(named)
    history.prepare(named)
    history.init(keep_prepared=True)
    history.at_epoch(LAST_USABLE_EPOCH)

    holder = history.init(keep_prepared=True)

    assert set(history.partition().producers) == {named.producer_id}
    history.commit(holder)
    assert not history.partition().producers


def test_files_pending_deletion_are_dropped_up_to_a_slot_and_once() -> None:
    history = History()
    history.delete_topic()
    slot = history.slot
    early = PendingDeletionsDone(slot=slot - 1)

    assert isinstance(history.refused(lambda draft: draft.append(early)), InvalidEntry)
    history.append(lambda draft: draft.append(PendingDeletionsDone(slot=slot)))
    again = PendingDeletionsDone(slot=slot)
    assert isinstance(history.refused(lambda draft: draft.append(again)), InvalidEntry)
