"""Which of several things is due at a time, each at its own interval. The caller says what time it is."""

from __future__ import annotations

from collections.abc import Mapping

FIRST_RETRY_MS = 1_000
LONGEST_RETRY_MS = 60_000


class Schedule:
    """When each step is due next. All are due at once in the beginning.

    Times are ms of any clock that does not run backwards.
    """

    def __init__(self, intervals_ms: Mapping[str, int], now_ms: int) -> None:
        self._intervals_ms = dict(intervals_ms)
        self._due_ms = dict.fromkeys(intervals_ms, now_ms)
        self._retries = dict.fromkeys(intervals_ms, 0)

    def next_due(self) -> tuple[str, int]:
        """The step that is due first, and when; of several the one that was named first."""
        name = min(self._due_ms, key=lambda each: self._due_ms[each])
        return name, self._due_ms[name]

    def done(self, name: str, started_ms: int, now_ms: int) -> None:
        """A step that began at ``started_ms`` is done: it is due again an interval after it began, or at once."""
        self._retries[name] = 0
        self._due_ms[name] = max(now_ms, started_ms + self._intervals_ms[name])

    def failed(self, name: str, now_ms: int) -> None:
        """A step failed and may be repeated: soon, then ever less often, and never less often than its interval."""
        retry_ms = min(FIRST_RETRY_MS << min(self._retries[name], 16), LONGEST_RETRY_MS)
        self._retries[name] += 1
        self._due_ms[name] = now_ms + min(retry_ms, self._intervals_ms[name])
