"""The time limits of a producer: ``max_block_ms`` for a call, ``delivery_timeout_ms`` for rows (``ProducerConfig``).

A request without an answer is repeated until then. The time is checked between requests. A request that is running ends
by the object store's own timeouts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from eoslog.errors import DeliveryTimedOut, RequestTimedOut, RetriableError
from eoslog.storage.environment import Backoff, Environment

T = TypeVar("T")
DEFAULT_MAX_BLOCK_MS = 60_000
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
_BACKOFF = Backoff(first_ms=20, longest_ms=1_000)
LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX) * 1_000
"""The longest possible wait for a lock (ms). A longer limit, such as Kafka's ``Long.MAX_VALUE``, is cut to this."""


class TimeLimits:
    """The remaining time of a producer's running call, and of its rows that are not yet acknowledged."""

    def __init__(self, environment: Environment, max_block_ms: int, delivery_timeout_ms: int) -> None:
        self._environment = environment
        self.max_block_ms = min(max_block_ms, LONGEST_WAIT_MS)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._call, self._call_timeout_ms = "", self.max_block_ms
        self._call_ends_ms: int | None = None
        self._delivery_began_ms: int | None = None

    @contextmanager
    def call(self, name: str, timeout_ms: int) -> Iterator[None]:
        """Limit a user's call. Calls within it share its limit."""
        if self._call_ends_ms is not None:
            yield
            return
        self.begin_call(name, timeout_ms, self._environment.monotonic_ms())
        try:
            yield
        finally:
            self.end_call()

    def begin_call(self, name: str, timeout_ms: int, began_ms: int) -> None:
        """Start the limit of a user's call that began at ``began_ms`` (elapsed time)."""
        self._call, self._call_timeout_ms = name, timeout_ms
        self._call_ends_ms = began_ms + timeout_ms

    def end_call(self) -> None:
        self._call_ends_ms = None

    def cut_short(self) -> None:
        """End the time of the running call: it finishes its current request only. Another thread may call this."""
        if self._call_ends_ms is not None:
            self._call_ends_ms = self._environment.monotonic_ms()

    def remaining_ms(self) -> int:
        """Return the remaining time of the call (ms), at least 0."""
        now_ms = self._environment.monotonic_ms()
        return max(0, (self._call_ends_ms or now_ms) - now_ms)

    def remaining_for_delivery_ms(self) -> int:
        """Return the remaining time of the call and of the waiting rows, whichever is shorter (ms), at least 0."""
        now_ms = self._environment.monotonic_ms()
        ends_ms = self._call_ends_ms or now_ms
        if self._delivery_began_ms is not None:
            ends_ms = min(ends_ms, self._delivery_began_ms + self._delivery_timeout_ms)
        return max(0, ends_ms - now_ms)

    def repeat(self, step: Callable[[], T]) -> T:
        """Run a step at least once, and repeat it after retriable errors until it succeeds or the time is over.

        Raises:
            DeliveryTimedOut: rows have waited for too long, over this call and earlier ones.
            RequestTimedOut: the time is over. ``CommitStateUnknown``, a subclass, if that was the last error.
            Any other error of ``step``.
        """
        attempt = 0
        while True:
            try:
                return step()
            except RetriableError as error:
                self._check_delivery(error)
                if self.remaining_ms() == 0:
                    if isinstance(error, RequestTimedOut):
                        raise
                    raise self._timed_out(error) from error
            attempt += 1
            pause_ms = _BACKOFF.pause_ms(attempt, (1 + self._environment.jitter()) / 2)
            self._environment.sleep_ms(min(pause_ms, self.remaining_ms()))

    def begin_delivery(self) -> None:
        """Start the delivery timeout, unless an earlier call has started it."""
        if self._delivery_began_ms is None:
            self._delivery_began_ms = self._environment.monotonic_ms()

    def end_delivery(self) -> None:
        """End the delivery timeout: the rows were acknowledged, or given up."""
        self._delivery_began_ms = None

    def _check_delivery(self, error: RetriableError) -> None:
        if self._delivery_began_ms is None:
            return
        waited_ms = self._environment.monotonic_ms() - self._delivery_began_ms
        if waited_ms >= self._delivery_timeout_ms:
            raise DeliveryTimedOut(
                f"rows were not acknowledged within {self._delivery_timeout_ms} ms (delivery_timeout_ms) and are given "
                f"up; some may have been written. The last error: {error}"
            ) from error

    def _timed_out(self, error: RetriableError) -> RequestTimedOut:
        return RequestTimedOut(
            f"{self._call} was not done within {self._call_timeout_ms} ms. Repeat this call and no other. The last "
            f"error: {error}"
        )
