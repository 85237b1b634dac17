"""Two-phase commit (KIP-939): a transaction is prepared, its outcome is given elsewhere, and no death loses it."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.two_phase import PLACE, begun, committed_offset, restarted
from tests.unit.support.world import CALLS, SLOTS, World, at_last_epoch, faulty, values

# Prepare, then complete


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("end", ["complete", "commit"])
def test_a_prepared_transaction_shows_when_it_is_completed_and_not_before(store: Store, staged: bool, end: str) -> None:
    producer = begun(store, staged=staged)

    prepared = producer.prepare_transaction()

    assert prepared == producer.prepared_transaction == f"{producer.producer_id}:{producer.producer_epoch}"
    assert values(store) == []
    CALLS[end](producer)
    assert values(store) == [b"v"]
    assert committed_offset(store) == 7
    assert producer.prepared_transaction is None


# The order of calls


@pytest.mark.parametrize("timeout_ms", [0, -1, "7 days", 2**53])
def test_a_time_out_that_is_none_is_refused(store: Store, timeout_ms: int) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout, match="prepared_timeout_ms"):
        store.producer("tx", prepared_timeout_ms=timeout_ms)


def test_closing_or_leaving_the_context_by_an_exception_leaves_it_prepared(store: Store, world: World) -> None:
    begun(store).prepare_transaction()
    first = restarted(world)
    first.close()

    def interrupted() -> None:
        with restarted(world):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()

    second = restarted(world)
    second.complete_transaction(second.prepared_transaction or "")
    assert values(store) == [b"v"]


# Restarts


@pytest.mark.scenario(157)
@pytest.mark.parametrize("staged", [True, False])
def test_a_restarted_producer_holds_what_was_prepared_and_fences_the_one_before(
    store: Store, world: World, staged: bool
) -> None:
    zombie = begun(store, staged=staged)
    prepared = zombie.prepare_transaction()

    producer = restarted(world)

    assert producer.prepared_transaction == prepared
    assert (producer.producer_id, producer.producer_epoch) == (zombie.producer_id, zombie.producer_epoch + 1)
    with pytest.raises(errors.ProducerFenced):
        zombie.complete_transaction(prepared)
    assert values(store) == []
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


def test_it_is_completed_under_another_producer_id_when_the_epochs_are_used_up(store: Store, world: World) -> None:
    first = store.producer("tx")
    first.init_transactions()
    at_last_epoch(store, first)
    first.begin_transaction()
    first.send("t", b"v", partition=0)
    prepared = first.prepare_transaction()

    producer = restarted(world)

    assert producer.producer_id != first.producer_id
    assert producer.prepared_transaction == prepared
    (hanging,) = store.admin.find_hanging_transactions(max_transaction_timeout_ms=-1)
    assert (hanging.transactional_id, hanging.producer_id) == ("tx", first.producer_id)
    producer.complete_transaction(prepared)
    producer.begin_transaction()
    producer.send("t", b"w", partition=0)
    producer.commit_transaction()
    assert values(store) == [b"v", b"w"]
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))


# What it allows, and what decides it


@pytest.mark.scenario(157)
@pytest.mark.parametrize("before", ["nothing", "a commit", "an abort"])
def test_an_init_that_keeps_is_ready_where_nothing_is_prepared(store: Store, world: World, before: str) -> None:
    if before != "nothing":
        first = begun(store)
        name = first.prepare_transaction()
        first.complete_transaction(name if before == "a commit" else "")

    second = restarted(world)

    assert second.prepared_transaction is None
    second.begin_transaction()
    second.send("t", b"next")
    second.commit_transaction()
    assert b"next" in values(store)


@pytest.mark.scenario(157)
def test_an_init_that_keeps_aborts_what_is_open_and_not_prepared(store: Store, world: World) -> None:
    first = open_transaction(store, "tx")
    first.send("t", b"open")
    first.flush()

    second = restarted(world)

    assert second.prepared_transaction is None
    assert store.admin.describe_transaction("tx").transaction_state == "EMPTY"
    with pytest.raises(errors.ProducerFenced):
        first.prepare_transaction()
    assert values(store) == []
    second.begin_transaction()
    second.commit_transaction()


@pytest.mark.scenario(157)
@pytest.mark.parametrize("holder", ["who prepared it", "who kept it"])
@pytest.mark.parametrize("call", ["init", "begin", "send", "table", "offsets", "prepare"])
def test_a_prepared_transaction_allows_nothing_but_its_end(store: Store, world: World, holder: str, call: str) -> None:
    producer = begun(store)
    name = producer.prepare_transaction()
    if holder == "who kept it":
        producer = restarted(world)

    with pytest.raises(errors.IllegalState):
        CALLS[call](producer)

    assert producer.prepared_transaction == name
    producer.flush()
    producer.complete_transaction(name)
    assert values(store) == [b"v"]
    assert committed_offset(store) == 7


@pytest.mark.scenario(157)
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("holder", ["who prepared it", "who kept it"])
@pytest.mark.parametrize(
    ("end", "commits"),
    [
        ("its name", True),
        ("commit", True),
        ("another epoch", False),
        ("another id", False),
        ("", False),
        ("abort", False),
    ],
)
def test_its_name_commits_it_and_any_other_aborts_it(
    store: Store, world: World, holder: str, staged: bool, end: str, commits: bool
) -> None:
    producer = begun(store, staged=staged)
    name = producer.prepare_transaction()
    if holder == "who kept it":
        producer = world.process().producer("tx", staged=staged)
        producer.init_transactions(keep_prepared=True)
    producer_id, epoch = (int(part) for part in name.split(":"))
    names = {
        "its name": name,
        "another epoch": f"{producer_id}:{epoch + 1}",
        "another id": f"{producer_id + 1}:{epoch}",
        "": "",
    }

    if end in names:
        producer.complete_transaction(names[end])
    else:
        CALLS[end](producer)

    assert values(store) == ([b"v"] if commits else [])
    assert committed_offset(store) == (7 if commits else None)
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()
    assert b"next" in values(store)


@pytest.mark.scenario(157)
@pytest.mark.parametrize(
    "calls",
    [
        "prepare",
        "complete",
        "init prepare",
        "init complete",
        "init begin complete",
        "init begin commit prepare",
        "init begin prepare complete complete",
        "init begin prepare abort complete",
        "init begin prepare commit commit",
        "init close prepare",
    ],
)
def test_nothing_is_prepared_or_completed_out_of_order(store: Store, calls: str) -> None:
    producer = store.producer("tx")
    *before, last = calls.split()
    for call in before:
        CALLS[call](producer)

    with pytest.raises(errors.IllegalState):
        CALLS[last](producer)


@pytest.mark.scenario(157)
@pytest.mark.parametrize("name", ["5", "5:", ":5", "a:b", "5:6:7", "5: 6", "-5:6", "nonsense", None])
def test_a_name_that_nobody_gave_neither_commits_nor_aborts(store: Store, name: Any) -> None:
    producer = begun(store)
    own = producer.prepare_transaction()

    with pytest.raises(errors.InvalidRequest):
        producer.complete_transaction(name)

    producer.complete_transaction(own)
    assert values(store) == [b"v"]


@pytest.mark.further("Producer client")
def test_a_producer_that_completes_what_it_prepared_goes_on_with_the_next_epoch(store: Store) -> None:
    producer = begun(store)
    name = producer.prepare_transaction()
    epochs = [producer.producer_epoch]
    for number in range(3):
        producer.complete_transaction(name)
        epochs.append(producer.producer_epoch)
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        name = producer.prepare_transaction()
    producer.complete_transaction("")

    assert epochs == [0, 1, 2, 3]
    assert values(store) == [b"0", b"1", b"v"]


# Refusals and lost answers


def test_a_transaction_that_an_append_refused_can_only_be_aborted(store: Store, world: World) -> None:
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


# Time-outs


def test_past_its_time_out_it_is_aborted_and_its_commit_says_so(store: Store, world: World) -> None:
    producer = begun(store, prepared_timeout_ms=5_000)
    prepared = producer.prepare_transaction()
    world.pass_time(5_001)
    assert Coordinator(world.process()).abort_timed_out_transactions() == ["tx"]

    with pytest.raises(errors.TransactionAborted, match="timed out"):
        producer.complete_transaction(prepared)
    producer.abort_transaction()

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_prepare_that_is_repeated_past_its_time_out_says_so(store: Store, world: World) -> None:
    """It was prepared at the first attempt; the repetition that finds it ends it, and must not pass for a success."""
    producer = begun(store, prepared_timeout_ms=5_000)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.CommitStateUnknown):
        producer.prepare_transaction()
    faulty(store).heal()
    world.pass_time(5_001)

    with pytest.raises(errors.InvalidProducerEpoch, match="timed out"):
        producer.prepare_transaction()
    producer.abort_transaction()

    assert values(store) == []
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.complete_transaction(producer.prepare_transaction())
    assert values(store) == [b"w"]


def test_a_producer_that_restarts_past_the_time_out_finds_nothing_prepared(store: Store, world: World) -> None:
    begun(store, prepared_timeout_ms=5_000).prepare_transaction()
    world.pass_time(5_001)

    producer = restarted(world)

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_transaction_past_its_time_out_that_nobody_ended_may_still_be_prepared(store: Store, world: World) -> None:
    producer = begun(store, transaction_timeout_ms=300)
    producer.flush()
    world.pass_time(600)

    producer.complete_transaction(producer.prepare_transaction())

    assert values(store) == [b"v"]


def test_the_commit_does_not_ask_for_the_generation_again(store: Store) -> None:
    consumer = Consumer(store, "members")
    consumer.subscribe(["t"])
    consumer.poll(timeout=0)
    producer = begun(store)
    producer.send_offsets_to_transaction({PLACE: 9}, consumer.group_metadata())
    prepared = producer.prepare_transaction()
    consumer.close()

    producer.complete_transaction(prepared)

    assert store.consumer("members").committed([PLACE])[PLACE].offset == 9  # type: ignore[union-attr]
