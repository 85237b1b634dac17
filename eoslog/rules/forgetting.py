"""What a store may forget: files that no entry names, files that entries dropped, ids that nobody used for long."""

from __future__ import annotations

from collections.abc import Iterator
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


def plan_expiry(
    state: StoreState | Draft,
    now_ms: int,
    *,
    transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    offsets_retention_ms: int = OFFSETS_RETENTION_MS,
) -> Expired | None:
    """The ids and offsets that nobody used for long at ``now_ms`` of the store's clock.

    Never an id with an open transaction. What has ``NEVER`` for its time stays. An entry holds so many ids at most as
    fit into a record; more may be left for the next.
    """
    transactional_ids = tuple(
        ExpiredTransactionalId(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
        )
        for transaction in islice(_unused_transactions(state, now_ms, transactional_id_expiration_ms), _MOST_EXPIRED)
    )
    producers = tuple(
        ExpiredProducer(producer_id=producer.producer_id, last_update_ms=producer.last_update_ms)
        for producer in islice(_unused_producers(state, now_ms, producer_id_expiration_ms), _MOST_EXPIRED)
    )
    groups = () if offsets_retention_ms == NEVER else plan_offset_expiry(state, now_ms, offsets_retention_ms)
    if not transactional_ids and not producers and not groups:
        return None
    return Expired(transactional_ids=transactional_ids, producers=producers, groups=groups)


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
