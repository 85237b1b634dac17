"""The producer's calls: which is allowed when, and what a closed producer answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.errors import (
    IllegalState,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from eoslog.producer.producer import Producer
from eoslog.producer.producer_lifecycle import ProducerLifecycle, ProducerPhase
from eoslog.session.positions import GroupMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.partitions import read
from tests.unit.support.world import CALLS, World, values


@pytest.mark.scenario(130)
def test_a_producer_that_is_initialised_twice_is_told_that_once_is_enough(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()

    with pytest.raises(errors.IllegalState, match="already initialized"):
        producer.init_transactions()


def test_a_closed_idempotent_producer_takes_no_records(store: Store) -> None:
    producer = store.producer()
    producer.close()

    with pytest.raises(errors.IllegalState):
        producer.send("t", b"v")
    with pytest.raises(errors.IllegalState):
        producer.flush()
    producer.close()


def test_a_staged_producer_needs_a_transactional_id(store: Store) -> None:
    with pytest.raises(errors.InvalidRequest):
        store.producer(staged=True)


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


PLACE = TopicPartition("t", 0)
TRANSACTIONAL = ("begin", "send", "offsets", "commit", "abort")
"""What needs more than an initialised producer, or ends what is open."""


def after(store: Store, calls: str) -> Producer:
    producer = store.producer("tx")
    for call in calls.split():
        CALLS[call](producer)
    return producer


@pytest.mark.scenario(149)
@pytest.mark.parametrize("call", [*TRANSACTIONAL, "table", "prepare", "complete"])
def test_before_the_init_every_other_call_is_illegal(store: Store, call: str) -> None:
    with pytest.raises(IllegalState, match="init_transactions"):
        CALLS[call](after(store, ""))


@pytest.mark.scenario(149)
@pytest.mark.parametrize("before", ["init", "init begin commit", "init begin abort"])
@pytest.mark.parametrize("call", ["send", "offsets", "commit", "abort"])
def test_outside_of_a_transaction_there_is_nothing_to_send_or_to_end(store: Store, before: str, call: str) -> None:
    producer = after(store, before)

    with pytest.raises(IllegalState, match="begin_transaction"):
        CALLS[call](producer)

    assert values(store) == []


@pytest.mark.scenario(149)
def test_a_transaction_is_begun_once(store: Store) -> None:
    producer = after(store, "init begin send")
    with pytest.raises(IllegalState, match="commit or abort"):
        producer.begin_transaction()

    producer.commit_transaction()

    assert values(store) == [b"v"]


@pytest.mark.scenario(149)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_of_nothing_succeeds_again_and_again(store: Store, end: str) -> None:
    producer = after(store, "init")
    for _ in range(3):
        CALLS["begin"](producer)
        CALLS[end](producer)

    assert [each.high_watermark for each in store.admin.offsets("t")] == [0, 0]


@pytest.mark.scenario(149)
@pytest.mark.parametrize("call", ["init", "begin", "offsets", "commit", "abort", "prepare", "complete"])
def test_a_producer_without_transactional_id_has_no_transactions(store: Store, call: str) -> None:
    producer = store.producer()
    with pytest.raises(IllegalState, match="transactional id"):
        CALLS[call](producer)

    producer.send("t", b"v")
    producer.flush()

    assert values(store) == [b"v"]


@pytest.mark.scenario(152)
@pytest.mark.parametrize("before", ["", "init", "init begin", "init begin send"])
@pytest.mark.parametrize("call", ["init", *TRANSACTIONAL, "prepare", "complete", "flush"])
def test_a_closed_producer_refuses_every_call_and_a_second_close_is_nothing(
    store: Store, before: str, call: str
) -> None:
    producer = after(store, before)
    producer.close()

    with pytest.raises(IllegalState, match="another producer"):
        producer.flush() if call == "flush" else CALLS[call](producer)
    producer.close()

    assert values(store) == []


@pytest.mark.scenario(152)
def test_a_close_amid_a_transaction_aborts_it_and_ends_every_wait(store: Store) -> None:
    producer = after(store, "init begin")
    producer.send("t", b"1", partition=0)
    producer.flush()
    future = producer.send("t", b"2", partition=0)

    producer.close()

    assert isinstance(future.exception(0), TransactionAborted)
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"
    assert read(store, "t") == []


WRONG: dict[str, Callable[[Producer], object]] = {
    "a call out of order": lambda producer: producer.begin_transaction(),
    "an init too many": lambda producer: producer.init_transactions(),
    "no such topic": lambda producer: producer.send("unknown", b"v"),
    "no such partition": lambda producer: producer.send("t", b"v", partition=2),
    "a value that is none": lambda producer: producer.send("t", 1),  # type: ignore[arg-type]
    "offsets of no such partition": lambda producer: producer.send_offsets_to_transaction(
        {TopicPartition("t", 9): 1}, "g"
    ),
    "a completion of what was not prepared": lambda producer: producer.complete_transaction("1:1"),
    "a version that is none": lambda producer: producer.commit_transaction(version=-1),
}


@pytest.mark.scenario(158)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_leaves_the_producer_as_it_was(store: Store, wrong: str) -> None:
    producer = after(store, "init begin send")
    with pytest.raises(Exception, match=r"\[EOSLOG_"):
        WRONG[wrong](producer)

    producer.send("t", b"w")
    producer.commit_transaction()

    assert values(store) == [b"v", b"w"]


def test_the_state_names_the_next_call_and_the_error_why_a_transaction_must_be_aborted(store: Store) -> None:
    producer = store.producer("tx")
    assert producer.state == "uninitialized"
    producer.init_transactions()
    assert producer.state == "ready"
    producer.begin_transaction()
    assert (producer.state, producer.error) == ("in transaction", None)
    producer.send("t", b"v")
    store.admin.delete_topic("t")

    with pytest.raises(UnknownTopicOrPartition) as refused:
        producer.flush()

    assert (producer.state, producer.error) == ("abortable error", refused.value)
    producer.abort_transaction()
    assert (producer.state, producer.error) == ("ready", None)
    store.producer("tx").init_transactions()
    producer.begin_transaction()
    with pytest.raises(ProducerFenced) as fenced:
        producer.commit_transaction(version=1)
    assert (producer.state, producer.error) == ("fatal error", fenced.value)
    producer.close()
    assert producer.state == "closed"


@pytest.mark.scenario(158)
def test_a_producer_that_contradicts_itself_is_of_no_use_any_more(store: Store) -> None:
    producer = after(store, "init begin send")
    with pytest.raises(IllegalState):
        producer._lifecycle.arrive(ProducerPhase.READY)

    for call in TRANSACTIONAL:
        with pytest.raises(IllegalState, match="close it"):
            CALLS[call](producer)
    producer.close()

    assert values(store) == []


@pytest.mark.scenario(158)
def test_the_same_step_is_recoverable_as_a_call_and_fatal_as_an_answer() -> None:
    lifecycle = ProducerLifecycle()

    with pytest.raises(IllegalState):
        lifecycle.enter(ProducerPhase.IN_TRANSACTION, "begin_transaction()")
    assert lifecycle.phase is ProducerPhase.UNINITIALIZED

    with pytest.raises(IllegalState):
        lifecycle.arrive(ProducerPhase.IN_TRANSACTION)
    assert lifecycle.phase is ProducerPhase.FATAL_ERROR


@pytest.mark.scenario(151)
def test_offsets_of_nothing_are_ignored_and_cost_nothing(store: Store) -> None:
    producer = after(store, "init begin")
    requests = store.requests.copy()

    producer.send_offsets_to_transaction({}, "g")
    producer.commit_transaction()

    assert store.requests == requests
    assert store.consumer("g").committed([PLACE]) == {PLACE: None}


@pytest.mark.scenario(151)
@pytest.mark.parametrize("offsets", [{}, {PLACE: 1}], ids=["of nothing", "of a partition"])
@pytest.mark.parametrize(
    "group",
    [None, "", GroupMetadata(""), GroupMetadata("g", generation=2)],
    ids=["none", "no name", "metadata without a name", "a generation without a member"],
)
def test_offsets_of_a_group_that_is_none_are_refused_at_once(
    store: Store, offsets: dict[TopicPartition, int], group: GroupMetadata | str
) -> None:
    producer = after(store, "init begin send")

    with pytest.raises(InvalidRequest):
        producer.send_offsets_to_transaction(offsets, group)

    producer.commit_transaction()
    assert values(store) == [b"v"]


@pytest.mark.further("Producer client")
@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31])
def test_a_time_out_beyond_the_bounds_is_refused_before_anything_is_asked(store: Store, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        store.producer("tx", transaction_timeout_ms=timeout_ms)


@pytest.mark.further("Producer client")
def test_the_times_of_the_calls_are_measured_by_kafkas_names(store: Store, world: World) -> None:
    producer = after(store, "init begin send offsets commit begin abort")

    assert {name.removeprefix("txn-").removesuffix("-time-ns-total") for name in producer.metrics()} >= {
        "init",
        "begin",
        "send-offsets",
        "commit",
        "abort",
    }
