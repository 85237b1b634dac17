"""How long a producer tries: ``max_block_ms`` for a call, ``delivery_timeout_ms`` for rows (``ProducerConfig``).

What the object store does not answer is tried again until then. Time is looked at between requests: one that is under
way ends by the object store's own time-outs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from eoslog.errors import DeliveryTimedOut, InvalidOption, RequestTimedOut, RetriableError, quoted
from eoslog.storage.environment import Environment

T = TypeVar("T")
DEFAULT_MAX_BLOCK_MS = 60_000
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
_FIRST_BACKOFF_MS = 20
_LONGEST_BACKOFF_MS = 1_000
LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX) * 1_000
"""No lock can be waited for any longer, so who gives more, as Kafka's ``Long.MAX_VALUE``, waits for so long."""


class TimeLimits:
    """The time that a producer's running call has left, and since when its rows wait to be acknowledged."""

    def __init__(self, environment: Environment, max_block_ms: int, delivery_timeout_ms: int) -> None:
        for name, value in (("max_block_ms", max_block_ms), ("delivery_timeout_ms", delivery_timeout_ms)):
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise InvalidOption(f"{name} is {quoted(value)}; it is a number of ms, 1 or more")
        self._environment = environment
        self.max_block_ms = min(max_block_ms, LONGEST_WAIT_MS)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._call, self._call_timeout_ms = "", self.max_block_ms
        self._call_ends_ms: int | None = None
        self._delivery_began_ms: int | None = None

    @contextmanager
    def call(self, name: str, timeout_ms: int) -> Iterator[None]:
        """A call of the user's. What it calls in turn has no longer than it."""
        if self._call_ends_ms is not None:
            yield
            return
        self.begin_call(name, timeout_ms, self._environment.monotonic_ms())
        try:
            yield
        finally:
            self.end_call()

    def begin_call(self, name: str, timeout_ms: int, began_ms: int) -> None:
        """A call of the user's began at ``began_ms`` (elapsed time)."""
        self._call, self._call_timeout_ms = name, timeout_ms
        self._call_ends_ms = began_ms + timeout_ms

    def end_call(self) -> None:
        self._call_ends_ms = None

    @property
    def in_call(self) -> bool:
        return self._call_ends_ms is not None

    def cut_short(self) -> None:
        """Leave the running call no more time than for what it does just now. For another thread to ask."""
        if self._call_ends_ms is not None:
            self._call_ends_ms = self._environment.monotonic_ms()

    def remaining_ms(self) -> int:
        """What the call has left, 0 at least."""
        now_ms = self._environment.monotonic_ms()
        return max(0, (self._call_ends_ms or now_ms) - now_ms)

    def remaining_for_delivery_ms(self) -> int:
        """What the call, and the rows that wait, have left, 0 at least."""
        began_ms = self._delivery_began_ms
        if began_ms is None:
            return self.remaining_ms()
        rows_ms = began_ms + self._delivery_timeout_ms - self._environment.monotonic_ms()
        return max(0, min(self.remaining_ms(), rows_ms))

    def repeat(self, step: Callable[[], T]) -> T:
        """Take a step that may be repeated, once at least, until it succeeds or the call's time is up.

        Raises:
            DeliveryTimedOut: rows have waited for too long, over this call and those before it.
            RequestTimedOut: the time is up. ``CommitStateUnknown``, a kind of it, if the step's last error was that.
            Whatever else ``step`` raises.
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
            backoff_ms = min(_FIRST_BACKOFF_MS * 2 ** min(attempt, 10), _LONGEST_BACKOFF_MS)
            self._environment.sleep_ms(min(backoff_ms * (1 + self._environment.jitter()) / 2, self.remaining_ms()))
            attempt += 1

    def begin_delivery(self) -> None:
        """From now on rows wait to be acknowledged, unless they do so from an earlier call on."""
        if self._delivery_began_ms is None:
            self._delivery_began_ms = self._environment.monotonic_ms()

    def end_delivery(self) -> None:
        """The rows were acknowledged, or given up."""
        self._delivery_began_ms = None

    def _check_delivery(self, error: RetriableError) -> None:
        if self._delivery_began_ms is None:
            return
        waited_ms = self._environment.monotonic_ms() - self._delivery_began_ms
        if waited_ms >= self._delivery_timeout_ms:
            raise DeliveryTimedOut(
                f"rows were not acknowledged within {self._delivery_timeout_ms} ms (delivery_timeout_ms) and are given "
                f"up; some may have been written all the same. The last error: {error}"
            ) from error

    def _timed_out(self, error: RetriableError) -> RequestTimedOut:
        return RequestTimedOut(
            f"{self._call} was not done within {self._call_timeout_ms} ms; repeat this call and no other. The last "
            f"error: {error}"
        )
