"""A producer's calls, one at a time: whose turn it is, how long it may last, how long it took, and who closes after it.

A call takes little more time than the lock does: sends are many. So it is a class and no generator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from eoslog.client.metrics import CALL_TIMES, CallTimes
from eoslog.client.time_limits import TimeLimits
from eoslog.errors import IllegalState, RequestTimedOut
from eoslog.store.environment import Environment
from eoslog.store.process import HomeProcess


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
