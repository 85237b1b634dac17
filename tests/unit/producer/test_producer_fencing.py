"""A producer that was replaced, or whose transaction was ended by others."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, World, values


def after(store: Store, calls: str) -> Producer:
    producer = store.producer("tx")
    for call in calls.split():
        CALLS[call](producer)
    return producer


@pytest.mark.scenario(125)
@pytest.mark.parametrize(
    ("staged", "step"),
    [(False, "flush"), (False, "abort"), (False, "commit"), (False, "offsets"), (True, "commit"), (True, "offsets")],
)
def test_a_second_producer_of_the_same_id_fences_the_first_at_its_next_write(
    store: Store, world: World, step: str, staged: bool
) -> None:
    first = open_transaction(store, "tx", staged=staged)
    future = first.send("t", b"zombie")
    if not staged:
        first.flush()
    second = open_transaction(world.process(), "tx")
    second.send("t", b"winner")
    second.commit_transaction()

    if step == "flush":
        first.send("t", b"zombie again")
    elif step == "offsets":
        first.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    next_write = {"flush": first.flush, "abort": first.abort_transaction}.get(step, first.commit_transaction)
    with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
        next_write()

    assert values(store) == [b"winner"]
    assert store.consumer("g").committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
    for call in ("begin", "send", "offsets", "commit", "abort"):
        with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
            CALLS[call](first)
    first.flush()
    first.close()
    assert future.done()


@pytest.mark.scenario(152)
@pytest.mark.parametrize("where", ["outside of a transaction", "in a transaction"])
@pytest.mark.parametrize("call", ["begin", "send", "offsets", "commit", "abort"])
def test_a_fenced_producer_tells_so_at_every_call(store: Store, world: World, where: str, call: str) -> None:
    producer = after(store, "init begin send")
    after(world.process(), "init")
    if where == "in a transaction":
        with pytest.raises(errors.ProducerFenced):
            producer.flush()
    else:
        with pytest.raises(errors.ProducerFenced):
            producer.commit_transaction()

    with pytest.raises(errors.ProducerFenced):
        CALLS[call](producer)

    assert values(store, isolation_level="read_uncommitted") == []


@pytest.mark.scenario(152)
def test_a_fenced_producer_can_be_flushed_and_closed_without_an_error(store: Store, world: World) -> None:
    producer = after(store, "init begin send")
    after(world.process(), "init")
    with pytest.raises(errors.ProducerFenced):
        producer.flush()

    producer.flush()
    producer.flush()
    producer.close()
    producer.close()

    assert values(store, isolation_level="read_uncommitted") == []


def test_a_transaction_past_its_timeout_that_nobody_ended_may_still_commit(store: Store, world: World) -> None:
    slow = open_transaction(store, "slow", transaction_timeout_ms=300)
    slow.send("t", b"slow")
    slow.flush()
    world.pass_time(600)

    slow.commit_transaction()

    assert values(store) == [b"slow"]


def _aborted_by_others(store: Store, world: World, how: str) -> Producer:
    """A producer with a row in a transaction that others have aborted meanwhile."""
    producer = open_transaction(store, "tx", transaction_timeout_ms=1000)
    producer.send("t", b"aborted")
    producer.flush()
    if how == "timeout":
        world.pass_time(2000)
        assert Coordinator(world.process()).abort_timed_out_transactions() == ["tx"]
    else:
        assert world.process().admin.abort_transaction("tx")
    return producer


@pytest.mark.scenario(68, 128)
@pytest.mark.parametrize("call", ["flush", "commit", "abort"])
@pytest.mark.parametrize("how", ["timeout", "admin"])
def test_a_producer_whose_transaction_was_aborted_by_others_aborts_and_goes_on(
    store: Store, world: World, how: str, call: str
) -> None:
    producer = _aborted_by_others(store, world, how)
    if call == "flush":
        future = producer.send("t", b"late")
        with pytest.raises(errors.InvalidProducerEpoch):
            producer.flush()
        assert isinstance(future.exception(0), errors.InvalidProducerEpoch)
    elif call == "commit":
        with pytest.raises(errors.TransactionAborted):
            producer.commit_transaction()
        with pytest.raises(errors.TransactionAbortable):
            producer.commit_transaction()

    producer.abort_transaction()

    assert producer.producer_epoch == 1
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()
    assert values(store) == [b"next"]


@pytest.mark.parametrize("how", ["timeout", "admin"])
def test_a_producer_whose_id_was_taken_over_after_the_time_out_is_fenced(store: Store, world: World, how: str) -> None:
    producer = _aborted_by_others(store, world, how)
    world.process().producer("tx").init_transactions()

    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
    with pytest.raises(errors.ProducerFenced):
        producer.abort_transaction()
