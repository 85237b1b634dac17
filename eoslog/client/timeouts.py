"""Ending what dead producers left open: whoever may write and meets a transaction past its time-out ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.errors import EosLogError, RecordFull
from eoslog.rules.coordinator import abort_open_transaction
from eoslog.rules.draft import Draft
from eoslog.rules.state import StoreState
from eoslog.rules.transactions import timed_out

if TYPE_CHECKING:
    from eoslog.client.store import Store

_MOST_A_RECORD = 100


def timed_out_transactions(state: StoreState | Draft, now_ms: int) -> list[str]:
    """The transactional ids whose open transaction is past its time-out at ``now_ms`` of the store's clock."""
    return [txn.transactional_id for txn in timed_out([state.transactions[name] for name in state.ongoing], now_ms)]


def end_timed_out(store: Store) -> list[str]:
    """Abort the transactions past their time-outs, which may lose to their commits. No request if none is known.

    Returns:
        The transactional ids that were aborted; there may be more for the next call.

    Raises:
        StoreAccessDenied: this process may not write.
        RetriableError
    """
    now_ms = store.now_ms()

    def known(state: StoreState, slot: int) -> bool:
        return bool(timed_out_transactions(state, now_ms))

    if not store.read(known, refresh=False):
        return []
    return store.append(lambda draft: add_timed_out(draft, now_ms))


def add_timed_out(draft: Draft, now_ms: int) -> list[str]:
    """Abort transactions past their time-outs in the record of somebody's own work: that costs no request.

    What cannot be ended here is left out, for it must not hinder that work.
    """
    ended = []
    for name in timed_out_transactions(draft, now_ms)[:_MOST_A_RECORD]:
        child = draft.child()
        try:
            abort_open_transaction(child, name, reason="timeout", time_ms=now_ms)
        except (RecordFull, EosLogError):
            continue
        child.merge()
        ended.append(name)
    return ended
