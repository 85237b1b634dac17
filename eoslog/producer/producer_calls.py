"""The rules of a producer's calls: the phase that allows a call, one call at a time, and its time limit.

``ProducerCall`` is a class and not a generator, because a send must cost little more than taking the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from math import isnan

from eoslog.errors import (
    AbortableError,
    ApplicationRecoverableError,
    CorruptRecord,
    EosLogError,
    FencedInstanceId,
    IllegalState,
    InvalidEntry,
    InvalidRequest,
    InvalidTxnState,
    OutOfOrderSequence,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedFormat,
    quoted,
)
from eoslog.producer.transaction_span import TransactionSpan
from eoslog.session.metrics import CALL_TIMES, CallTimes
from eoslog.session.time_limits import LONGEST_WAIT_MS, TimeLimits
from eoslog.storage.environment import Environment
from eoslog.storage.process import HomeProcess


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
        self._phase = ProducerPhase.UNINITIALIZED
        self._error: EosLogError | None = None

    @property
    def phase(self) -> ProducerPhase:
        return self._phase

    @property
    def has_failed(self) -> bool:
        """True if the transaction or the producer has failed, so that nothing can be written."""
        return self.phase in (ProducerPhase.ABORTABLE_ERROR, ProducerPhase.FATAL_ERROR)

    def enter(self, phase: ProducerPhase, call: str) -> None:
        """Enter the phase of a user's call.

        Raises:
            IllegalState: ``call`` is not allowed now. Nothing changes.
        """
        if self._phase not in VALID_PREVIOUS_PHASES[phase]:
            raise _illegal(self._phase, call)
        self._phase = phase

    def arrive(self, phase: ProducerPhase) -> None:
        """Enter the phase that follows an answer.

        Raises:
            IllegalState: the transition is not allowed. This is a bug of the producer, and it must be closed.
        """
        if self._phase not in VALID_PREVIOUS_PHASES[phase]:
            self._error = IllegalState(f"the producer went from {self._phase.value} to {phase.value}: close it")
            self._phase = ProducerPhase.FATAL_ERROR
            raise self._error
        self._phase = phase

    def fail(self, error: EosLogError, *, holds_prepared: bool = False) -> None:
        """Remember an error that a repetition cannot overcome. It fails the transaction, or else the producer."""
        if ends_the_producer(error):
            self._phase = ProducerPhase.FATAL_ERROR
        elif holds_prepared and not isinstance(error, AbortableError):
            # The outcome of a prepared transaction is decided elsewhere, so this error must not force an abort.
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
        """Raises: TransactionAbortable: the transaction has failed and must be aborted."""
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
        return "it is already initialized, continue without this call"
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
        _P.ABORTABLE_ERROR: "call abort_transaction(), then continue",
        _P.FATAL_ERROR: "close this producer and open another",
        _P.CLOSED: "open another producer",
    }[phase]


class ProducerCalls:
    """The lock of a producer: one thread at a time holds it, for a call of at most ``max_block_ms``.

    Callbacks of that call may make further calls in the same thread.
    """

    def __init__(
        self,
        home: HomeProcess,
        environment: Environment,
        limits: TimeLimits,
        call_times: CallTimes,
        shut: Callable[[], None],
    ) -> None:
        self.home = home
        self.environment = environment
        self.limits = limits
        self.call_times = call_times
        self.lock = threading.RLock()
        self.transaction_span = TransactionSpan()
        """The span of the open transaction. It is current in every call."""
        self.under_way: list[str] = []
        """The current call and the calls nested in it. A callback of the outer call's rows makes the inner one."""
        self.is_timed = False
        """True if the outermost call has its own time limit. Calls made by ``close`` use the limit of ``close``."""
        self.is_to_be_closed = False
        self._shut = shut
        self._by_name: dict[str, ProducerCall] = {}

    def of(self, name: str, timeout: float | None = None) -> ProducerCall:
        """Return a call of this name, for a ``with`` statement.

        Args:
            timeout: the time limit of this call (s); negative: no limit; ``max_block_ms`` if None.

        Raises:
            InvalidRequest: the timeout is not a number.
        """
        if timeout is not None:
            return ProducerCall(self, name, _timeout_ms(timeout))
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = ProducerCall(self, name)
        return found

    def close(self, timeout_ms: int, finish: Callable[[], None]) -> str | None:
        """Make the last call, then shut the producer, also after an error.

        If a call of another thread does not end in time, it is cut short, and its thread shuts the producer afterwards.
        In a forked child this does nothing: the rows and the transaction belong to the parent.

        Returns:
            The call that was cut short, so that ``finish`` was not called; None if there was none.
        """
        if not self.home.is_this:
            return None
        if not self.lock.acquire(timeout=timeout_ms / 1000):
            cut = next(iter(self.under_way.copy()), None)
            self.is_to_be_closed = True
            self.limits.cut_short()
            if self.lock.acquire(blocking=False):
                # The other call ended before it could see the request to close. So shut the producer here.
                try:
                    self.limits.end_call()
                    self.shut_if_asked()
                finally:
                    self.lock.release()
            return cut
        try:
            with self.limits.call("close()", timeout_ms):
                if timeout_ms > 0:
                    finish()
        finally:
            self._shut()
            self.lock.release()
        return None

    def at_exit(self, timeout_ms: int, flush: Callable[[], None]) -> None:
        """Flush at interpreter exit. Wait at most ``timeout_ms`` for another thread's call, then as long for answers.

        Raises:
            RequestTimedOut: a call of another thread did not end in time.
        """
        if not self.lock.acquire(timeout=timeout_ms / 1000):
            raise RequestTimedOut("another thread's call of this producer did not end in time")
        try:
            with self.limits.call("the flush at exit", timeout_ms):
                flush()
        finally:
            self.lock.release()

    def check_not_repeated(self) -> None:
        """Raises: IllegalState: a callback makes the same call again that is waiting for it."""
        *outer, newest = self.under_way
        if newest in outer:
            raise IllegalState(f"{newest} is running: a callback of its rows cannot call it again")

    def release(self) -> None:
        """End a call that took only the lock: such a call waits for nothing and has no time limit."""
        try:
            if self.is_to_be_closed and not self.limits.in_call:
                self._shut()
        finally:
            self.lock.release()

    def shut_if_asked(self) -> None:
        """Shut the producer if a ``close`` of another thread asked for it. Called when no call is running."""
        if self.is_to_be_closed:
            self._shut()


def _timeout_ms(timeout: float) -> int:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    # A large int is no float.
    if not is_number or (isinstance(timeout, float) and isnan(timeout)):
        raise InvalidRequest(f"timeout is {quoted(timeout)}; it must be a number of seconds, negative for no limit")
    return LONGEST_WAIT_MS if timeout < 0 else int(min(timeout * 1000, LONGEST_WAIT_MS))


class ProducerCall:
    """Holds the producer for one call with a time limit. The same thread may enter it again.

    Raises:
        RequestTimedOut: on entering: a call of another thread did not end in time.
    """

    __slots__ = ("_began_ns", "_calls", "_metric", "_name", "_timeout_ms")

    def __init__(self, calls: ProducerCalls, name: str, timeout_ms: int | None = None) -> None:
        self._calls = calls
        self._name = name
        self._timeout_ms = calls.limits.max_block_ms if timeout_ms is None else timeout_ms
        self._metric = CALL_TIMES.get(name)
        self._began_ns = 0

    def __enter__(self) -> None:
        calls = self._calls
        # Check before the lock: a thread of the parent may have held it during the fork, and nothing releases it here.
        calls.home.check(self._name)
        limits = calls.limits
        began_ns = calls.environment.monotonic_ns()
        if not calls.lock.acquire(False) and not calls.lock.acquire(timeout=self._timeout_ms / 1000):
            raise RequestTimedOut(
                f"{self._name}: timed out after {self._timeout_ms} ms waiting for another call of this producer; "
                "repeat this one"
            )
        calls.under_way.append(self._name)
        if len(calls.under_way) > 1:
            return
        calls.is_timed = not limits.in_call
        if calls.is_timed:
            try:
                calls.shut_if_asked()
            except BaseException:
                calls.under_way.clear()
                calls.lock.release()
                raise
            limits.begin_call(self._name, self._timeout_ms, began_ns // 1_000_000)
            if self._metric is not None:
                self._began_ns = calls.environment.monotonic_ns()
        calls.transaction_span.enter()

    def __exit__(self, *error: object) -> None:
        calls = self._calls
        calls.under_way.pop()
        try:
            if not calls.under_way:
                calls.transaction_span.leave()
            if not calls.under_way and calls.is_timed:
                if self._metric is not None:
                    calls.call_times.add(self._metric, calls.environment.monotonic_ns() - self._began_ns)
                calls.limits.end_call()
                calls.shut_if_asked()
        finally:
            calls.lock.release()
