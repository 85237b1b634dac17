"""Who ends a prepared transaction in its holder's place: its own time-out, or an administrator by force."""

from __future__ import annotations

from eoslog.errors import InvalidTxnState, ProducerFenced, TransactionAborted, TransactionalIdNotFound
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_requests import AbortTransaction, ForceTerminateTransaction
from tests.unit.state.histories import History, planned_expiry
from tests.unit.state.prepared import eager, end_refused


def test_its_own_time_out_counts_and_not_that_of_the_transaction() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    history.now_ms += 50_000
    history.prepare(identity, timeout_ms=DEFAULT_PREPARED_TIMEOUT_MS)
    history.now_ms += DEFAULT_PREPARED_TIMEOUT_MS
    assert history.abort_timed_out() == []
    history.now_ms += 1

    assert history.abort_timed_out() == ["tx"]

    assert isinstance(end_refused(history, identity, "commit"), TransactionAborted)
    assert history.partition().last_stable_offset == 2


def test_without_a_time_out_it_waits_for_ever_and_never_expires() -> None:
    history = History()
    identity = eager(history)
    history.now_ms += 10**12

    assert history.abort_timed_out() == []
    assert planned_expiry(history.state, history.now_ms) is None
    history.commit(identity)


def test_an_init_does_not_prolong_it() -> None:
    history = History()
    identity = history.init()
    history.prepare(identity, timeout_ms=1_000)
    history.now_ms += 900
    history.init(keep_prepared=True)
    history.now_ms += 101

    assert history.abort_timed_out() == ["tx"]


def test_an_administrator_ends_it_only_by_force_which_fences_its_holder() -> None:
    history = History()
    identity = eager(history)

    error = history.refused(lambda draft: AbortTransaction("tx", reason="admin", time_ms=0).apply(draft))
    assert isinstance(error, InvalidTxnState)
    assert "force-terminate" in str(error)
    assert history.force_terminate() is True
    assert history.force_terminate() is False

    assert history.transaction().state is TransactionState.EMPTY
    for outcome in ("commit", "abort"):
        assert isinstance(end_refused(history, identity, outcome), ProducerFenced)
    late = history.batch(identity, 2)
    assert isinstance(history.refused(lambda draft: draft.append(late).base_offset), ProducerFenced)


def test_force_ends_what_is_open_and_not_prepared_too_and_an_unknown_id_is_named() -> None:
    history = History()
    history.send(history.init())

    assert history.force_terminate() is True
    error = history.refused(lambda draft: ForceTerminateTransaction("nobody", time_ms=0).apply(draft))
    assert isinstance(error, TransactionalIdNotFound)
