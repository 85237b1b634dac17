"""The producer's own state machine (Kafka's ``TransactionManager.State``): which call is allowed when."""

from __future__ import annotations

from enum import Enum

from eoslog.errors import (
    ApplicationRecoverableError,
    CorruptRecord,
    EosLogError,
    IllegalState,
    InvalidEntry,
    InvalidTxnState,
    TransactionAbortable,
    UnsupportedFormat,
)


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


_PRODUCER_IS_DONE = (ApplicationRecoverableError, InvalidTxnState, CorruptRecord, UnsupportedFormat, InvalidEntry)
"""After these an abort leads nowhere either. Whatever else is refused ends only the transaction."""


class ProducerLifecycle:
    """The phase of one producer, and the error that a failed one remembers."""

    def __init__(self) -> None:
        self.phase = ProducerPhase.UNINITIALIZED
        self._error: EosLogError | None = None

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be written any more, in this transaction or at all."""
        return self.phase in (ProducerPhase.ABORTABLE_ERROR, ProducerPhase.FATAL_ERROR)

    def enter(self, phase: ProducerPhase, call: str) -> None:
        """Raises: IllegalState: ``call`` is not allowed now."""
        if self.phase not in VALID_PREVIOUS_PHASES[phase]:
            raise _illegal(self.phase, call)
        self.phase = phase

    def fail(self, error: EosLogError) -> None:
        """Remember an error that no repetition overcomes: it ends the transaction, if that helps, or the producer."""
        in_transaction = self.phase in (ProducerPhase.IN_TRANSACTION, ProducerPhase.COMMITTING)
        abortable = in_transaction and not isinstance(error, _PRODUCER_IS_DONE)
        self.phase = ProducerPhase.ABORTABLE_ERROR if abortable else ProducerPhase.FATAL_ERROR
        self._error = error

    def check_not_fatal(self) -> None:
        """Raises: the error that ended the producer."""
        if self.phase is ProducerPhase.FATAL_ERROR and self._error is not None:
            raise self._error

    def check_not_abortable(self) -> None:
        """Raises: TransactionAbortable: only an abort leads on."""
        if self.phase is ProducerPhase.ABORTABLE_ERROR:
            raise TransactionAbortable(f"the transaction can only be aborted, because of: {self._error}")

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
    if call.startswith("init_transactions") and phase in (_P.READY, _P.IN_TRANSACTION):
        return "it is initialised already, once is enough"
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
