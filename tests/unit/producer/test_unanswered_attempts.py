"""A producer's attempts at a commit that had no answer: which it keeps, and the cost of learning their outcome."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from eoslog import errors
from eoslog.errors import NotAStore
from eoslog.log.append_queue import Proposal
from eoslog.log.slots import slot_path
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.state.append_requests import AppendBatches
from eoslog.storage.object_store import PutOutcome, StoredObject
from eoslog.storage.process import HomeProcess
from eoslog.store import Store
from tests.unit.log.queueing import await_queued, held
from tests.unit.support.overtaking import begun, delete_slots, learns, successor, without_an_answer
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values


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


def test_a_repeated_commit_that_is_in_the_log_appends_nothing(store: Store, world: World) -> None:
    late = open_transaction(world.process(), "late", transaction_timeout_ms=30_000)
    late.send("t", b"late", partition=1)
    late.flush()
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    world.pass_time(60_000)
    learns(store)
    faulty(store).deny(SLOTS)

    assert producer.commit_transaction()


def test_each_unanswered_attempt_is_asked_for_whichever_slot_it_went_to(store: Store, world: World) -> None:
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=False)
    another = world.process().producer("another")
    another.init_transactions()
    learns(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)

    assert producer.commit_transaction()

    assert values(store) == [b"1"]


def test_a_slot_whose_answer_is_cut_short_is_read_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    unknown = without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    learns(store)
    get, cut = store.object_store.get, []

    def cut_short(path: str) -> StoredObject:
        found = get(path)
        if path != slot_path(unknown.slot) or cut:
            return found
        cut.append(path)
        return replace(found, body=found.body[:20])

    monkeypatch.setattr(store.object_store, "get", cut_short)

    assert producer.commit_transaction()

    assert cut


def test_a_newer_slot_whose_answer_is_cut_short_leaves_a_commit_unknown_and_not_lost(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    learns(store)
    another = world.process().producer("another")
    get, append_id_of, cut = store.object_store.get, store.log._conditional_append.append_id_of, []

    def cut_short(path: str) -> StoredObject:
        found = get(path)
        if cut:
            return found
        cut.append(path)
        return replace(found, body=found.body[:20])

    def another_goes_on(slot: int, deadline_ms: int | None = None) -> str | None:
        append_id = append_id_of(slot, deadline_ms)
        if another.producer_id < 0:
            another.init_transactions()
            monkeypatch.setattr(store.object_store, "get", cut_short)
        return append_id

    monkeypatch.setattr(store.log._conditional_append, "append_id_of", another_goes_on)

    assert producer.commit_transaction()

    assert cut


def test_a_commit_whose_slot_cannot_be_read_is_told_as_neither(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    unknown = without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    get = store.object_store.get

    def damaged(path: str) -> StoredObject:
        found = get(path)
        return replace(found, body=b"{}") if path == slot_path(unknown.slot) else found

    learns(store)
    monkeypatch.setattr(store.object_store, "get", damaged)

    with pytest.raises(errors.OutcomeLost, match="cannot be read"):
        producer.commit_transaction()


def test_while_the_slot_may_be_free_a_damaged_log_leaves_a_commit_unknown(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    put_if_absent, get = store.object_store.put_if_absent, store.object_store.get
    on_the_way: list[tuple[str, bytes]] = []

    def interrupted(path: str, body: bytes) -> PutOutcome:
        on_the_way.append((path, body))
        raise KeyboardInterrupt

    def damaged(path: str) -> StoredObject:
        found = get(path)
        return replace(found, body=found.body[:20]) if path.startswith(SLOTS) else found

    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "put_if_absent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    world.process().producer("another").init_transactions()
    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "get", damaged)
        with pytest.raises(errors.CommitStateUnknown):
            producer.commit_transaction()
    put_if_absent(*on_the_way[0])

    assert producer.commit_transaction()

    assert values(store) == [b"1"]


def test_only_the_last_slot_is_in_question_though_earlier_ones_were_deleted(store: Store, world: World) -> None:
    """What went to a slot was proposed to a state without the work."""
    producer = open_transaction(store, "tx", prepared_timeout_ms=None)
    producer.send("t", b"1")
    producer.prepare_transaction()
    without_an_answer(store, producer.commit_transaction, lands=False)
    delete_slots(world)
    learns(store)
    without_an_answer(store, producer.commit_transaction, lands=False)
    successor(world)

    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()


@pytest.mark.parametrize("races", [0, 20])
def test_races_that_were_lost_on_the_way_cost_no_more_reads(
    world: World, monkeypatch: pytest.MonkeyPatch, races: int
) -> None:
    world.process().admin.create_topic("t", partitions=2)
    store = world.process()
    producer = begun(store)
    faster = [world.process().producer(f"faster{number}") for number in range(races)]
    put_if_absent = store.object_store.put_if_absent

    def outrun(path: str, body: bytes) -> PutOutcome:
        if not faster:
            raise errors.StoreUnavailable("no answer")
        faster.pop().init_transactions()
        return put_if_absent(path, body)

    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "put_if_absent", outrun)
        with pytest.raises(errors.CommitStateUnknown):
            producer.commit_transaction()
    successor(world)
    learns(store)
    before = len(faulty(store).gets)

    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()

    assert len(faulty(store).gets) - before <= 5


def test_a_leader_that_is_interrupted_twice_leaves_the_others_in_its_record_with_the_truth(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second Ctrl-C comes while the first is told to the others."""
    producers = {"tx": begun(store), "two": store.producer("two")}
    producers["two"].init_transactions()
    producers["two"].begin_transaction()
    producers["two"].send("t", b"2", partition=1)
    producers["two"].flush()
    put_if_absent, fail = store.object_store.put_if_absent, Proposal.fail
    interrupts: list[str] = []
    told: dict[str, bool | BaseException] = {}

    def landed(path: str, body: bytes) -> PutOutcome:
        outcome = put_if_absent(path, body)
        if path.startswith(SLOTS) and not interrupts:
            interrupts.append("first")
            for name in producers:
                world.process().producer(name).init_transactions()
            raise KeyboardInterrupt
        return outcome

    def interrupted(proposal: Proposal, error: BaseException) -> None:
        if len(interrupts) == 1:
            interrupts.append("again")
            raise KeyboardInterrupt
        fail(proposal, error)

    def commit(name: str) -> None:
        try:
            told[name] = producers[name].commit_transaction()
        except BaseException as error:
            told[name] = error

    monkeypatch.setattr(Proposal, "fail", interrupted)
    monkeypatch.setattr(store.object_store, "put_if_absent", landed)
    threads = [threading.Thread(target=commit, args=(name,), name=name) for name in producers]
    with held(store.log):
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_queued(store.log, count)
    for thread in threads:
        thread.join()

    leader, passenger = sorted(producers, key=lambda name: told[name] is True)
    assert isinstance(told[leader], KeyboardInterrupt)
    assert told[passenger] is True
    assert producers[leader].commit_transaction()
    assert values(store) == [b"1", b"2"]


def test_however_often_a_commit_was_tried_what_became_of_it_costs_the_same(store: Store, world: World) -> None:
    reads = []
    for attempts in (1, 8):
        producer = begun(store)
        for _ in range(attempts):
            without_an_answer(store, producer.commit_transaction, lands=False)
        successor(world)
        before = len(faulty(store).gets)
        with pytest.raises(errors.ProducerFenced):
            producer.commit_transaction()
        reads.append(len(faulty(store).gets) - before)

    assert reads[0] == reads[1]


def test_the_look_at_what_became_of_a_commit_takes_no_longer_than_its_call(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = open_transaction(store, "tx", max_block_ms=1_000)
    producer.send("t", b"1")
    producer.flush()
    unknown = without_an_answer(store, producer.commit_transaction, lands=True)
    successor(world)
    for _ in range(3):
        world.process().log.checkpoint()
    learns(store)
    get = store.object_store.get

    def unanswered_behind(path: str) -> StoredObject:
        if path == slot_path(unknown.slot + 1):
            raise errors.StoreUnavailable("no answer")
        return get(path)

    monkeypatch.setattr(store.object_store, "get", unanswered_behind)
    began_ms = world.time_ms

    with pytest.raises(errors.CommitStateUnknown):
        producer.commit_transaction()

    assert world.time_ms - began_ms < 5_000


def test_a_final_request_to_a_place_without_a_store_is_refused_as_such() -> None:
    append = IdempotentAppend(World().process(), HomeProcess("store"))

    with pytest.raises(NotAStore):
        append(AppendBatches(()))
