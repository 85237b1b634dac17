"""Two-phase commit when the store refuses or does not answer: what may be repeated, and what only be aborted."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.two_phase import begun, committed_offset
from tests.unit.support.world import CALLS, SLOTS, World, faulty, values


def test_what_an_append_refused_can_only_be_aborted(store: Store, world: World) -> None:
    producer = begun(store)
    world.process().admin.delete_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.prepare_transaction()

    with pytest.raises(errors.TransactionAbortable):
        producer.prepare_transaction()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.complete_transaction(producer.prepare_transaction())


@pytest.mark.parametrize("staged", [True, False])
def test_a_prepare_that_is_refused_can_only_be_aborted(store: Store, staged: bool) -> None:
    producer = begun(store, staged=staged)
    producer.flush()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        producer.prepare_transaction()
    faulty(store).heal()

    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()

    assert values(store) == []
    assert not store.admin.list_transactions(states=["Ongoing"])


@pytest.mark.parametrize("call", ["complete", "commit", "abort"])
def test_an_end_that_the_store_refuses_leaves_it_prepared(store: Store, call: str) -> None:
    """The outcome was given elsewhere: it is not for the producer to take it back."""
    producer = begun(store)
    prepared = producer.prepare_transaction()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        CALLS[call](producer)
    faulty(store).heal()

    assert producer.prepared_transaction == prepared
    CALLS[call](producer)

    assert values(store) == ([] if call == "abort" else [b"v"])


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("staged", [True, False])
def test_a_prepare_without_an_answer_is_repeated_and_nothing_else(store: Store, lands: bool, staged: bool) -> None:
    producer = begun(store, staged=staged)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.prepare_transaction()
    for call in set(CALLS) - {"prepare", "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[call](producer)
    faulty(store).heal()

    prepared = producer.prepare_transaction()
    producer.complete_transaction(prepared)

    assert values(store) == [b"v"]
    assert committed_offset(store) == 7


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("name", ["its own", ""])
def test_a_completion_without_an_answer_is_repeated_and_done_once(store: Store, lands: bool, name: str) -> None:
    producer = begun(store)
    prepared = producer.prepare_transaction()
    decided = prepared if name else ""
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.complete_transaction(decided)
    for call in set(CALLS) - {"complete", "commit", "abort", "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[call](producer)
    with pytest.raises(errors.IllegalState):
        producer.complete_transaction("" if decided else prepared)
    faulty(store).heal()

    producer.complete_transaction(decided)
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()

    assert values(store) == ([b"next", b"v"] if decided else [b"next"])


@pytest.mark.parametrize("lands", [True, False])
def test_an_init_that_keeps_and_has_no_answer_is_repeated(store: Store, world: World, lands: bool) -> None:
    prepared = begun(store).prepare_transaction()
    process = world.process()
    producer = process.producer("tx")
    process.read(lambda state, slot: None)
    faulty(process).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.init_transactions(keep_prepared=True)
    faulty(process).heal()

    producer.init_transactions(keep_prepared=True)

    assert producer.prepared_transaction == prepared
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]
