"""Aborting transactions that are open for longer than their timeouts, for processes that append nothing themselves.

Each append also aborts such transactions, in its own record. A reader and the coordinator append nothing, so they ask
here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from eoslog.errors import EosLogError, RetriableError, quoted, shortened
from eoslog.rules.state import StoreState, Transaction
from eoslog.rules.transaction_requests import AbortOverdueTransactions
from eoslog.rules.transactions import overdue_transactions

if TYPE_CHECKING:
    from eoslog.client.store import Store

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_READER_PATIENCE_MS = 5_000
"""A reader does not wait longer for an abort."""
_PAUSE_AFTER_REFUSAL_MS = 300_000
"""A process that may not write does not try again with every read."""
_MOST_NAMED = 5
_MOST_PARTITIONS_NAMED = 10


class OverdueTransactions:
    """The transactions of one store that are open for longer than their timeouts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refused_until_ms = 0

    def abort(self, *, timeout_ms: int | None = None) -> list[str]:
        """Abort them. A transaction whose commit lands first stays committed.

        If the newest known state has none of them, no request is sent.

        Args:
            timeout_ms: start no further attempt after this time; None: as long as the log's settings say.

        Returns:
            The transactional ids that were aborted.

        Raises:
            StoreAccessDenied: this process may not write.
            RetriableError
        """
        now_ms = self._store.now_ms()
        aborted: list[str] = []
        while self._store.read(lambda state, slot: bool(overdue_transactions(state, now_ms)), refresh=False):
            # A record holds a limited number of aborts, and one new producer id.
            ended = self._store.append(AbortOverdueTransactions(now_ms), timeout_ms=timeout_ms)
            if not ended:
                break
            aborted += ended
        return aborted

    def abort_for_reader(self) -> bool:
        """Abort them for a reader whose rows they may hide, and raise nothing.

        A process that may not write logs a warning, at most once in five minutes, and leaves the aborts to others.

        Returns:
            True if any was aborted: then more rows are visible.
        """
        elapsed_ms = self._store.environment.monotonic_ms()
        if elapsed_ms < self._refused_until_ms:
            return False
        try:
            return bool(self.abort(timeout_ms=_READER_PATIENCE_MS))
        except RetriableError as error:
            # No pause: the next read tries again.
            _logger.info("%s: an overdue transaction was not aborted: %s", self._store.url, error)
        except EosLogError as error:
            # Whatever the reason, a read does not fail because of an abort: it shows what is visible.
            self._refused_until_ms = elapsed_ms + _PAUSE_AFTER_REFUSAL_MS
            self._warn(error)
        return False

    def read_unblocked(self, function: Callable[[StoreState, int], T], is_held_back: Callable[[T], bool]) -> T:
        """Call ``function`` with the newest state and slot, as ``Store.read`` does.

        If ``is_held_back`` says of its answer that open transactions hide rows, the overdue ones are aborted if that is
        possible, and ``function`` is called again.
        """
        found = self._store.read(function)
        if is_held_back(found) and self.abort_for_reader():
            return self._store.read(function, refresh=False)
        return found

    def _warn(self, error: EosLogError) -> None:
        now_ms = self._store.now_ms()
        described = self._store.read(
            lambda state, slot: [_described(state, each, now_ms) for each in overdue_transactions(state, now_ms)],
            refresh=False,
        )
        if not described:
            return
        if len(described) > _MOST_NAMED:
            described = [*described[:_MOST_NAMED], f"{len(described) - _MOST_NAMED} more"]
        _logger.warning(
            "%s: transactions are past their timeouts and may hide rows: %s. This process could not abort them (%s). "
            "Any process that appends to the store aborts them, and so does eoslog coordinator.",
            self._store.url,
            "; ".join(described),
            error,
        )


def _described(state: StoreState, transaction: Transaction, now_ms: int) -> str:
    places = [
        f"{state.topics[place.topic_id].topic}-{place.partition}"
        for place in sorted(transaction.partitions)
        if place.topic_id in state.topics
    ]
    if len(places) > _MOST_PARTITIONS_NAMED:
        places = [*places[:_MOST_PARTITIONS_NAMED], "..."]
    where = f" in {', '.join(places)}" if places else ""
    age_s = (now_ms - transaction.start_ms) // 1000
    return f"transactional id {quoted(transaction.transactional_id)}{shortened(where)}, open for {age_s} s"
