"""The producer's state machine beside Kafka's (``TransactionManager.State``), transition by transition."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.producer.producer_lifecycle import VALID_PREVIOUS_PHASES, ProducerLifecycle, ProducerPhase

P = ProducerPhase
KAFKA: dict[ProducerPhase, set[ProducerPhase]] = {
    P.UNINITIALIZED: {P.READY, P.ABORTABLE_ERROR},
    P.INITIALIZING: {P.UNINITIALIZED, P.COMMITTING, P.ABORTING},
    P.READY: {P.INITIALIZING, P.COMMITTING, P.ABORTING},
    P.IN_TRANSACTION: {P.READY},
    P.PREPARED: {P.IN_TRANSACTION, P.INITIALIZING},
    P.COMMITTING: {P.IN_TRANSACTION, P.PREPARED},
    P.ABORTING: {P.IN_TRANSACTION, P.PREPARED, P.ABORTABLE_ERROR},
    P.ABORTABLE_ERROR: {P.IN_TRANSACTION, P.COMMITTING, P.ABORTABLE_ERROR, P.INITIALIZING},
}
REPEATED = {(phase, phase) for phase in (P.INITIALIZING, P.PREPARING, P.COMMITTING, P.ABORTING)}
PREPARE_IS_A_REQUEST = {(P.IN_TRANSACTION, P.PREPARING), (P.PREPARING, P.PREPARED), (P.PREPARING, P.ABORTABLE_ERROR)}
STILL_PREPARED = {(P.COMMITTING, P.PREPARED), (P.ABORTING, P.PREPARED)}
NO_EPOCH_IS_ASKED_FOR_AGAIN = {
    (P.READY, P.UNINITIALIZED),
    (P.ABORTABLE_ERROR, P.UNINITIALIZED),
    (P.COMMITTING, P.INITIALIZING),
    (P.ABORTING, P.INITIALIZING),
}
NOTHING_TO_ABORT_YET = {(P.INITIALIZING, P.ABORTABLE_ERROR)}

LEGAL = {(before, after) for after, allowed in VALID_PREVIOUS_PHASES.items() for before in allowed}


def lifecycle_in(phase: ProducerPhase) -> ProducerLifecycle:
    lifecycle = ProducerLifecycle()
    lifecycle.phase = phase
    return lifecycle


def test_the_transitions_are_kafkas_but_for_those_that_are_named_here() -> None:
    kafkas = {(before, after) for after, allowed in KAFKA.items() for before in allowed}
    # Kafka's prepare asks nobody.
    kafkas -= {(P.IN_TRANSACTION, P.PREPARED)}
    always = {(before, after) for before in P for after in (P.FATAL_ERROR, P.CLOSED)}

    expected = kafkas - NO_EPOCH_IS_ASKED_FOR_AGAIN - NOTHING_TO_ABORT_YET
    assert expected | REPEATED | PREPARE_IS_A_REQUEST | STILL_PREPARED | always == LEGAL


@pytest.mark.parametrize("before", P)
@pytest.mark.parametrize("after", P)
def test_a_call_that_is_illegal_leaves_the_producer_as_it_was(before: ProducerPhase, after: ProducerPhase) -> None:
    lifecycle = lifecycle_in(before)
    if (before, after) in LEGAL:
        lifecycle.enter(after, "the call")
        assert lifecycle.phase is after
        return

    with pytest.raises(errors.IllegalState, match=f"the call is not allowed while the producer is {before.value}: "):
        lifecycle.enter(after, "the call")

    assert lifecycle.phase is before
    lifecycle.check_not_fatal()


@pytest.mark.parametrize("before", P)
@pytest.mark.parametrize("after", P)
def test_an_answer_that_leads_where_it_cannot_ends_the_producer(before: ProducerPhase, after: ProducerPhase) -> None:
    lifecycle = lifecycle_in(before)
    if (before, after) in LEGAL:
        lifecycle.arrive(after)
        assert lifecycle.phase is after
        return

    with pytest.raises(errors.IllegalState):
        lifecycle.arrive(after)

    assert lifecycle.phase is P.FATAL_ERROR
    with pytest.raises(errors.IllegalState):
        lifecycle.check_not_fatal()


FENCED = errors.ProducerFenced("another holds it")
DENIED = errors.StoreAccessDenied("not allowed")
ABORTED = errors.TransactionAborted("it timed out")


@pytest.mark.parametrize(
    ("phase", "error", "holds_prepared", "leads_to"),
    [
        (P.INITIALIZING, DENIED, False, P.INITIALIZING),
        (P.IN_TRANSACTION, DENIED, False, P.ABORTABLE_ERROR),
        (P.IN_TRANSACTION, FENCED, False, P.FATAL_ERROR),
        (P.PREPARING, DENIED, False, P.ABORTABLE_ERROR),
        (P.PREPARING, FENCED, False, P.FATAL_ERROR),
        (P.COMMITTING, DENIED, False, P.ABORTABLE_ERROR),
        (P.COMMITTING, FENCED, False, P.FATAL_ERROR),
        (P.ABORTING, DENIED, False, P.ABORTING),
        (P.COMMITTING, DENIED, True, P.PREPARED),
        (P.ABORTING, DENIED, True, P.PREPARED),
        (P.COMMITTING, ABORTED, True, P.ABORTABLE_ERROR),
        (P.COMMITTING, FENCED, True, P.FATAL_ERROR),
        (P.ABORTING, FENCED, True, P.FATAL_ERROR),
    ],
)
def test_an_error_ends_the_transaction_or_the_producer_and_leaves_a_prepared_one_prepared(
    phase: ProducerPhase, error: errors.EosLogError, holds_prepared: bool, leads_to: ProducerPhase
) -> None:
    lifecycle = lifecycle_in(phase)

    lifecycle.fail(error, holds_prepared=holds_prepared)

    assert lifecycle.phase is leads_to
    assert (phase, leads_to) in LEGAL
