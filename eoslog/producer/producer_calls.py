"""The calls of a producer: one at a time, each with its time limit, its span, and an outcome that is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import signature
from math import isnan
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from eoslog.errors import EosLogError, IllegalState, InvalidRequest, RequestTimedOut
from eoslog.session.metrics import CALL_TIMES, CallTimes
from eoslog.session.time_limits import LONGEST_WAIT_MS, TimeLimits
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.storage import tracing
from eoslog.storage.calls import Call, Exclusive
from eoslog.storage.environment import Environment
from eoslog.storage.process import HomeProcess
from eoslog.wording import quoted, without_code

if TYPE_CHECKING:
    from opentelemetry.trace import Span

P = ParamSpec("P")
T = TypeVar("T")


class TransactionSpan:
    """The span of a producer's transaction, from ``begin_transaction`` to its end, over all calls and threads.

    Without a tracer provider nothing is recorded.
    """

    def __init__(self) -> None:
        self._span: Span | None = None
        self._error: EosLogError | None = None
        """The error that has failed the transaction."""
        self._within: AbstractContextManager[Any] | None = None
        """The call in which the span is current."""

    def begin(self, url: str, transactional_id: str | None, identity: ProducerIdentity | None) -> None:
        """Start the span of a transaction. It becomes current with the next call."""
        self._error = None
        described = {
            "eoslog.store": url,
            "eoslog.transactional_id": transactional_id,
            "eoslog.producer_id": None if identity is None else identity.producer_id,
            "eoslog.producer_epoch": None if identity is None else identity.producer_epoch,
        }
        self._span = tracing.start("transaction", tracing.MESSAGING | described)

    def enter(self) -> None:
        """Make the span current for a call in this thread."""
        if self._span is not None:
            self._within = tracing.within(self._span)
            self._within.__enter__()

    def leave(self) -> None:
        """End the call: the span that was current before is current again."""
        if self._within is not None:
            within, self._within = self._within, None
            within.__exit__(None, None, None)

    def describe(self, topics: Iterable[str], rows: Callable[[], int]) -> None:
        """Add the transaction's topics and number of rows, unless it has none."""
        if self._span is not None and (count := rows()):
            tracing.describe(self._span, tracing.rows_of(topics, count))

    def fail(self, error: EosLogError) -> None:
        """Remember the error that has failed the transaction."""
        self._error = error

    def end(self, outcome: str) -> None:
        """End the span.

        Args:
            outcome: ``committed``; ``replayed`` if the version was committed before; ``aborted``; ``failed`` if the
                producer has failed; ``prepared`` or ``open`` if the producer is closed before the transaction ends.
        """
        span, self._span = self._span, None
        if span is None:
            return
        tracing.describe(span, {"eoslog.outcome": outcome})
        if outcome in ("aborted", "failed", "open"):
            tracing.fail(span, self._error or outcome)
        tracing.end(span)


class CallOutcome(NamedTuple):
    """The outcome of a successful call. If an interrupt keeps it from the caller, the repeated call returns it."""

    call: Call
    arguments: object
    """The arguments that the repeated call must have, too."""
    answer: Any


class ProducerCalls:
    """The calls of one producer: one at a time, each for at most ``max_block_ms``.

    Callbacks of a call may make further calls in the same thread. These share its time limit.
    """

    def __init__(
        self,
        home: HomeProcess,
        environment: Environment,
        limits: TimeLimits,
        *,
        call_times: CallTimes,
        shut: Callable[[], None],
    ) -> None:
        self.home = home
        self.environment = environment
        self.limits = limits
        self.call_times = call_times
        self.exclusive = Exclusive("producer", "Repeat the call.", environment, after_abandoned=self._shut_if_free)
        self.transaction_span = TransactionSpan()
        """The span of the open transaction. It is current in every call."""
        self.is_to_be_closed = False
        self._shut = shut
        self._outcome: CallOutcome | None = None
        self.unreported: tuple[Call, EosLogError] | None = None
        """The error with which a call gave up rows without a transaction. If the call was the background flush or was
        interrupted, the next call raises the error."""

    def enter(self, call: Call, timeout_ms: int) -> None:
        """Enter a call. Calls within it share its time limit.

        Raises:
            RequestTimedOut: a call of another thread did not end in time.
            ConcurrentAccess: a signal handler makes this call within another one.
        """
        began_ms = self.environment.monotonic_ms()
        if not self.exclusive.enter(call, timeout_ms):
            raise RequestTimedOut(
                f"{call.name}: timed out after {timeout_ms} ms waiting for another call of this producer. "
                "Repeat this one"
            )
        self.begin(call, timeout_ms, began_ms)

    def begin(self, call: Call, timeout_ms: int, began_ms: int) -> None:
        """Begin the time limit of a call that was entered, unless it is within another one."""
        if call.outer is None:
            if self.is_to_be_closed:
                self._shut()
            self.limits.begin_call(call.name, timeout_ms, began_ms)
            self.transaction_span.enter()

    def end(self, call: Call, metric: str | None = None, began_ns: int = 0) -> None:
        """End a call before it leaves the producer. If a step of it still runs, that step gets no more time.

        Args:
            metric: Kafka's name of the metric of the call; None if it has none.
            began_ns: when the call began; 0 if it was not entered.
        """
        if call.outer is not None or self.exclusive.holder is not call:
            return
        self.transaction_span.leave()
        if metric is not None and began_ns:
            self.call_times.add(metric, self.environment.monotonic_ns() - began_ns)
        if call.step is not None and not call.step.has_ended:
            self.limits.cut_short()
            return
        self.limits.end_call()
        if self.is_to_be_closed:
            self._shut()

    def close(self, timeout_ms: int, finish: Callable[[], None]) -> str | None:
        """Make the last call, then shut the producer, also after an error. After an interrupt it may be repeated.

        If a call of another thread does not end in time, it is cut short, and the producer is shut when it has ended.
        In a forked child this does nothing: the rows and the transaction belong to the parent.

        Returns:
            The call that was cut short, so that ``finish`` was not called; None if there was none.
        """
        if not self.home.is_this:
            return None
        call = Call("close()")
        exclusive = self.exclusive
        try:
            began_ms = self.environment.monotonic_ms()
            if not exclusive.enter(call, timeout_ms):
                holder = exclusive.holder
                self.is_to_be_closed = True
                self.limits.cut_short()
                # The other call may have ended before it could see the request.
                self._shut_if_free()
                return None if holder is None else list(holder.names)[-1]
            if call.outer is None:
                self.limits.begin_call(call.name, timeout_ms, began_ms)
            try:
                if timeout_ms > 0:
                    finish()
            except EosLogError:
                self._shut()
                raise
            else:
                self._shut()
            finally:
                self.end(call)
        finally:
            # The statements of exclusive.leave(call).
            call.has_left = True
            if (call.step is None or call.step.has_ended or not call.step.has_begun) and exclusive.holder is call:
                exclusive.holder = call.outer
            if exclusive.waiting and exclusive.holder is None:
                exclusive.wake()
        return None

    def at_exit(self, timeout_ms: int, flush: Callable[[], None]) -> None:
        """Flush at interpreter exit. Wait at most ``timeout_ms`` for another thread's call, then as long for answers.

        Raises:
            RequestTimedOut: a call of another thread did not end in time.
        """
        call = Call("the flush at exit")
        try:
            self.enter(call, timeout_ms)
            self.limits.begin_call(call.name, timeout_ms, self.environment.monotonic_ms())
            flush()
        finally:
            self.end(call)
            self.exclusive.leave(call)

    def _shut_if_free(self) -> None:
        """Shut the producer if a ``close`` asked for it and no call is running."""
        call = Call("close()")
        try:
            if self.is_to_be_closed and self.exclusive.enter(call, 0, out_of_turn=True):
                self._shut()
        finally:
            self.exclusive.leave(call)

    def settled(self, answer: Any, arguments: object = None) -> None:
        """Note the answer of the running call, in the step that has achieved it."""
        call = self.exclusive.holder
        assert call is not None
        self._outcome = CallOutcome(call, arguments, answer)

    def untold(self, name: str, arguments: object = None) -> CallOutcome | None:
        """Return the outcome of an interrupted call that the running call repeats; None if there is none."""
        outcome, call = self._outcome, self.exclusive.holder
        if outcome is None or outcome.call.is_told or outcome.call.name != name or outcome.arguments != arguments:
            return None
        assert call is not None
        # This call tells it now. If it is interrupted, too, the next one does.
        self._outcome = outcome = outcome._replace(call=call)
        return outcome

    def explained(self, refusal: IllegalState) -> IllegalState:
        """Add to the refusal of a call that an interrupted call has ended the transaction."""
        outcome = self._outcome
        if outcome is None or outcome.call.is_told:
            return refusal
        return IllegalState(f"{without_code(refusal)}. The interrupted {outcome.call.name} was successful")

    def gave_up(self, error: EosLogError) -> None:
        """Note the error with which the running call has given up rows without a transaction."""
        call = self.exclusive.holder
        assert call is not None
        self.unreported = call, error

    def raise_unreported(self) -> None:
        """Raises: the error with which rows were given up, if no call has raised it yet."""
        if self.unreported is None:
            return
        call, error = self.unreported
        if call.is_told:
            self.unreported = None
            return
        running = self.exclusive.holder
        assert running is not None
        if call.has_left:
            # The running call raises it. If it is interrupted, too, the next one does.
            self.unreported = running, error
            running.error = error
            raise error

    def check_not_repeated(self) -> None:
        """Raises: IllegalState: a callback makes the same call again that is waiting for it."""
        call = self.exclusive.holder
        assert call is not None
        newest, *outer = call.names
        if newest in outer:
            raise IllegalState(f"{newest} is running: a callback of its rows cannot call it again")


def checked_timeout(timeout: float) -> float:
    """Return a timeout. Raises: InvalidRequest: it is not a number."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    # isnan raises an error for an int that is too large for a float.
    if not is_number or (isinstance(timeout, float) and isnan(timeout)):
        raise InvalidRequest(f"timeout is {quoted(timeout)}; it must be a number of seconds, negative for no limit")
    return timeout


def _timeout_ms(timeout: float) -> int:
    timeout = checked_timeout(timeout)
    return LONGEST_WAIT_MS if timeout < 0 else int(min(timeout * 1000, LONGEST_WAIT_MS))


class _Called(Protocol):
    """A producer."""

    _calls: ProducerCalls


Self = TypeVar("Self", bound=_Called)


def producer_call(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """Wrap a public method of the producer: check the process, and admit one call at a time.

    An argument ``timeout`` is the time limit of the call (s); negative: no limit; ``max_block_ms`` if None.

    The call may raise:
        InvalidRequest: the timeout is not a number.
        OpenedBeforeFork
        RequestTimedOut: a call of another thread did not end in time.
        ConcurrentAccess: a signal handler makes the call within another one.
    """
    name = f"{method.__name__.removeprefix('_')}()"
    metric = CALL_TIMES.get(name)
    parameters = list(signature(method).parameters)
    index = parameters.index("timeout") - 1 if "timeout" in parameters else None

    @wraps(method)
    def entered(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        calls = self._calls
        # Check before the call is entered: a thread of the parent may have been in one during the fork.
        calls.home.check(name)
        timeout: Any = kwargs.get("timeout")
        if index is not None and index < len(args):
            timeout = args[index]
        timeout_ms = calls.limits.max_block_ms if timeout is None else _timeout_ms(timeout)
        exclusive = calls.exclusive
        call = Call(name)
        began_ns = 0
        try:
            try:
                calls.enter(call, timeout_ms)
                began_ns = calls.environment.monotonic_ns()
                answer = method(self, *args, **kwargs)
            except EosLogError as error:
                # A signal handler may raise an EosLogError, too. That is not an outcome of this call.
                call.is_told = error is call.error
                raise
            finally:
                calls.end(call, metric, began_ns)
        finally:
            # The statements of exclusive.leave(call).
            call.has_left = True
            if (call.step is None or call.step.has_ended or not call.step.has_begun) and exclusive.holder is call:
                exclusive.holder = call.outer
            if exclusive.waiting and exclusive.holder is None:
                exclusive.wake()
        call.is_told = True
        return answer

    return entered
