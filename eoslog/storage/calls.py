"""Calls of users to objects that admit one call at a time.

An interrupt may end a call at almost any instruction. An interrupt is the exception of a signal handler, or one that a
program throws into a thread. CPython raises it after a call returns, when a function begins, and when a loop jumps
back. It switches threads at the same places. Between all other instructions there is neither an interrupt nor another
thread.

Two rules follow for the code that enters and leaves a call:

- The change that takes effect is one assignment.
- The ``finally`` clause that frees the object makes no call before the object is free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeVar

from eoslog.errors import ConcurrentAccess, InvalidRequest
from eoslog.storage.environment import Environment
from eoslog.storage.latch import Latch
from eoslog.storage.process import HomeProcess, cannot_be_pickled

T = TypeVar("T")
_RECHECK_MS = 50
"""A waiting call checks again after this time (ms): an interrupt may have come before it was woken."""


class Call:
    """One call of a user."""

    __slots__ = ("admits_nested", "error", "has_left", "is_told", "name", "outer", "step", "thread")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = threading.get_ident()
        self.outer: Call | None = None
        """The call whose callback makes this one; None for an outermost call."""
        self.admits_nested = False
        """True while a callback of the application runs: only the callback may make further calls in this thread."""
        self.step: _StepOfCall | None = None
        """The step that runs in a thread of the library."""
        self.error: BaseException | None = None
        """The error with which the newest step has ended."""
        self.has_left = False
        """True after the call has returned or raised."""
        self.is_told = False
        """True if the caller has the outcome: the call has returned, or raised the error of its step."""

    @property
    def names(self) -> Iterator[str]:
        """The names of this call and of the calls around it, the innermost first."""
        call: Call | None = self
        while call is not None:
            yield call.name
            call = call.outer


class _StepOfCall:
    __slots__ = ("has_begun", "has_ended")

    def __init__(self) -> None:
        self.has_begun = False
        self.has_ended = False


class Exclusive:
    """Admits one call at a time to an object (Kafka's ``KafkaConsumer.acquire``).

    The code that enters a call must leave it in a ``finally`` clause, by the statements of ``leave``. If the caller is
    interrupted while a step of its call runs, the object stays occupied until the step has ended.
    """

    def __init__(
        self, what: str, advice: str, environment: Environment, *, after_abandoned: Callable[[], None] | None = None
    ) -> None:
        """
        Args:
            what: the object, as an error names it.
            advice: what the caller of a refused call should do, as a sentence.
            after_abandoned: called when a step has ended whose caller was interrupted, and the object is free.
        """
        self.holder: Call | None = None
        """The innermost call that occupies the object; None if the object is free."""
        self.next_call: Call | None = None
        """The call that enters before all others, because another one has overtaken it. None: each call may enter.

        A call that finds the object free enters without waiting, because to hand the object to a waiting thread takes
        longer than most calls. Without a turn of its own, a waiting thread would be overtaken again and again.
        """
        self.waiting: deque[Latch] = deque()
        """A latch for each thread that waits until the object is free, in the order of their turns."""
        self._what = what
        self._advice = advice
        self._environment = environment
        self._after_abandoned = after_abandoned

    def enter(
        self,
        call: Call,
        patience_ms: float | None = None,
        *,
        is_given_up: Callable[[], bool] | None = None,
        out_of_turn: bool = False,
    ) -> bool:
        """Occupy the object with a call.

        Args:
            patience_ms: how long to wait for a call of another thread, or for the step of an interrupted call (ms).
                None: wait only for the step of an interrupted call, until it ends.
            is_given_up: asked about every 50 ms while the call waits; True ends the wait.
            out_of_turn: enter a free object before the call whose turn it is.

        Returns:
            False if that call did not end in time, or the wait was given up.

        Raises:
            ConcurrentAccess: a call of this thread is running, and it admits no nested call. To wait for it would be to
                wait for ever.
        """
        place: Latch | None = None
        left_ms = _RECHECK_MS if patience_ms is None else patience_ms
        ends_ms = 0.0
        if out_of_turn:
            self.next_call = None
        try:
            while not self._enter_now(call):
                if patience_ms is None:
                    holder = self.holder
                    if holder is not None and not holder.has_left:
                        return False
                    left_ms = _RECHECK_MS
                elif left_ms <= 0 or (is_given_up is not None and is_given_up()):
                    return False
                if place is None:
                    place = Latch()
                    self.waiting.append(place)
                    ends_ms = self._environment.monotonic_ms() + left_ms
                elif place.is_set():
                    # This thread was woken, but another one entered first.
                    place = Latch()
                    if self.next_call is None or self.next_call.has_left:
                        self.next_call = call
                    if self.next_call is call:
                        self.waiting.appendleft(place)
                    else:
                        self.waiting.append(place)
                if not (self.holder is None and self._has_turn(call)):
                    turn = self.next_call
                    wait_ms = min(left_ms, _RECHECK_MS)
                    if not self._environment.wait_for(place, wait_ms / 1000):
                        # The clock of a simulated process stands still while a thread waits.
                        left_ms -= wait_ms
                        if wait_ms == _RECHECK_MS and self.holder is None and self.next_call is turn:
                            # The thread whose turn it is does not run. Perhaps it runs a signal handler.
                            self.next_call = None
                    left_ms = min(left_ms, ends_ms - self._environment.monotonic_ms())
            return True
        finally:
            if self.next_call is call:
                self.next_call = None
            if place is not None:
                self._give_up(place)

    def _has_turn(self, call: Call) -> bool:
        """Return True unless it is the turn of a call that waits in another thread.

        In the thread whose turn it is, a signal handler may make a call. The waiting call cannot continue before the
        handler's call has ended.
        """
        turn = self.next_call
        return turn is None or turn is call or turn.has_left or turn.thread == call.thread

    def _give_up(self, place: Latch) -> None:
        """Take the latch of a thread that no longer waits out of the queue."""
        try:
            self.waiting.remove(place)
        except ValueError:
            # This thread was woken. If it does not enter, the next one takes the free object. While the object is
            # occupied nobody is woken: many threads would wake each other all the time.
            if self.holder is None:
                self.wake()

    def _enter_now(self, call: Call) -> bool:
        has_turn = self._has_turn(call)
        # The check and the assignments are one step: see the module's first lines.
        if self.holder is None:
            if not has_turn:
                return False
            self.holder = call
            turn = self.next_call
            if turn is call or (turn is not None and turn.has_left):
                self.next_call = None
            return True
        outer = self.holder
        if outer.thread != call.thread or outer.has_left:
            return False
        self.check_may_nest(call)
        call.outer = outer
        self.holder = call
        return True

    def check_may_nest(self, call: Call) -> None:
        """Raises: ConcurrentAccess: a call of this thread is running, and it admits no nested call."""
        outer = self.holder
        if outer is not None and outer.thread == call.thread and not outer.has_left and not outer.admits_nested:
            raise ConcurrentAccess(
                f"{call.name} is not allowed: {outer.name} of this {self._what} is running in this thread, and a "
                f"signal handler or a callback interrupts it. Let a handler raise an exception or note the signal, and "
                f"make the call after {outer.name}"
            )

    def leave(self, call: Call) -> None:
        """Leave a call. Its caller no longer waits for a step.

        A ``finally`` clause has these statements instead of this call, because an interrupt may come before the first
        statement of a function.
        """
        call.has_left = True
        # If the step has begun, its thread frees the object. A step that begins later sees ``has_left`` and does
        # nothing.
        if (call.step is None or call.step.has_ended or not call.step.has_begun) and self.holder is call:
            self.holder = call.outer
        if self.waiting and self.holder is None:
            self.wake()

    def refusal(self, name: str) -> ConcurrentAccess:
        """Return the error for a call that finds the object occupied by another thread's call."""
        holder = self.holder
        outermost = holder
        while outermost is not None and outermost.outer is not None:
            outermost = outermost.outer
        call, thread = ("a call", "another one") if outermost is None else (outermost.name, _name_of(outermost.thread))
        return ConcurrentAccess(
            f"{name} is not allowed: {call} in thread {thread} is under way on this {self._what}. {self._advice}"
        )

    def run(self, step: Callable[[], T]) -> T:
        """Run a step of the innermost call to its end. The step must call no code of the application.

        If the caller is interrupted, the step still runs to its end, and the object stays occupied until then.
        """
        call = self._innermost()
        interrupted = call.step
        if interrupted is not None:
            # An interrupt ended the caller's wait for a step, and the caller cleans up in the same call. Two steps must
            # not change the object at the same time.
            while interrupted.has_begun and not interrupted.has_ended:
                self._wait(lambda: interrupted.has_ended)
        running = call.step = _StepOfCall()

        def to_its_end() -> T | None:
            running.has_begun = True
            try:
                if call.has_left or call.step is not running:
                    return None
                return step()
            except BaseException as error:
                call.error = error
                raise
            finally:
                running.has_ended = True
                if call.has_left:
                    self._free(call)

        answer: Any = self._environment.uninterrupted(to_its_end)
        call.step = None
        return answer  # type: ignore[no-any-return]

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a callback of the application. It may make further calls."""
        call = self._innermost()
        try:
            call.admits_nested = True
            function(*arguments)
        finally:
            call.admits_nested = False

    def _innermost(self) -> Call:
        """Return the call that this thread is in.

        A callback may catch the exception that interrupted a call of the callback. Then wait for the step of that call.
        """
        holder = call = self.holder
        while call is not None and call.has_left:
            call = call.outer
        assert call is not None, "the object is not occupied"
        while holder is not call:
            self._wait(lambda: self.holder is call)
            holder = self.holder
        return call

    def _free(self, call: Call) -> None:
        """Free the object after the step of a call that has left."""
        if self.holder is call:
            outer = call.outer
            while outer is not None and outer.has_left:
                outer = outer.outer
            self.holder = outer
        self.wake()
        if self._after_abandoned is not None:
            self._after_abandoned()

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until this thread is woken, or for a short time at most."""
        woken = Latch()
        self.waiting.append(woken)
        if not is_over():
            self._environment.wait_for(woken, _RECHECK_MS / 1000)
        self._give_up(woken)

    def wake(self) -> None:
        """Wake the thread that has waited longest."""
        try:
            self.waiting.popleft().set()
        except IndexError:
            return


def _name_of(thread: int) -> str:
    return next((each.name for each in threading.enumerate() if each.ident == thread), "another one")


class StepLock:
    """A lock for a step that sends requests: ``with lock.checked("the step"):``.

    Threads wait for it. A signal handler that makes a call while its own thread holds the lock is refused.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def checked(self, step: str) -> AbstractContextManager[object]:
        """Return the lock. A ``with`` statement must enter it directly.

        An interrupt comes neither between Python's own lock and its block, nor before the lock is released. It may come
        within the methods of a context manager that is written in Python, and leave the lock locked.

        Args:
            step: the step, as an error names it.

        Raises:
            ConcurrentAccess: this thread holds the lock already, so to wait for it would be to wait for ever.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise ConcurrentAccess(
                f"{step} is not allowed: it is running in this thread, and a signal handler interrupts it. Let the "
                "handler note the signal, and make the call afterwards"
            )
        return self._lock


class ExclusiveIterator(Iterator[T]):
    """Returns another iterator's items to one thread at a time. After an error, each call raises that error again.

    A plain generator has two problems. Two threads that advance it get Python's ``ValueError``. After an error it looks
    finished, so a caller that retries would mistake the first rows for all rows.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._home = HomeProcess("iterator")
        self._error: Exception | None = None
        self._newest: Call | None = None
        """The newest call. If it was interrupted, its item is lost."""
        self._exclusive = Exclusive("iterator", "Make an iterator for each thread.", Environment())

    def __next__(self) -> T:
        """
        Raises:
            ConcurrentAccess: another call is advancing the iterator.
            InvalidRequest: an earlier call was interrupted.
            OpenedBeforeFork
        """
        # In a forked child the generator may be in the middle of a step of the parent.
        self._home.check("next()")
        call = Call("next()")
        exclusive = self._exclusive
        try:
            if not exclusive.enter(call):
                raise exclusive.refusal(call.name)
            return self._next(call)
        finally:
            # The statements of exclusive.leave(call), for a call without steps. No thread waits for an iterator.
            call.has_left = True
            if exclusive.holder is call:
                exclusive.holder = None

    def _next(self, call: Call) -> T:
        if self._error is not None:
            raise self._error
        if self._newest is not None and not self._newest.is_told:
            raise InvalidRequest("next() was interrupted before, so items may be missing. Begin the read again")
        self._newest = call
        try:
            item = next(self._items)
        except StopIteration:
            call.is_told = True
            raise
        except Exception as error:
            self._error = error
            raise
        call.is_told = True
        return item

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and make an iterator there")

    def close(self) -> None:
        """End the iterator and release its items. It returns no more items."""
        call = Call("close()")
        exclusive = self._exclusive
        try:
            if not exclusive.enter(call):
                raise exclusive.refusal(call.name)
            self._items = iter(())
        finally:
            call.has_left = True
            if exclusive.holder is call:
                exclusive.holder = None
