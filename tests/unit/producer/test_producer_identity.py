"""Producer ids, epochs and sequences as a producer takes them on: those that the last answer brought, from 0 on."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.state.sequences import LAST_USABLE_EPOCH
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from tests.unit.support.world import CALLS, SLOTS, World, at_last_epoch, faulty, values


def initialised(store: Store) -> Producer:
    producer = store.producer("tx")
    producer.init_transactions()
    return producer


def transact(producer: Producer, *rows: bytes, end: str = "commit") -> None:
    """A transaction with a flush, and so a batch, for each row."""
    producer.begin_transaction()
    for row in rows:
        producer.send("t", row, partition=0)
        producer.flush()
    CALLS[end](producer)


def batches(store: Store) -> list[tuple[int, int, int]]:
    """(producer id, epoch, base sequence) of the data batches of partition 0."""

    def look(state: StoreState, slot: int) -> list[tuple[int, int, int]]:
        (partition,) = [found for place, found in state.partitions.items() if place.partition == 0]
        return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in partition.active if each.file]

    return store.read(look)


def test_each_end_brings_the_next_epoch_and_its_sequences_begin_at_0(store: Store) -> None:
    producer = initialised(store)
    producer_id = producer.producer_id

    transact(producer, b"1", b"2")
    transact(producer, b"3", end="abort")
    transact(producer, b"4", b"5")

    epochs = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert batches(store) == [(producer_id, epoch, sequence) for epoch, sequence in epochs]
    assert producer.producer_epoch == 3


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_end_of_the_last_epoch_brings_another_producer_id(store: Store, world: World, end: str) -> None:
    producer = initialised(store)
    at_last_epoch(store, producer)
    exhausted = producer.producer_id

    transact(producer, b"1", end=end)
    transact(producer, b"2")

    assert batches(store) == [(exhausted, LAST_USABLE_EPOCH, 0), (producer.producer_id, 0, 0)]
    assert producer.producer_id != exhausted
    assert values(world.process()) == ([b"1", b"2"] if end == "commit" else [b"2"])


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_of_the_last_epoch_without_an_answer_is_recognised_when_it_is_repeated(
    store: Store, lands: bool, end: str
) -> None:
    producer = initialised(store)
    at_last_epoch(store, producer)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        CALLS[end](producer)
    faulty(store).heal()

    CALLS[end](producer)
    transact(producer, b"2")

    assert producer.producer_epoch == 1
    assert values(store) == ([b"1", b"2"] if end == "commit" else [b"2"])


def test_an_init_at_the_last_epoch_brings_another_producer_id_and_fences_the_old_one(
    store: Store, world: World
) -> None:
    old = initialised(store)
    at_last_epoch(store, old)
    old.begin_transaction()
    old.send("t", b"old", partition=0)
    old.flush()

    new = initialised(world.process())
    transact(new, b"new")

    assert new.producer_id != old.producer_id
    with pytest.raises(errors.ProducerFenced):
        old.commit_transaction()
    assert values(store) == [b"new"]


@pytest.mark.parametrize("before", ["", "commit", "abort"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_to_which_nothing_was_given_ends_without_a_request(store: Store, before: str, end: str) -> None:
    producer = initialised(store)
    if before:
        transact(producer, b"1", end=before)
    requests, epoch = store.requests.copy(), producer.producer_epoch

    transact(producer, end=end)

    assert store.requests == requests
    assert producer.producer_epoch == epoch
    transact(producer, b"2")
    assert values(store) == ([b"1", b"2"] if before == "commit" else [b"2"])


def test_an_abort_of_rows_that_never_left_the_producer_is_its_own_affair(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    future = producer.send("t", b"v")
    requests = store.requests.copy()

    producer.abort_transaction()

    assert store.requests == requests
    assert isinstance(future.exception(0), errors.TransactionAborted)


def test_an_abort_after_a_flush_that_was_refused_is_its_own_affair(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    producer.send("t", b"v")
    faulty(store).deny("t/")
    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()
    faulty(store).heal()
    epoch = producer.producer_epoch

    producer.abort_transaction()

    assert producer.producer_epoch == epoch
    transact(producer, b"next")
    assert values(store) == [b"next"]


def test_each_producer_without_transactional_id_has_an_id_of_its_own(store: Store) -> None:
    ids = set()
    for number in range(3):
        with store.producer() as producer:
            producer.send("t", b"%d" % number)
            producer.flush()
            ids.add((producer.producer_id, producer.producer_epoch))

    assert len(ids) == 3
    assert {epoch for _, epoch in ids} == {0}
