"""Ending what dead producers left open: whoever may write and meets a transaction past its time-out ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.rules.coordinator import abort_timed_out
from eoslog.rules.state import StoreState
from eoslog.rules.transactions import timed_out

if TYPE_CHECKING:
    from eoslog.client.store import Store


def end_timed_out(store: Store) -> list[str]:
    """Abort the transactions past their time-outs, which may lose to their commits. No request if none is known.

    Returns:
        The transactional ids that were aborted.

    Raises:
        StoreAccessDenied: this process may not write.
        RetriableError
    """
    now_ms = store.now_ms()

    def known(state: StoreState, slot: int) -> bool:
        return bool(timed_out([state.transactions[name] for name in state.ongoing], now_ms))

    aborted: list[str] = []
    while store.read(known, refresh=False):
        # A record has room for so many, and for one new producer id.
        ended = store.append(lambda draft: abort_timed_out(draft, now_ms))
        if not ended:
            break
        aborted += ended
    return aborted
