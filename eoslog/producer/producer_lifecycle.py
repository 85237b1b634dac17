"""The phases of a producer: which call each phase allows, and the phase that follows an answer or an error."""

from __future__ import annotations

from enum import Enum

from eoslog.errors import (
    AbortableError,
    ApplicationRecoverableError,
    CorruptRecord,
    EosLogError,
    FencedInstanceId,
    IllegalState,
    InvalidEntry,
    InvalidTxnState,
    OutOfOrderSequence,
    StoreAccessDenied,
    TransactionAbortable,
    UnsupportedFormat,
)


class ProducerPhase(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"
    CLOSED = "closed"


_P = ProducerPhase
VALID_PREVIOUS_PHASES: dict[ProducerPhase, frozenset[ProducerPhase]] = {
    _P.UNINITIALIZED: frozenset(),
    _P.INITIALIZING: frozenset({_P.UNINITIALIZED, _P.INITIALIZING}),
    _P.READY: frozenset({_P.INITIALIZING, _P.COMMITTING, _P.ABORTING}),
    _P.IN_TRANSACTION: frozenset({_P.READY}),
    _P.PREPARING: frozenset({_P.IN_TRANSACTION, _P.PREPARING}),
    _P.PREPARED: frozenset({_P.PREPARING, _P.INITIALIZING, _P.COMMITTING, _P.ABORTING}),
    _P.COMMITTING: frozenset({_P.IN_TRANSACTION, _P.PREPARED, _P.COMMITTING}),
    _P.ABORTING: frozenset({_P.IN_TRANSACTION, _P.PREPARED, _P.ABORTABLE_ERROR, _P.ABORTING}),
    _P.ABORTABLE_ERROR: frozenset({_P.IN_TRANSACTION, _P.PREPARING, _P.COMMITTING, _P.ABORTABLE_ERROR}),
    _P.FATAL_ERROR: frozenset(_P),
    _P.CLOSED: frozenset(_P),
}
"""For each phase, the phases before it. After a call without an answer, only the same call may follow.

Two rules go beyond Kafka. A prepare is a request here, so it has a phase of its own. If the store refuses the end of a
prepared transaction, the transaction stays prepared, because its outcome was decided elsewhere. Kafka's transitions
that ask for an epoch again (to UNINITIALIZED, and to INITIALIZING after an end) do not exist here: the answer to every
end brings the next epoch. A failed init can only be repeated: there is no transaction to abort yet.
"""


_IN_TRANSACTION = (_P.IN_TRANSACTION, _P.PREPARING, _P.COMMITTING)
_REPEATABLE = (_P.INITIALIZING, _P.ABORTING)
_PRODUCER_IS_DONE = (ApplicationRecoverableError, InvalidTxnState, CorruptRecord, UnsupportedFormat, InvalidEntry)
"""Errors after which an abort cannot help: the producer must be closed. Any other error fails only the transaction."""
_OTHERS_ARE_DONE = (FencedInstanceId, OutOfOrderSequence)
"""Exceptions to the rule above. ``FencedInstanceId`` ends the consumer whose offsets were refused, and
``OutOfOrderSequence`` ends the epoch. The producer continues after an abort, which brings the next epoch (Kafka's
``TransactionManager.maybeTransitionToErrorState``)."""


def ends_the_producer(error: EosLogError) -> bool:
    """Return True if a producer must be closed after this error, with or without a transaction."""
    return isinstance(error, _PRODUCER_IS_DONE) and not isinstance(error, _OTHERS_ARE_DONE)


class ProducerLifecycle:
    """The phase of one producer, and the error of a failed producer."""

    def __init__(self) -> None:
        self.phase = ProducerPhase.UNINITIALIZED
        """Only the methods below change it."""
        self._error: EosLogError | None = None

    @property
    def has_failed(self) -> bool:
        """True if the transaction or the producer has failed, so that nothing can be written."""
        return self.phase in (ProducerPhase.ABORTABLE_ERROR, ProducerPhase.FATAL_ERROR)

    @property
    def error(self) -> EosLogError | None:
        """The error with which the transaction or the producer has failed."""
        return self._error if self.has_failed else None

    def enter(self, phase: ProducerPhase, call: str) -> None:
        """Enter the phase of a user's call.

        Raises:
            IllegalState: ``call`` is not allowed now. Nothing changes.
        """
        self.check_may_enter(phase, call)
        self.phase = phase

    def check_may_enter(self, phase: ProducerPhase, call: str) -> None:
        """Raises: IllegalState: ``call`` is not allowed now."""
        if self.phase not in VALID_PREVIOUS_PHASES[phase]:
            raise _illegal(self.phase, call)

    def arrive(self, phase: ProducerPhase) -> None:
        """Enter the phase that follows an answer.

        Raises:
            IllegalState: the transition is not allowed. This is a bug of the producer, and it must be closed.
        """
        if self.phase not in VALID_PREVIOUS_PHASES[phase]:
            self._error = IllegalState(f"the producer went from {self.phase.value} to {phase.value}: close it")
            self.phase = ProducerPhase.FATAL_ERROR
            raise self._error
        self.phase = phase

    def fail(self, error: EosLogError, *, holds_prepared: bool = False) -> None:
        """Remember an error that a repetition cannot overcome. It fails the transaction, or else the producer."""
        if ends_the_producer(error):
            self.phase = ProducerPhase.FATAL_ERROR
        elif holds_prepared and not isinstance(error, AbortableError):
            # The outcome of a prepared transaction is decided elsewhere, so this error must not force an abort.
            self.phase = ProducerPhase.PREPARED
        elif self.phase in _IN_TRANSACTION:
            self.phase = ProducerPhase.ABORTABLE_ERROR
        elif self.phase in _REPEATABLE and isinstance(error, StoreAccessDenied):
            # The object store refused the request, for example because its disk is full. The cause may go away, so the
            # same call may be repeated.
            return
        else:
            self.phase = ProducerPhase.FATAL_ERROR
        self._error = error

    def check_not_fatal(self) -> None:
        """Raises: the error that ended the producer."""
        if self.phase is ProducerPhase.FATAL_ERROR and self._error is not None:
            raise self._error

    def check_not_abortable(self) -> None:
        """Raises: TransactionAbortable: the transaction has failed and must be aborted."""
        if self.phase is ProducerPhase.ABORTABLE_ERROR:
            raise TransactionAbortable(f"the transaction can only be aborted, because of: {self._error}")

    def check_prepared(self, holds_prepared: bool) -> None:
        """Raises: IllegalState: ``complete_transaction`` needs a prepared transaction."""
        if not holds_prepared:
            raise _illegal(self.phase, "complete_transaction()")

    def check_in_transaction(self, call: str) -> None:
        """Raises: IllegalState: ``call`` needs an open transaction."""
        if self.phase is not ProducerPhase.IN_TRANSACTION:
            raise _illegal(self.phase, call)

    def check_not_closed(self, call: str) -> None:
        """Raises: IllegalState: the producer is closed."""
        if self.phase is ProducerPhase.CLOSED:
            raise _illegal(self.phase, call)


def _illegal(phase: ProducerPhase, call: str) -> IllegalState:
    return IllegalState(f"{call} is not allowed while the producer is {phase.value}: {_advice(phase, call)}")


def _advice(phase: ProducerPhase, call: str) -> str:
    if call.startswith("init_transactions") and phase in (_P.READY, _P.IN_TRANSACTION, _P.PREPARED):
        return "it is already initialized. Continue without this call"
    if call.startswith("complete_transaction") and phase in (_P.READY, _P.IN_TRANSACTION):
        return "no transaction is prepared"
    return {
        _P.UNINITIALIZED: "call init_transactions() first",
        _P.READY: "call begin_transaction() first",
        _P.INITIALIZING: "repeat init_transactions()",
        _P.IN_TRANSACTION: "commit or abort the open transaction first",
        _P.PREPARING: "the prepare was not answered. Repeat prepare_transaction()",
        _P.PREPARED: "the transaction is prepared. Complete, commit or abort it first",
        _P.COMMITTING: "the commit was not answered. Repeat commit_transaction()",
        _P.ABORTING: "the abort was not answered. Repeat abort_transaction()",
        _P.ABORTABLE_ERROR: "call abort_transaction(), then continue",
        _P.FATAL_ERROR: "close this producer and open another",
        _P.CLOSED: "open another producer",
    }[phase]
