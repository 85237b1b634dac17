"""Counts of a gateway, for its operator. The module needs no package of the gateway: ``eoslog.prometheus`` reads them.

The event loop counts, with a few additions for each request. Other threads read the counts meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eoslog.storage.object_store import RequestTimes

WAIT, UPLOAD, APPEND = "wait", "upload", "append"
"""The steps of produced batches. A batch waits, and then all batches of a record are uploaded and appended."""


class GatewayCounts:
    """The counts of a gateway since its start."""

    def __init__(self, apis: Iterable[str], now_ns: Callable[[], int]) -> None:
        """
        Args:
            apis: the types of requests.
            now_ns: the elapsed time (ns).
        """
        self.now_ns = now_ns
        self.requests: Counter[tuple[str, ...]] = Counter()
        """Requests by type and by Kafka's name of the first error in the answer; ``NONE`` is a success."""
        self.request_times = RequestTimes(apis)
        """The time from the last byte of a request to its answer. That of a fetch includes its wait for rows."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.refused = 0
        self.strangers = 0
        """Connections that ended before their client was authenticated, or before the end of their handshake of TLS."""
        self.malformed = 0
        """Requests that the gateway could not read. Each ended its connection."""
        self.rows_in = 0
        self.batches_in = 0
        self.rows_out = 0
        self.batches_out = 0
        self.appends = 0
        """Records of the log that the gateway appended for its clients' batches."""
        self.batch_times = RequestTimes([WAIT, UPLOAD, APPEND])

    def ended(self, api: str, error: str, began_ns: int) -> None:
        """Count a request that has its answer, or whose answer failed."""
        self.requests[api, error] += 1
        self.request_times.add(api, self.now_ns() - began_ns)

    def appended(self, rows: Sequence[int]) -> None:
        """Count a record of the log.

        Args:
            rows: the number of rows of each new batch in it. If there are none, all were refused or duplicates.
        """
        self.appends += bool(rows)
        self.batches_in += len(rows)
        self.rows_in += sum(rows)


@dataclass(frozen=True, kw_only=True)
class GatewayMetrics:
    """A gateway at one time."""

    counts: GatewayCounts
    connections: int
    most_connections: int
    waiting_batches: int
    """Produced batches that have no answer from the log yet."""
    memory: Mapping[str, tuple[int, int]]
    """The memory that is in use, and its limit, by use (bytes)."""
    groups: int
    """Groups that the gateway coordinates."""
    group_members: int
    rebalances: int
    """Generations that the gateway has begun."""
    aborted_transactions: int
    """Overdue transactions that this process has aborted."""
    cache_hits: int
    cache_misses: int
