"""The flush in the background, ``linger_ms`` after the first row (Kafka's sender thread).

The thread runs only while rows wait. So an idle producer has no thread, and a forked child does not need one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from eoslog.session.time_limits import LONGEST_WAIT_MS
from eoslog.storage.calls import Call, Exclusive
from eoslog.storage.environment import Environment
from eoslog.storage.latch import Latch

_logger = logging.getLogger(__name__)
BACKGROUND_FLUSH = "the background flush"


class BackgroundSender:
    """Flushes the rows of one producer in the background."""

    def __init__(
        self, environment: Environment, linger_ms: int, exclusive: Exclusive, flush: Callable[[Call], bool]
    ) -> None:
        """
        Args:
            exclusive: admits the calls of the producer.
            flush: writes the rows that wait, and returns True if rows still wait. It is called within a call.
        """
        self._environment = environment
        self._linger_ms = min(linger_ms, LONGEST_WAIT_MS)
        self._exclusive = exclusive
        self._flush = flush
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = False
        self._is_running = False
        """It changes only within a call. Otherwise a new row could be left without a thread."""
        self._thread: int | None = None
        self._ended = Latch()
        """The end of the newest thread. Each thread has its own: the previous one may not have set its latch yet."""

    @property
    def needs_start(self) -> bool:
        """True if ``start`` must be called when a row is added."""
        return not (self._is_running or self._is_stopped)

    def start(self) -> None:
        """Start the thread. The caller has added a row in its call, and this is a step of it."""
        self._ended = ended = Latch()
        self._is_running = True
        try:
            self._environment.background(lambda: self._run(ended))
        except RuntimeError as error:
            # If the interpreter exits, the flush at exit writes the row. If there are too many threads, the next row
            # tries again.
            _logger.info("no thread starts for the background flush: %s", error)
            self._is_running = False

    def stop(self) -> None:
        """Make the thread end without another flush. No new thread starts."""
        self._is_stopped = True
        self._wakeups.put(None)

    def join(self, timeout_ms: int) -> None:
        """Wait for the end of a stopped thread. In a callback of that thread, return at once."""
        if self._is_running and self._thread != threading.get_ident():
            self._environment.wait_for(self._ended, timeout_ms / 1000)

    def _run(self, ended: Latch) -> None:
        self._thread = threading.get_ident()
        try:
            while self._flush_once():
                pass
        finally:
            ended.set()

    def _flush_once(self) -> bool:
        """Wait for ``linger_ms``, then flush. Return True if rows still wait."""
        goes_on = False
        self._environment.wait_ms(self._linger_ms, self._wakeups)
        call = Call(BACKGROUND_FLUSH)
        try:
            # Do not wait for a thread that closes the producer: it may wait for this one.
            if not self._exclusive.enter(call, LONGEST_WAIT_MS, is_given_up=lambda: self._is_stopped):
                self._is_running = False
                return False
            try:
                if not self._is_stopped:
                    self._environment.reached("client.producer.lingered")
                    goes_on = self._flush(call)
                    self._environment.reached("client.producer.flushed_in_background")
            finally:
                self._is_running = goes_on
        finally:
            self._exclusive.leave(call)
        return goes_on
