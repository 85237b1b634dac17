"""What a store may forget: files that no entry names, files that entries dropped, ids that nobody used for long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from eoslog.errors import InvalidEntry
from eoslog.rules.draft import Draft
from eoslog.rules.forgetting_entries import (
    DoomedDeleted,
    Expired,
    ExpiredProducer,
    ExpiredTransactionalId,
    HorizonMoved,
)
from eoslog.rules.group_forgetting import expire_offsets, plan_offset_expiry
from eoslog.rules.producer_ids import forget_producer_ids
from eoslog.rules.state import IdempotentProducer, StoreState, Transaction, TransactionState

STAGED_MAX_AGE_MS = 7 * 24 * 3600 * 1000
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 3600 * 1000
PRODUCER_ID_EXPIRATION_MS = 24 * 3600 * 1000
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
NEVER = -1
_MOST_EXPIRED = 10_000
_EXPIRABLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def move_horizon(draft: Draft, entry: HorizonMoved) -> None:
    """From here on an entry that names files uploaded at or before the horizon is refused.

    Raises:
        InvalidEntry: the horizon would move back.
    """
    if entry.horizon_ms <= draft.horizon_ms:
        raise InvalidEntry(f"the horizon is at {draft.horizon_ms} ms already")
    draft.horizon_ms = entry.horizon_ms


def forget_doomed(draft: Draft, entry: DoomedDeleted) -> None:
    remaining = tuple(doomed for doomed in draft.doomed if doomed.slot > entry.slot)
    if remaining == draft.doomed:
        raise InvalidEntry(f"no doomed files up to slot {entry.slot}")
    draft.doomed = remaining


@dataclass(frozen=True)
class ExpireUnused:
    """Forget ids and offsets that nobody used for long. The answer is the entry; None if there are none.

    An id with an open transaction stays, and so do those whose time is ``NEVER``. A record holds a limited number of
    ids; more may be left for the next.
    """

    now_ms: int
    """By the store's clock."""
    transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    offsets_retention_ms: int = OFFSETS_RETENTION_MS

    def apply(self, draft: Draft) -> Expired | None:
        transactions = _unused_transactions(draft, self.now_ms, self.transactional_id_expiration_ms)
        producers = _unused_producers(draft, self.now_ms, self.producer_id_expiration_ms)
        expired = Expired(
            transactional_ids=tuple(
                ExpiredTransactionalId(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                )
                for transaction in islice(transactions, _MOST_EXPIRED)
            ),
            producers=tuple(
                ExpiredProducer(producer_id=producer.producer_id, last_update_ms=producer.last_update_ms)
                for producer in islice(producers, _MOST_EXPIRED)
            ),
            groups=(
                ()
                if self.offsets_retention_ms == NEVER
                else plan_offset_expiry(draft, self.now_ms, self.offsets_retention_ms)
            ),
        )
        if not expired.transactional_ids and not expired.producers and not expired.groups:
            return None
        return draft.append(expired)


def _unused_transactions(state: StoreState | Draft, now_ms: int, expiration_ms: int) -> Iterator[Transaction]:
    if expiration_ms != NEVER:
        for transaction in state.transactions.values():
            if transaction.state in _EXPIRABLE and transaction.last_update_ms + expiration_ms <= now_ms:
                yield transaction


def _unused_producers(state: StoreState | Draft, now_ms: int, expiration_ms: int) -> Iterator[IdempotentProducer]:
    if expiration_ms != NEVER:
        for producer in state.producers.values():
            if producer.last_update_ms + expiration_ms <= now_ms:
                yield producer


def expire(draft: Draft, entry: Expired) -> None:
    """Forget ids, what partitions know of their producers, and offsets. Application tokens stay for ever.

    Raises:
        InvalidEntry: an id or an offset moved since the entry was planned.
    """
    forgotten: set[int] = set()
    for expired in entry.transactional_ids:
        transaction = draft.transactions.get(expired.transactional_id)
        if (
            transaction is None
            or transaction.state not in _EXPIRABLE
            or (transaction.producer_id, transaction.producer_epoch) != (expired.producer_id, expired.producer_epoch)
        ):
            raise InvalidEntry(f"transactional id {expired.transactional_id!r} is in use and does not expire")
        del draft.transactions[expired.transactional_id]
        forgotten.add(transaction.producer_id)
    for producer in entry.producers:
        known = draft.producers.get(producer.producer_id)
        if known is None or known.last_update_ms != producer.last_update_ms:
            raise InvalidEntry(f"producer id {producer.producer_id} is in use and does not expire")
        del draft.producers[producer.producer_id]
        forgotten.add(producer.producer_id)
    forget_producer_ids(draft, forgotten)
    for group in entry.groups:
        expire_offsets(draft, group)
