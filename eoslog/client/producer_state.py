"""The producer's own state machine (Kafka's ``TransactionManager.State``): which call is allowed when."""

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
"""From which phases each may be entered. A call that failed without an answer may be made again, and no other.

Beyond Kafka: a prepare is a request here, so it has a phase of its own; and an end of a prepared transaction that the
store refuses leaves it prepared, for its verdict was given elsewhere. Kafka's transitions that ask for an epoch again
(to UNINITIALIZED, and to INITIALIZING after an end) have no counterpart: the answer to every end brings the next epoch.
An init is repeated, or the producer is of no use; there is nothing to abort yet.
"""


_IN_TRANSACTION = (_P.IN_TRANSACTION, _P.PREPARING, _P.COMMITTING)
_PRODUCER_IS_DONE = (ApplicationRecoverableError, InvalidTxnState, CorruptRecord, UnsupportedFormat, InvalidEntry)
"""After these an abort leads nowhere either. Whatever else is refused ends only the transaction."""
_OTHERS_ARE_DONE = (FencedInstanceId, OutOfOrderSequence)
"""After these the consumer whose offsets were refused leads nowhere, or the epoch whose sequences were; the producer
goes on after an abort, which brings the next epoch (``TransactionManager.maybeTransitionToErrorState``)."""


def ends_the_producer(error: EosLogError) -> bool:
    """Whether a producer that meets the error is of no use any more, with or without a transaction."""
    return isinstance(error, _PRODUCER_IS_DONE) and not isinstance(error, _OTHERS_ARE_DONE)


class ProducerLifecycle:
    """The phase of one producer, and the error that a failed one remembers."""

    def __init__(self) -> None:
        self._phase = ProducerPhase.UNINITIALIZED
        self._error: EosLogError | None = None

    @property
    def phase(self) -> ProducerPhase:
        return self._phase

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be written any more, in this transaction or at all."""
        return self.phase in (ProducerPhase.ABORTABLE_ERROR, ProducerPhase.FATAL_ERROR)

    def enter(self, phase: ProducerPhase, call: str) -> None:
        """Begin what a call of the user's asks for.

        Raises:
            IllegalState: ``call`` is not allowed now. Nothing changes.
        """
        if self._phase not in VALID_PREVIOUS_PHASES[phase]:
            raise _illegal(self._phase, call)
        self._phase = phase

    def arrive(self, phase: ProducerPhase) -> None:
        """Go where an answer leads.

        Raises:
            IllegalState: it cannot lead there; the producer contradicts itself and is not to be used any more.
        """
        if self._phase not in VALID_PREVIOUS_PHASES[phase]:
            self._error = IllegalState(f"the producer went from {self._phase.value} to {phase.value}: close it")
            self._phase = ProducerPhase.FATAL_ERROR
            raise self._error
        self._phase = phase

    def fail(self, error: EosLogError, *, holds_prepared: bool = False) -> None:
        """Remember an error that no repetition overcomes: it ends the transaction, if that helps, or the producer.

        A prepared transaction that the coordinator has not ended is not given up: the producer still holds it.
        """
        if ends_the_producer(error):
            self._phase = ProducerPhase.FATAL_ERROR
        elif holds_prepared and not isinstance(error, AbortableError):
            self._phase = ProducerPhase.PREPARED
        elif self._phase in _IN_TRANSACTION:
            self._phase = ProducerPhase.ABORTABLE_ERROR
        else:
            self._phase = ProducerPhase.FATAL_ERROR
        self._error = error

    def check_not_fatal(self) -> None:
        """Raises: the error that ended the producer."""
        if self.phase is ProducerPhase.FATAL_ERROR and self._error is not None:
            raise self._error

    def check_not_abortable(self) -> None:
        """Raises: TransactionAbortable: only an abort leads on."""
        if self.phase is ProducerPhase.ABORTABLE_ERROR:
            raise TransactionAbortable(f"the transaction can only be aborted, because of: {self._error}")

    def check_prepared(self, call: str, holds_prepared: bool) -> None:
        """Raises: IllegalState: ``call`` needs a prepared transaction."""
        if not holds_prepared:
            raise _illegal(self._phase, call)

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
        return "it is initialised already, once is enough"
    if call.startswith("complete_transaction") and phase in (_P.READY, _P.IN_TRANSACTION):
        return "no transaction is prepared"
    return {
        _P.UNINITIALIZED: "call init_transactions() first",
        _P.READY: "call begin_transaction() first",
        _P.INITIALIZING: "repeat init_transactions()",
        _P.IN_TRANSACTION: "commit or abort the open transaction first",
        _P.PREPARING: "the prepare was not answered, repeat prepare_transaction()",
        _P.PREPARED: "the transaction is prepared, complete, commit or abort it first",
        _P.COMMITTING: "the commit was not answered, repeat commit_transaction()",
        _P.ABORTING: "the abort was not answered, repeat abort_transaction()",
        _P.ABORTABLE_ERROR: "call abort_transaction(), then go on",
        _P.FATAL_ERROR: "close this producer and open another",
        _P.CLOSED: "open another producer",
    }[phase]
