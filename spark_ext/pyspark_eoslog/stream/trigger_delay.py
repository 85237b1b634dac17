"""``minOffsetsPerTrigger`` and ``maxTriggerDelay``, as in the Kafka connector: waiting until it is worthwhile."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_eoslog.worker import this_worker


class TriggerDelay:
    """When the last micro-batch of this run began.

    Nothing of it is kept over a restart: the first micro-batch of a run never waits.
    """

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def holds_back(self, min_offsets: int, available: Callable[[int], int]) -> bool:
        """Whether to wait for more.

        Args:
            available: how many offsets there are, counted no further than it is told.
        """
        if self._last_ms is None or this_worker().environment.monotonic_ms() - self._last_ms >= self._max_delay_ms:
            return False
        return available(min_offsets) < min_offsets

    def triggered(self) -> None:
        """A micro-batch begins."""
        self._last_ms = this_worker().environment.monotonic_ms()
