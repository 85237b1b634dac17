"""A producer's calls, one at a time: whose turn it is, how long it may last, how long it took, and who closes after it.

A call takes little more time than the lock does: sends are many. So it is a class and no generator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedFormat,
)
from eoslog.session.metrics import CALL_TIMES, CallTimes
from eoslog.session.time_limits import TimeLimits
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


class ProducerCalls:
    """Who holds a producer: one thread, for a call of ``max_block_ms`` at most and those that it makes in turn."""

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
        self.under_way: list[str] = []
        """The calls that hold the producer, each made within the one before, by a callback of its rows."""
        self.is_timed = False
        """Whether the outermost of them has limits of its own; a close gives its own to those that it makes."""
        self.is_to_be_closed = False
        self._shut = shut
        self._by_name: dict[str, ProducerCall] = {}

    def of(self, name: str) -> ProducerCall:
        """A call: it lasts for a ``with``."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = ProducerCall(self, name)
        return found

    def close(self, timeout_ms: int, finish: Callable[[], None]) -> None:
        """Make the last call, and shut the producer however it ends.

        A call of another thread that does not end in time is cut short, and the producer is shut after it. In a forked
        child nothing is done: the rows and the transaction are the parent's.
        """
        if not self.home.is_this:
            return
        if not self.lock.acquire(timeout=timeout_ms / 1000):
            self.is_to_be_closed = True
            self.limits.cut_short()
            if self.lock.acquire(blocking=False):
                # The call ended just before it could see that.
                try:
                    self.limits.end_call()
                    self.shut_if_asked()
                finally:
                    self.lock.release()
            return
        try:
            with self.limits.call("close()", timeout_ms):
                if timeout_ms > 0:
                    finish()
        finally:
            self._shut()
            self.lock.release()

    def at_exit(self, timeout_ms: int, flush: Callable[[], None]) -> None:
        """Flush at interpreter exit. Wait at most ``timeout_ms`` for a call of another thread, and then for answers.

        Raises:
            RequestTimedOut: another thread held the producer all the time.
        """
        if not self.lock.acquire(timeout=timeout_ms / 1000):
            raise RequestTimedOut("another thread's call of this producer did not end in time")
        try:
            with self.limits.call("the flush at exit", timeout_ms):
                flush()
        finally:
            self.lock.release()

    def check_not_repeated(self) -> None:
        """Raises: IllegalState: the newest call is made by a callback of the same call, which will end by itself."""
        *outer, newest = self.under_way
        if newest in outer:
            raise IllegalState(f"{newest} is under way: a callback of its rows cannot call it again")

    def release(self) -> None:
        """End a call that took the lock alone, because it waits for nothing."""
        try:
            if self.is_to_be_closed and not self.limits.in_call:
                self._shut()
        finally:
            self.lock.release()

    def shut_if_asked(self) -> None:
        """Do what a ``close`` of another thread had no time to wait for, while no call is under way."""
        if self.is_to_be_closed:
            self._shut()


class ProducerCall:
    """Holds the producer, for ``max_block_ms`` at most. It may be entered again by its own thread.

    Raises:
        RequestTimedOut: on entering: another thread held the producer all the time.
    """

    __slots__ = ("_began_ns", "_calls", "_metric", "_name")

    def __init__(self, calls: ProducerCalls, name: str) -> None:
        self._calls = calls
        self._name = name
        self._metric = CALL_TIMES.get(name)
        self._began_ns = 0

    def __enter__(self) -> None:
        calls = self._calls
        # Before the lock: a thread of the parent may have held it during the fork, and nothing releases it here.
        calls.home.check(self._name)
        limits = calls.limits
        began_ns = calls.environment.monotonic_ns()
        if not calls.lock.acquire(False) and not calls.lock.acquire(timeout=limits.max_block_ms / 1000):
            raise RequestTimedOut(f"{self._name}: another call of this producer took all the time; repeat this one")
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
            limits.begin_call(self._name, limits.max_block_ms, began_ns // 1_000_000)
            if self._metric is not None:
                self._began_ns = calls.environment.monotonic_ns()

    def __exit__(self, *error: object) -> None:
        calls = self._calls
        calls.under_way.pop()
        try:
            if not calls.under_way and calls.is_timed:
                if self._metric is not None:
                    calls.call_times.add(self._metric, calls.environment.monotonic_ns() - self._began_ns)
                calls.limits.end_call()
                calls.shut_if_asked()
        finally:
            calls.lock.release()
