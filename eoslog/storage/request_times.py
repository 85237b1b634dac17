"""The durations of the requests to an object store: a histogram for each verb."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

BOUNDS_NS = tuple(int(ms * 1_000_000) for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000))
"""The upper bounds of the buckets (ns, inclusive). One more bucket has the slower requests."""


class Histogram(NamedTuple):
    """The durations of the requests of one verb."""

    counts: tuple[int, ...]
    """The number of requests in each bucket. A request counts in one bucket."""
    total_ns: int


class RequestTimes:
    """The durations of requests by verb. Threads may share it."""

    def __init__(self, verbs: Iterable[str]) -> None:
        self._counts = {verb: [0] * (len(BOUNDS_NS) + 1) for verb in verbs}
        self._totals_ns = dict.fromkeys(self._counts, 0)

    def add(self, verb: str, duration_ns: int) -> None:
        """Count a request."""
        bucket = bisect_left(BOUNDS_NS, duration_ns)
        counts = self._counts[verb]
        # Between the read and the write of an addition no Python code runs, so no count of another thread is lost.
        # A lock could be held forever: by this thread below a signal handler, or in a forked child.
        counts[bucket] += 1
        self._totals_ns[verb] += duration_ns

    def by_verb(self) -> Mapping[str, Histogram]:
        """Return the histograms so far."""
        return {verb: Histogram(tuple(counts), self._totals_ns[verb]) for verb, counts in self._counts.items()}
