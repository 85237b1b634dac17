"""Every error that a producer may meet: where it leaves the producer, and which calls lead on from there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.producer.producer_lifecycle import ProducerPhase
from eoslog.store import Store
from tests.depth import sweep
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, values

RETRIABLE = (
    errors.ConcurrentTransactions,
    errors.NotCoordinator,
    errors.StoreUnavailable,
    errors.RequestTimedOut,
    errors.CommitStateUnknown,
    errors.UnstableOffsetCommit,
)
ENDS_THE_PRODUCER = (
    errors.OpenedBeforeFork,
    errors.OutcomeLost,
    errors.ProducerFenced,
    errors.InvalidProducerIdMapping,
    errors.UnknownProducerId,
    errors.InvalidTxnState,
    errors.CorruptRecord,
    errors.UnsupportedFormat,
    errors.InvalidEntry,
)


def every_error(group: type[errors.EosLogError] = errors.EosLogError) -> list[type[errors.EosLogError]]:
    """The errors of ``eoslog.errors`` that are raised, not the groups that they belong to."""
    found = []
    for error in group.__subclasses__():
        if error.__module__ == errors.__name__:
            found += every_error(error)
            if group is not errors.EosLogError:
                found.append(error)
    return found


ENDS_THE_TRANSACTION = tuple(error for error in every_error() if error not in RETRIABLE + ENDS_THE_PRODUCER)
QUICK = {*RETRIABLE, *ENDS_THE_PRODUCER, *{error.__base__: error for error in ENDS_THE_TRANSACTION}.values()}
"""All errors that are named here, and of the others one of each group."""


def each_at_each(kinds: Sequence[type[errors.EosLogError]], calls: Sequence[str]) -> list[Any]:
    """Return each error with each call as parameters. Quick tests have few errors, and the calls in turn."""
    quick = zip([kind for kind in kinds if kind in QUICK], itertools.cycle(calls), strict=False)
    return sweep(itertools.product(kinds, calls), quick=list(quick))


def producer_that_meets(
    store: Store, error: type[errors.EosLogError], call: str, monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> Producer:
    """A producer whose ``call`` was just answered with ``error`` by the log, which answers well again."""
    producer = store.producer("tx" if transactional else None)
    if transactional and call != "init":
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"flushed")
        producer.flush()
    if call == "flush":
        producer.send("t", b"in flight")
    if call == "complete":
        producer.prepare_transaction()

    def refuse(*arguments: Any, **options: Any) -> None:
        raise error("told by the log")

    with monkeypatch.context() as patched:
        patched.setattr(store.log, "append", refuse)
        with pytest.raises(errors.RequestTimedOut if error in RETRIABLE else error):
            _call(producer, call)
    return producer


def _call(producer: Producer, call: str) -> Any:
    return producer.flush() if call == "flush" else CALLS[call](producer)


def allowed_calls(producer_of: Callable[[], Producer]) -> set[str]:
    """The calls that a producer in this state lets pass."""
    allowed = set()
    for call in CALLS:
        try:
            CALLS[call](producer_of())
            allowed.add(call)
        except errors.EosLogError:
            pass
    return allowed


@pytest.mark.parametrize("error", sweep(RETRIABLE, quick=RETRIABLE[::3]))
@pytest.mark.parametrize(
    ("call", "phase"),
    [
        ("init", ProducerPhase.INITIALIZING),
        ("flush", ProducerPhase.IN_TRANSACTION),
        ("prepare", ProducerPhase.PREPARING),
        ("complete", ProducerPhase.COMMITTING),
        ("commit", ProducerPhase.COMMITTING),
        ("abort", ProducerPhase.ABORTING),
    ],
)
def test_a_retriable_error_leaves_the_same_call_and_a_flush_leaves_all(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    error: type[errors.EosLogError],
    call: str,
    phase: ProducerPhase,
) -> None:
    def producer_of() -> Producer:
        return producer_that_meets(store, error, call, monkeypatch, transactional=True)

    assert producer_of()._lifecycle.phase is phase
    leads_on = {
        "flush": {"send", "table", "offsets", "prepare", "commit", "abort"},
        "complete": {"complete", "commit"},
    }
    assert allowed_calls(producer_of) == leads_on.get(call, {call}) | {"close"}


@pytest.mark.scenario(155)
@pytest.mark.parametrize(("error", "call"), each_at_each(ENDS_THE_TRANSACTION, ["flush", "prepare", "commit"]))
def test_most_errors_end_the_transaction_and_the_producer_goes_on_after_an_abort(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[errors.EosLogError], call: str
) -> None:
    def producer_of() -> Producer:
        return producer_that_meets(store, error, call, monkeypatch, transactional=True)

    assert allowed_calls(producer_of) == {"abort", "close"}
    producer = producer_of()
    for each in ("begin", "send", "table", "offsets", "prepare", "commit"):
        with pytest.raises(errors.TransactionAbortable, match="told by the log"):
            CALLS[each](producer)
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()
    assert values(store) == [b"next"]


@pytest.mark.parametrize(
    ("error", "call"), each_at_each(ENDS_THE_PRODUCER, ["init", "flush", "prepare", "complete", "commit", "abort"])
)
def test_these_errors_end_the_producer_which_tells_them_at_each_call_and_another_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[errors.EosLogError], call: str
) -> None:
    producer = producer_that_meets(store, error, call, monkeypatch, transactional=True)

    for each in set(CALLS) - {"close"}:
        with pytest.raises(error):
            CALLS[each](producer)
    producer.flush()
    producer.close()
    with open_transaction(store, "tx") as another:
        another.send("t", b"next")
        another.commit_transaction()
    assert values(store) == [b"next"]


@pytest.mark.parametrize("error", sweep(ENDS_THE_TRANSACTION, quick=QUICK))
def test_a_prepared_transaction_outlives_the_errors_that_do_not_tell_of_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[errors.EosLogError]
) -> None:
    def producer_of() -> Producer:
        return producer_that_meets(store, error, "complete", monkeypatch, transactional=True)

    ended = issubclass(error, errors.AbortableError)
    assert allowed_calls(producer_of) == {"abort", "close"} | (set() if ended else {"complete", "commit"})
    producer = producer_of()
    assert producer._lifecycle.phase is (ProducerPhase.ABORTABLE_ERROR if ended else ProducerPhase.PREPARED)
    if not ended:
        producer.complete_transaction(producer.prepared_transaction or "")
        assert b"flushed" in values(store)


@pytest.mark.parametrize(
    ("error", "call"),
    each_at_each(
        [each for each in ENDS_THE_TRANSACTION if not issubclass(each, errors.StoreAccessDenied)], ["init", "abort"]
    ),
)
def test_an_error_that_refuses_an_init_or_an_abort_ends_the_producer(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[errors.EosLogError], call: str
) -> None:
    producer = producer_that_meets(store, error, call, monkeypatch, transactional=True)

    for each in set(CALLS) - {"close"}:
        with pytest.raises(error):
            CALLS[each](producer)


@pytest.mark.parametrize("error", sweep(every_error(), quick=QUICK))
def test_without_a_transaction_a_retriable_error_loses_nothing_and_others_fail_the_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[errors.EosLogError]
) -> None:
    producer = store.producer()
    producer.send("t", b"0", partition=0)
    producer.flush()
    future = producer.send("t", b"1", partition=0)

    def refuse(*arguments: Any, **options: Any) -> None:
        raise error("told by the log")

    with monkeypatch.context() as patched:
        patched.setattr(store.log, "append", refuse)
        with pytest.raises(errors.RequestTimedOut if error in RETRIABLE else error):
            producer.flush()

    if error in RETRIABLE:
        producer.flush()
        assert future.result(0).offset == 1
    else:
        assert isinstance(future.exception(0), error)
    if error in ENDS_THE_PRODUCER:
        with pytest.raises(error):
            producer.send("t", b"2")
        with pytest.raises(error):
            producer.flush()
    else:
        after = producer.send("t", b"2", partition=0)
        producer.flush()
        assert after.result(0).offset == (2 if error in RETRIABLE else 1)
    producer.close()
