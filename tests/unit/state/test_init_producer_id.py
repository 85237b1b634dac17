"""The answer of an init: in every state of the id, at the exhausted epoch, repeated, and to another producer."""

from __future__ import annotations

import pytest

from eoslog.errors import ProducerFenced
from eoslog.state.partition_state import Outcome
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_requests import InitProducerId
from tests.unit.state.answers import batch_refused
from tests.unit.state.histories import History


def init_refused(history: History, expected: ProducerIdentity) -> type[Exception]:
    return type(
        history.refused(
            lambda draft: InitProducerId("tx", timeout_ms=60_000, time_ms=history.now_ms, expected=expected).take(draft)
        )
    )


@pytest.mark.scenario(101)
def test_an_init_without_a_transactional_id_returns_a_new_producer_id_each_time(history: History) -> None:
    identities = [history.init(None) for _ in range(3)]

    assert len({identity.producer_id for identity in identities}) == 3
    assert {identity.producer_epoch for identity in identities} == {0}


@pytest.mark.scenario(103)
def test_an_init_at_the_exhausted_epoch_gives_a_new_producer_id_with_epoch_zero(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)

    after = history.init()

    assert after.producer_epoch == 0
    assert after.producer_id > exhausted.producer_id
    assert batch_refused(history, exhausted) is ProducerFenced
    history.send(after)


@pytest.mark.scenario(108)
@pytest.mark.parametrize("end", [None, "commit", "abort"])
def test_an_init_at_rest_raises_the_epoch_and_forgets_the_partitions(history: History, end: str | None) -> None:
    identity = history.init()
    if end is not None:
        history.send(identity)
        identity = history.end(identity, end)
    rows = history.partition().high_watermark

    after = history.init()

    transaction = history.transaction()
    assert after == (identity.producer_id, identity.producer_epoch + 1)
    assert (transaction.state, transaction.partitions) == (TransactionState.EMPTY, frozenset())
    assert history.partition().high_watermark == rows


@pytest.mark.scenario(109)
def test_an_init_while_a_transaction_is_open_aborts_it_and_is_answered_at_once(history: History) -> None:
    """Kafka asks its caller to come again; here fence, abort and init stand in one record."""
    zombie = history.init()
    history.send(zombie, 0, 3)
    slot = history.slot

    after = history.init()

    assert history.slot == slot + 1
    assert [entry["type"] for entry in history.records[-1]] == ["end", "init"]
    assert after == (zombie.producer_id, zombie.producer_epoch + 2)
    assert [batch.outcome for batch in history.partition().active] == [Outcome.ABORTED, Outcome.ABORTED]
    assert history.partition().last_stable_offset == history.partition().high_watermark == 4
    assert [txn.last_offset for txn in history.partition().aborted] == [3]
    assert batch_refused(history, zombie, 3) is ProducerFenced


@pytest.mark.scenario(109)
def test_an_init_of_an_older_epoch_does_not_touch_the_open_transaction(history: History) -> None:
    zombie = history.init()
    current = history.init()
    history.send(current)

    assert init_refused(history, zombie) is ProducerFenced

    assert history.transaction().state is TransactionState.ONGOING
    history.commit(current)


@pytest.mark.scenario(109)
def test_an_init_that_names_the_epoch_of_its_open_transaction_aborts_it(history: History) -> None:
    current = history.init()
    history.send(current)

    after = history.init(expected=current)

    assert after.producer_epoch == current.producer_epoch + 2
    assert history.partition().open_transactions == {}


@pytest.mark.scenario(111)
def test_an_init_at_the_exhausted_epoch_aborts_and_changes_ids(
    history: History,
) -> None:
    """The end takes the new id at epoch 0, the init raises it, in one record."""
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(exhausted, 0, 2)

    after = history.init()

    assert after == (history.slot << 20, 1)
    assert [batch.outcome for batch in history.partition().active] == [Outcome.ABORTED, Outcome.ABORTED]
    assert batch_refused(history, exhausted, 2) is ProducerFenced
    history.send(after)
    history.commit(after)
    assert history.partition().last_stable_offset == 5


@pytest.mark.scenario(113)
def test_an_init_that_changed_the_producer_id_is_answered_again_when_it_is_repeated(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    after = history.init(expected=exhausted)
    slot = history.slot

    assert history.init(expected=exhausted) == after
    assert history.slot == slot


@pytest.mark.scenario(113)
def test_after_a_change_of_the_producer_id_any_other_identity_is_fenced(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    after = history.init(expected=exhausted)

    for wrong in (
        exhausted._replace(producer_epoch=LAST_USABLE_EPOCH - 1),
        ProducerIdentity(exhausted.producer_id + 1, exhausted.producer_epoch),
        ProducerIdentity(after.producer_id, 1),
    ):
        assert init_refused(history, wrong) is ProducerFenced


@pytest.mark.scenario(113)
def test_a_repeated_init_is_fenced_once_its_id_was_used(
    history: History,
) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(history.init(expected=exhausted))

    assert init_refused(history, exhausted) is ProducerFenced
    assert history.transaction().state is TransactionState.ONGOING
