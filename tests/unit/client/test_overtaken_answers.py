"""A request whose answer was lost, and its producer overtaken before it asked again: what landed was done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.client.coordinator import Coordinator
from eoslog.client.producer import Producer
from eoslog.client.store import Store
from eoslog.log.view import LogConfig
from eoslog.rules.names import TopicPartition
from eoslog.store.object_store import PutOutcome
from tests.unit.client.world import CALLS, SLOTS, World, faulty, values

DAY_MS = 24 * 3600 * 1000


def without_an_answer(store: Store, call: Callable[[], object], *, lands: bool) -> errors.CommitStateUnknown:
    """Make a call whose slot is not answered, and then nothing is until the call's time is up."""
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown) as unknown:
        call()
    faulty(store).heal()
    return unknown.value


def successor(world: World) -> Producer:
    producer = world.process().producer("tx")
    producer.init_transactions()
    return producer


def begun(store: Store, *, staged: bool = False) -> Producer:
    """A producer with a row and a group's offset in its transaction."""
    producer = store.producer("tx", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    producer.flush()
    return producer


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


def test_a_commit_that_was_interrupted_and_landed_is_told_as_committed(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    put_if_absent = store.object_store.put_if_absent

    def interrupted(path: str, body: bytes) -> PutOutcome:
        put_if_absent(path, body)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "put_if_absent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    successor(world)

    assert producer.commit_transaction()

    assert values(store) == [b"1"]


def test_an_abort_that_landed_is_done_though_a_successor_came(store: Store, world: World) -> None:
    producer = begun(store)
    without_an_answer(store, producer.abort_transaction, lands=True)
    successor(world)

    producer.abort_transaction()

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
def test_batches_that_landed_have_their_offsets_though_their_producer_id_was_forgotten(
    store: Store, world: World, lands: bool
) -> None:
    producer = store.producer()
    producer.send("t", b"1", partition=0)
    producer.flush()
    future = producer.send("t", b"2", partition=0)
    without_an_answer(store, producer.flush, lands=lands)
    world.pass_time(2 * DAY_MS)
    Coordinator(world.process()).expire_producer_ids()

    if lands:
        producer.flush()
        assert future.result(0).offset == 1
    else:
        with pytest.raises(errors.UnknownProducerId):
            producer.flush()

    assert values(store) == ([b"1", b"2"] if lands else [b"1"])


def test_a_prepared_transaction_that_a_successor_has_ended_is_not_told_as_prepared(store: Store, world: World) -> None:
    """Who decides to commit it would decide in vain."""
    producer = begun(store)
    without_an_answer(store, producer.prepare_transaction, lands=True)
    successor(world)

    with pytest.raises(errors.ProducerFenced):
        producer.prepare_transaction()


@pytest.mark.parametrize("call", ["commit", "abort", "prepare"])
def test_what_was_unknown_stays_unknown_while_nothing_is_answered(store: Store, call: str) -> None:
    producer = begun(store)
    without_an_answer(store, lambda: CALLS[call](producer), lands=True)
    faulty(store).go_down()

    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)

    faulty(store).heal()
    CALLS[call](producer)


def test_a_commit_whose_slot_was_deleted_meanwhile_is_told_as_neither(store: Store, world: World) -> None:
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    other = world.process()
    for _ in range(3):
        other.log.checkpoint()
        world.pass_time(8 * DAY_MS)
        Coordinator(other).delete_old_slots()

    with pytest.raises(errors.OutcomeLost):
        producer.commit_transaction()

    with pytest.raises(errors.OutcomeLost):
        producer.begin_transaction()
    assert values(world.process()) == [b"1"]


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_what_a_call_was_not_told_is_no_answer_to_another(store: Store, world: World, call: str) -> None:
    """Batches whose rows were given up landed; the end of their transaction did not."""
    producer = store.producer("tx", delivery_timeout_ms=1)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.DeliveryTimedOut):
        producer.flush()
    faulty(store).heal()
    successor(world)

    with pytest.raises(errors.ProducerFenced if call == "abort" else errors.TransactionAbortable):
        CALLS[call](producer)


def test_a_producer_that_dies_when_it_learns_of_it_leaves_its_work_done_once(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "client.producer.overtaken":
            raise Died

    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    monkeypatch.setattr(store.environment, "reached", die)
    with pytest.raises(Died):
        producer.commit_transaction()

    another = successor(world)
    another.begin_transaction()
    another.send("t", b"2")
    another.commit_transaction()

    assert values(world.process()) == [b"1", b"2"]
