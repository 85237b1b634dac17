"""What is known of one transactional id: its epochs, its producer ids, and how each follows from the one before."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eoslog.errors import InvalidEntry, InvalidTxnState, ProducerFenced
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.sequences import MAX_EPOCH
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_entries import ProducerInitialized
from eoslog.state.transactions import VALID_PREVIOUS_STATES, transit
from tests.unit.state.answers import reloaded
from tests.unit.state.histories import History
from tests.unit.state.test_init_producer_id import init_refused

S = TransactionState


@pytest.mark.scenario(80)
def test_the_first_epoch_is_zero_with_none_before(history: History) -> None:
    assert history.init().producer_epoch == 0

    transaction = history.transaction()
    assert (transaction.state, transaction.last_producer_epoch, transaction.previous_producer_id) == (S.EMPTY, -1, -1)


@pytest.mark.scenario(80)
def test_an_init_raises_the_epoch_by_one_and_knows_of_none_before(history: History) -> None:
    history.init()
    identity = history.at_epoch(735)

    assert history.init() == (identity.producer_id, 736)

    assert history.transaction().last_producer_epoch == -1


@pytest.mark.scenario(80)
@pytest.mark.parametrize("step", ["init", "abort", "commit"])
def test_an_exhausted_epoch_is_never_raised(history: History, step: str) -> None:
    """KAFKA-18660: the end must answer the new identity."""
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    if step == "init":
        after = history.init()
    else:
        history.send(exhausted)
        after = history.end(exhausted, step)

    assert after.producer_epoch == 0
    assert after.producer_id != exhausted.producer_id


@pytest.mark.scenario(81)
@pytest.mark.parametrize("end", [None, "commit", "abort"])
def test_an_abort_of_nothing_raises_the_epoch_and_ends_complete(history: History, end: str | None) -> None:
    identity = history.init()
    if end is not None:
        history.send(identity)
        identity = history.end(identity, end)
    rows = history.partition().high_watermark

    after = history.abort(identity)
    ended_ms = history.state.time_ms

    assert after == (identity.producer_id, identity.producer_epoch + 1)
    transaction = history.transaction()
    assert (transaction.state, transaction.partitions, transaction.start_ms) == (
        S.COMPLETE_ABORT,
        frozenset(),
        ended_ms,
    )
    assert transaction.last_producer_epoch == identity.producer_epoch
    assert history.partition().high_watermark == rows


@pytest.mark.scenario(83, 111)
def test_the_fence_of_an_exhausted_epoch_marks_its_rows_with_the_last_one(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(exhausted, 0, 2)

    history.init()

    marker = history.partition().active[-1]
    assert marker.control is not None
    assert marker.producer_epoch == MAX_EPOCH == LAST_USABLE_EPOCH + 1
    assert not history.partition().producers


@pytest.mark.scenario(83)
@pytest.mark.parametrize("producer_epoch", [LAST_USABLE_EPOCH - 1, LAST_USABLE_EPOCH])
@pytest.mark.parametrize("step", ["init", "fence", "commit", "abort"])
def test_the_epoch_that_is_kept_for_fences_is_given_to_nobody(history: History, step: str, producer_epoch: int) -> None:
    history.init()
    identity = history.at_epoch(producer_epoch)
    if step != "init":
        history.send(identity)

    after = history.end(identity, step) if step in ("commit", "abort") else history.init()

    assert after.producer_epoch <= LAST_USABLE_EPOCH


@pytest.mark.scenario(83)
@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.EMPTY])
def test_an_init_does_not_fence_a_transaction_that_is_not_open(history: History, state: TransactionState) -> None:
    assert state not in VALID_PREVIOUS_STATES[S.PREPARE_EPOCH_FENCE]
    identity = history.init()
    if state is not S.EMPTY:
        history.send(identity)
        history.end(identity, "commit" if state is S.COMPLETE_COMMIT else "abort")
    slot = history.slot

    history.init()

    assert [entry["type"] for entry in history.records[slot + 1]] == ["init"]


@pytest.mark.scenario(84)
@pytest.mark.parametrize("states_identity", [True, False])
def test_a_new_producer_id_begins_at_epoch_zero_and_keeps_the_one_before(
    history: History, states_identity: bool
) -> None:
    """Only an init that states the identity keeps the epoch, by which its repetition is recognized (KIP-360)."""
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)

    after = history.init(expected=exhausted if states_identity else None)

    transaction = history.transaction()
    assert after == (history.slot << 20, 0)
    assert transaction.previous_producer_id == exhausted.producer_id
    assert transaction.last_producer_epoch == (LAST_USABLE_EPOCH if states_identity else -1)
    assert reloaded(history) == history.state


@pytest.mark.scenario(84)
def test_the_producer_id_does_not_change_while_a_transaction_is_open(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)
    history.send(exhausted)
    init = ProducerInitialized(transactional_id="tx", timeout_ms=1, time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(init)), InvalidEntry)


@pytest.mark.scenario(84)
@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE])
def test_prepared_states_are_never_at_rest(history: History, state: TransactionState) -> None:
    """A producer id cannot change in them, nothing can be asked in them: nobody ever finds one."""
    identity = history.init()
    found = set()
    for step in ("commit", "abort", "init"):
        history.send(identity)
        identity = history.init() if step == "init" else history.end(identity, step)
        found.add(history.transaction().state)
        found.add(reloaded(history).transactions["tx"].state)

    assert state not in found
    assert found == {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}


@pytest.mark.scenario(86)
def test_an_init_that_names_an_epoch_of_an_unknown_id_begins_at_zero(history: History) -> None:
    assert history.init(expected=ProducerIdentity(7, 3)) == (history.slot << 20, 0)


@pytest.mark.scenario(86)
def test_an_init_at_the_current_epoch_raises_it_once_when_repeated(history: History) -> None:
    current = history.init()

    after = history.init(expected=current)
    slot = history.slot

    assert after == (current.producer_id, current.producer_epoch + 1)
    assert history.init(expected=current) == after
    assert history.slot == slot


@pytest.mark.scenario(86, 113)
@pytest.mark.parametrize("epochs_back", [2, 3])
def test_an_init_that_names_an_older_epoch_is_fenced(history: History, epochs_back: int) -> None:
    history.init()
    history.at_epoch(10)
    current = history.init(expected=history.at_epoch(10))

    assert init_refused(history, current._replace(producer_epoch=current.producer_epoch - epochs_back)) is (
        ProducerFenced
    )


@pytest.mark.scenario(86)
def test_an_init_that_names_the_epoch_before_is_fenced_if_another_init_came_between(history: History) -> None:
    zombie = history.init()
    history.init()

    assert init_refused(history, zombie) is ProducerFenced


@pytest.mark.scenario(86)
def test_an_init_that_names_an_epoch_to_come_is_fenced(history: History) -> None:
    current = history.init()

    assert init_refused(history, current._replace(producer_epoch=current.producer_epoch + 1)) is ProducerFenced


@pytest.mark.further("Transaction metadata")
@pytest.mark.parametrize(("before", "after"), itertools.product(S, S))
def test_a_transition_is_possible_exactly_if_kafkas_table_has_it(
    history: History, before: TransactionState, after: TransactionState
) -> None:
    table = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT},
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    }
    history.init()
    transaction = replace(history.transaction(), state=before)

    if before in table[after]:
        assert transit(transaction, after) is after
    else:
        with pytest.raises(InvalidTxnState):
            transit(transaction, after)


@pytest.mark.further("Transaction metadata")
def test_the_time_of_an_update_may_go_backwards(history: History) -> None:
    identity = history.init()
    history.now_ms -= 5_000
    history.send(identity)
    history.now_ms -= 5_000

    history.commit(identity)

    assert history.transaction().last_update_ms == history.now_ms


@pytest.mark.further("Transaction metadata")
def test_the_last_usable_epoch_is_reached_by_the_end_before_it(history: History) -> None:
    history.init()
    identity = history.at_epoch(LAST_USABLE_EPOCH - 1)
    history.send(identity)

    last = history.commit(identity)
    history.send(last)
    after = history.commit(last)

    assert last == (identity.producer_id, LAST_USABLE_EPOCH)
    assert after.producer_epoch == 0
    assert history.commit(last) == after
