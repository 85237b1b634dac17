"""The first page: the contents of the store, its latest operations, and the transactions that hold readers back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from eoslog.admin.transaction_descriptions import HangingTransaction, holding_transactions
from eoslog.read.history import Operation
from eoslog.session.session import partition_named
from eoslog.state.store_state import StoreState
from eoslog.ui.amounts import Amount, amount_of, sum_of
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import Listing, Page, Query

_MINUTE_MS = 60_000
_BARS = 30
_BAR_MS = (60_000, 30_000, 20_000, 10_000, 5_000, 2_000, 1_000)


class StoreTotals(NamedTuple):
    """The contents of a store, as numbers."""

    topics: int
    partitions: int
    amount: Amount
    groups: int
    transactional_ids: int
    open_transactions: int
    prepared_transactions: int
    held_back: int
    """The number of partitions whose last stable offset is below the high watermark."""


class Holder(NamedTuple):
    """A transaction that holds a partition's readers back."""

    transaction: HangingTransaction
    waiting_offsets: int
    """The offsets from its first row to the high watermark."""


class CommitRate(NamedTuple):
    """The number of recent commits."""

    a_minute: float
    """Over the last five minutes, or over the time of all bars if that is shorter."""
    bars: Sequence[int]
    """The commits of each of the last periods, the oldest first."""
    bar_ms: int
    """The length of a period (ms): a minute, or less if fewer minutes are known."""

    @property
    def span_ms(self) -> int:
        """The time of all bars (ms)."""
        return self.bar_ms * len(self.bars)


def store_totals(state: StoreState) -> StoreTotals:
    """Return the contents of the store, as numbers."""
    return StoreTotals(
        topics=len(state.topics),
        partitions=len(state.partitions),
        amount=sum_of([amount_of(partition) for partition in state.partitions.values()]),
        groups=len(state.groups),
        transactional_ids=len(state.transactions),
        open_transactions=len(state.ongoing),
        prepared_transactions=sum(state.transactions[name].prepared is not None for name in state.ongoing),
        held_back=sum(partition.is_held_back for partition in state.partitions.values()),
    )


def commit_rate(operations: Sequence[Operation], *, is_whole: bool, now_ms: int) -> CommitRate:
    """Return the rate of the commits among these operations, the newest first.

    Args:
        is_whole: True if the operations begin with the store.
    """
    times = [each.timestamp for each in operations if each.timestamp is not None]
    known_ms = _BARS * _BAR_MS[0]
    if times and not is_whole:
        known_ms = max(1, min(known_ms, now_ms - times[-1]))
    bar_ms = next((each for each in _BAR_MS if each * _BARS <= known_ms), _BAR_MS[-1])
    commits = [each.timestamp for each in operations if each.outcome == "commit" and each.timestamp is not None]
    bars = Counter(max(0, now_ms - time_ms) // bar_ms for time_ms in commits)
    span_ms = min(5 * _MINUTE_MS, known_ms, bar_ms * _BARS)
    lately = sum(now_ms - time_ms <= span_ms for time_ms in commits)
    return CommitRate(lately * _MINUTE_MS / span_ms, [bars[bar] for bar in reversed(range(_BARS))], bar_ms)


def holders(state: StoreState, now_ms: int) -> list[Holder]:
    """Return the transaction that holds back each partition. The oldest come first."""
    found = [
        Holder(each, partition_named(state, partition)[1].high_watermark - each.start_offset)
        for partition, each in holding_transactions(state, now_ms).items()
    ]
    return sorted(found, key=lambda each: -each.transaction.duration_ms)


def overview(console: ConsoleStore, query: Query) -> Page:
    """Return the first page."""
    now_ms = console.now_ms()
    totals = console.total(store_totals)
    recent = console.recent()
    held = console.store.read(lambda state, slot: holders(state, now_ms), refresh=False) if totals.held_back else []
    published = console.publications()
    return Page(
        "overview.html",
        "Overview",
        {
            "totals": totals,
            "rate": commit_rate(recent.operations, is_whole=recent.is_whole, now_ms=now_ms),
            "held": Listing(held, query, name="held", size=20),
            "operations": recent.operations[:12],
            "published": published,
            "lags": sorted(published.lag_ms.items(), key=lambda item: (-item[1], item[0])),
            "verification": console.verification.status,
        },
    )
