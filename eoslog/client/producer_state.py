"""The producer's own state machine (Kafka's ``TransactionManager.State``) and which call is allowed when."""

from __future__ import annotations

from enum import Enum

from eoslog.errors import IllegalState


class ProducerPhase(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"
    CLOSED = "closed"


_P = ProducerPhase
VALID_PREVIOUS_PHASES: dict[ProducerPhase, frozenset[ProducerPhase]] = {
    _P.UNINITIALIZED: frozenset({_P.READY, _P.ABORTABLE_ERROR}),
    _P.INITIALIZING: frozenset({_P.UNINITIALIZED, _P.INITIALIZING}),
    _P.READY: frozenset({_P.INITIALIZING, _P.COMMITTING, _P.ABORTING}),
    _P.IN_TRANSACTION: frozenset({_P.READY}),
    _P.COMMITTING: frozenset({_P.IN_TRANSACTION, _P.COMMITTING}),
    _P.ABORTING: frozenset({_P.IN_TRANSACTION, _P.ABORTABLE_ERROR, _P.ABORTING}),
    _P.ABORTABLE_ERROR: frozenset({_P.IN_TRANSACTION, _P.COMMITTING, _P.ABORTABLE_ERROR, _P.INITIALIZING}),
    _P.FATAL_ERROR: frozenset(_P),
    _P.CLOSED: frozenset(_P),
}
"""From which phases each may be entered. A call that failed without an answer may be made again, and no other."""


def check_transition(before: ProducerPhase, after: ProducerPhase, call: str) -> None:
    """Raises: IllegalState: ``call`` is not allowed now."""
    if before not in VALID_PREVIOUS_PHASES[after]:
        raise _illegal(before, call)


def check_in_transaction(phase: ProducerPhase, call: str) -> None:
    """Raises: IllegalState: ``call`` needs an open transaction."""
    if phase is not ProducerPhase.IN_TRANSACTION:
        raise _illegal(phase, call)


def check_not_closed(phase: ProducerPhase, call: str) -> None:
    """Raises: IllegalState: the producer is closed."""
    if phase is ProducerPhase.CLOSED:
        raise _illegal(phase, call)


def _illegal(phase: ProducerPhase, call: str) -> IllegalState:
    return IllegalState(f"{call} is not allowed while the producer is {phase.value}: {_advice(phase)}")


def _advice(phase: ProducerPhase) -> str:
    return {
        _P.UNINITIALIZED: "call init_transactions() first",
        _P.READY: "call begin_transaction() first",
        _P.INITIALIZING: "repeat init_transactions()",
        _P.IN_TRANSACTION: "commit or abort the open transaction first",
        _P.COMMITTING: "the commit was not answered, repeat commit_transaction()",
        _P.ABORTING: "the abort was not answered, repeat abort_transaction()",
        _P.ABORTABLE_ERROR: "call abort_transaction(), then go on",
        _P.FATAL_ERROR: "close this producer and open another",
        _P.CLOSED: "open another producer",
    }[phase]
