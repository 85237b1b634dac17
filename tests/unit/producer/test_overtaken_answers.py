"""A request whose answer was lost, and its producer overtaken before it asked again: what landed was done."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.log.replica import LogConfig
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.support.overtaking import DAY_MS, begun, delete_slots, successor, without_an_answer
from tests.unit.support.paused_processes import Died, dies_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, SLOTS, World, faulty, values


@pytest.mark.parametrize("staged", [False, True])
def test_a_commit_that_landed_is_told_as_committed_though_a_successor_came(
    store: Store, world: World, staged: bool
) -> None:
    producer = begun(store, staged=staged)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)

    assert producer.commit_transaction()

    assert values(store) == [b"1"]
    producer.begin_transaction()
    producer.send("t", b"2")
    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
    assert values(store) == [b"1"]


@pytest.mark.parametrize("staged", [False, True])
def test_a_commit_that_did_not_land_is_refused_and_never_shows(store: Store, world: World, staged: bool) -> None:
    producer = begun(store, staged=staged)
    without_an_answer(store, producer.commit_transaction, lands=False)
    successor(world)

    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()

    assert values(store) == []


@pytest.mark.parametrize("lands", [True, False])
def test_the_successor_may_come_while_one_call_tries(world: World, lands: bool) -> None:
    world.process().create()
    world.process().admin.create_topic("t", partitions=2)
    store = world.process(LogConfig(commit_timeout_ms=1_000))
    producer = begun(store)

    def overtake() -> None:
        if world.slept_ms > 5_000:
            world.while_asleep = lambda: None
            faulty(store).heal()
            successor(world)

    faulty(store).lose_answers(SLOTS, lands=lands)
    world.while_asleep, world.slept_ms = overtake, 0
    if lands:
        assert producer.commit_transaction()
    else:
        with pytest.raises(errors.ProducerFenced):
            producer.commit_transaction()

    assert values(store) == ([b"1"] if lands else [])


@pytest.mark.parametrize("call", ["abort", "prepare"])
def test_of_what_shows_nothing_the_newest_state_counts(store: Store, world: World, call: str) -> None:
    """Who is told of a prepared transaction that a successor has ended would decide to commit it, in vain."""
    producer = begun(store)
    without_an_answer(store, lambda: CALLS[call](producer), lands=True)
    successor(world)

    with pytest.raises(errors.ProducerFenced):
        CALLS[call](producer)

    assert values(store) == []


def test_a_commit_of_work_that_was_committed_before_is_still_told_as_a_replay(store: Store, world: World) -> None:
    first = begun(store)
    first.commit_transaction(version=7)
    first.begin_transaction()
    first.send("t", b"again", partition=0)
    first.flush()
    without_an_answer(store, lambda: first.commit_transaction(version=7), lands=True)
    successor(world)

    assert first.commit_transaction(version=7) is False

    assert values(store) == [b"1"]


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("meanwhile", ["the id was forgotten", "the topic was deleted"])
def test_rows_that_landed_have_their_offsets_whatever_refuses_them_now(
    store: Store, world: World, lands: bool, meanwhile: str
) -> None:
    producer = store.producer()
    producer.send("t", b"1", partition=0)
    producer.flush()
    future = producer.send("t", b"2", partition=0)
    without_an_answer(store, producer.flush, lands=lands)
    if meanwhile == "the topic was deleted":
        world.process().admin.delete_topic("t")
    else:
        world.pass_time(2 * DAY_MS)
        Coordinator(world.process()).expire_producer_ids()

    if lands:
        producer.flush()
        assert future.result(0).offset == 1
    else:
        with pytest.raises((errors.UnknownProducerId, errors.UnknownTopicOrPartition)) as refused:
            producer.flush()
        assert future.exception(0) is refused.value


@pytest.mark.parametrize("call", ["commit", "abort", "prepare"])
def test_an_unknown_outcome_stays_unknown_while_the_store_does_not_answer(store: Store, call: str) -> None:
    producer = begun(store)
    without_an_answer(store, lambda: CALLS[call](producer), lands=True)
    faulty(store).go_down()

    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)

    faulty(store).heal()
    CALLS[call](producer)


@pytest.mark.usefixtures("files_are_objects")
def test_a_commit_whose_slot_was_deleted_meanwhile_is_told_as_neither(store: Store, world: World) -> None:
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    delete_slots(world)

    with pytest.raises(errors.OutcomeLost):
        producer.commit_transaction()

    with pytest.raises(errors.OutcomeLost):
        producer.begin_transaction()
    assert values(world.process()) == [b"1"]


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_the_lost_answer_of_one_call_does_not_answer_another(store: Store, world: World, call: str) -> None:
    """Batches whose rows were given up landed; the end of their transaction did not."""
    producer = open_transaction(store, "tx", delivery_timeout_ms=1)
    producer.send("t", b"1")
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.DeliveryTimedOut):
        producer.flush()
    faulty(store).heal()
    successor(world)

    with pytest.raises(errors.ProducerFenced if call == "abort" else errors.TransactionAbortable):
        CALLS[call](producer)


def test_a_producer_that_dies_when_it_learns_of_it_leaves_its_work_done_once(store: Store, world: World) -> None:
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    dies_at(store, "client.append.earlier_attempt_found")
    with pytest.raises(Died):
        producer.commit_transaction()

    another = successor(world)
    another.begin_transaction()
    another.send("t", b"2")
    another.commit_transaction()

    assert values(world.process()) == [b"1", b"2"]
