"""``minOffsetsPerTrigger`` and ``maxTriggerDelay``, as in the Kafka connector: a micro-batch waits for enough rows."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_eoslog.worker import this_worker


class TriggerDelay:
    """The time since the last micro-batch of this run.

    It is not kept over a restart: the first micro-batch of a run never waits.
    """

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def holds_back(self, min_offsets: int, available: Callable[[int], int]) -> bool:
        """Return True if the stream should wait for more offsets.

        Args:
            available: counts the new offsets. It may stop at the number in its argument.
        """
        if self._last_ms is None or this_worker().environment.monotonic_ms() - self._last_ms >= self._max_delay_ms:
            return False
        return available(min_offsets) < min_offsets

    def triggered(self) -> None:
        """Note that a micro-batch begins."""
        self._last_ms = this_worker().environment.monotonic_ms()
