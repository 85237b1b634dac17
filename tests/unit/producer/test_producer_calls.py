"""Which calls of a producer are allowed when."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.producer.producer_calls import ProducerPhase
from eoslog.store import Store
from tests.unit.support.world import CALLS, values


@pytest.mark.parametrize(
    "calls",
    [
        *(f"{call}" for call in CALLS if call not in ("init", "close")),
        *(f"init {call}" for call in ("init", "send", "table", "offsets", "commit", "abort")),
        *(f"init begin {call}" for call in ("init", "begin")),
        *(f"init begin commit {call}" for call in ("init", "send", "offsets", "commit", "abort")),
        *(f"init begin abort {call}" for call in ("init", "send", "offsets", "commit", "abort")),
        *(f"init close {call}" for call in CALLS if call != "close"),
    ],
)
def test_the_last_of_these_calls_is_illegal(store: Store, calls: str) -> None:
    producer = store.producer("tx")
    *before, last = calls.split()
    for call in before:
        CALLS[call](producer)

    with pytest.raises(errors.IllegalState):
        CALLS[last](producer)


def test_a_producer_that_is_initialised_twice_is_told_that_once_is_enough(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()

    with pytest.raises(errors.IllegalState, match="already initialized"):
        producer.init_transactions()


@pytest.mark.parametrize("call", ["init", "begin", "offsets", "commit", "abort"])
def test_a_producer_without_transactional_id_has_no_transactions(store: Store, call: str) -> None:
    with pytest.raises(errors.IllegalState):
        CALLS[call](store.producer())


def test_a_closed_idempotent_producer_takes_no_records(store: Store) -> None:
    producer = store.producer()
    producer.close()
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"v")


def test_a_staged_producer_needs_a_transactional_id(store: Store) -> None:
    with pytest.raises(errors.InvalidRequest):
        store.producer(staged=True)


@pytest.mark.parametrize("timeout_ms", [0, -1, 10**9])
def test_a_transaction_timeout_out_of_bounds_is_refused(store: Store, timeout_ms: int) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout):
        store.producer("tx", transaction_timeout_ms=timeout_ms)


@pytest.mark.parametrize("transactional_id", ["tx", None])
def test_a_closed_producer_refuses_a_flush_and_a_second_close_is_nothing(
    store: Store, transactional_id: str | None
) -> None:
    producer = store.producer(transactional_id)
    producer.close()

    with pytest.raises(errors.IllegalState):
        producer.flush()
    producer.close()


@pytest.mark.parametrize("before", ["", "init", "init begin", "init begin send", "init begin commit"])
def test_an_illegal_call_changes_nothing(store: Store, before: str) -> None:
    producer = store.producer("tx")
    for call in before.split():
        CALLS[call](producer)
    phase = producer._lifecycle.phase
    legal = {
        ProducerPhase.UNINITIALIZED: {"init"},
        ProducerPhase.READY: {"begin"},
        ProducerPhase.IN_TRANSACTION: {"send", "table", "offsets", "prepare", "commit", "abort"},
    }[phase]

    for call in set(CALLS) - legal - {"close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[call](producer)
        assert producer._lifecycle.phase is phase

    for call in ("init", "begin"):
        if call not in before.split() or (call == "begin" and phase is ProducerPhase.READY):
            CALLS[call](producer)
    producer.send("t", b"last")
    producer.commit_transaction()
    assert values(store)[0] == b"last"
