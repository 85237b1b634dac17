"""What a coordinator does for its callers, as entries proposed to a draft. It is code, not a place: it has no memory.

Each function validates against the draft's state, appends what follows, and returns the answer, which holds at the slot
of the draft and at no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from eoslog.errors import EosLogError, InvalidTxnState, RecordFull, Replayed, TransactionalIdNotFound, quoted
from eoslog.rules.batches import plan_batch
from eoslog.rules.draft import Draft
from eoslog.rules.group_entries import GroupOffsets
from eoslog.rules.prepared import PrepareRepeated
from eoslog.rules.producer_ids import ProducerIdentity, check_expected, check_timeout, plan_init
from eoslog.rules.state import Transaction, TransactionState
from eoslog.rules.tokens import check_token
from eoslog.rules.transaction_entries import (
    ApplicationToken,
    BatchAppended,
    CommitSummary,
    PreparedBatch,
    ProducerInitialized,
    StagedBatch,
    TransactionEnded,
    TransactionPrepared,
)
from eoslog.rules.transactions import EndRepeated, overdue_transactions, plan_end

_TO_BE_PLANNED = 0
_MOST_ABORTED_A_RECORD = 100
_MOST_PARTITIONS_ABORTED_A_RECORD = 50_000
"""Of all transactions that a record aborts, unless it aborts only one. The control row of each takes some 100 bytes."""
_MOST_STATISTICS_BYTES = 16 << 20
"""Of an entry: a record has room for them, escaped, beside as many files as may be prepared."""


def initialise(
    draft: Draft,
    transactional_id: str | None,
    *,
    timeout_ms: int,
    time_ms: int,
    expected: ProducerIdentity | None = None,
    kind: str = "producer",
    owner: str | None = None,
    keep_prepared: bool = False,
) -> ProducerIdentity:
    """Give out an identity: fence and abort what is open under the id, then move its epoch on.

    ``expected`` is who the caller was (KIP-360); a repeated call is answered without a new entry. With
    ``keep_prepared`` a prepared transaction is not aborted: the new holder may complete it, and nothing else before.
    """
    check_timeout(timeout_ms)
    if transactional_id is not None:
        transaction = draft.transactions.get(transactional_id)
        earlier = check_expected(transaction, expected, keep_prepared=keep_prepared)
        if earlier is not None:
            return earlier
        keeps = keep_prepared and transaction is not None and transaction.prepared is not None
        if transaction is not None and transaction.state is TransactionState.ONGOING and not keeps:
            _abort(draft, transaction, "fence", time_ms)
            expected = None
    entry = plan_init(
        draft,
        ProducerInitialized.model_validate(
            {
                "transactional_id": transactional_id,
                "kind": kind,
                "owner": owner,
                "expected_producer_id": expected.producer_id if expected else None,
                "expected_producer_epoch": expected.producer_epoch if expected else None,
                "timeout_ms": timeout_ms,
                "keep_prepared": keep_prepared,
                "producer_id": _TO_BE_PLANNED,
                "producer_epoch": _TO_BE_PLANNED,
                "time_ms": time_ms,
            }
        ),
    )
    draft.append(entry)
    return ProducerIdentity(entry.producer_id, entry.producer_epoch)


def append_batch(draft: Draft, batch: BatchAppended) -> int:
    """Append an eager batch and return its base offset.

    Raises:
        DuplicateBatch: it was appended before.
    """
    entry = plan_batch(draft, batch)
    draft.append(entry)
    return entry.base_offset


def prepare_transaction(draft: Draft, wanted: TransactionPrepared) -> ProducerIdentity:
    """Prepare a transaction and return the identity that names it; a prepare that was done before is answered again."""
    with suppress(PrepareRepeated):
        draft.append(wanted)
    return ProducerIdentity(wanted.producer_id, wanted.producer_epoch)


def prepare_request(
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    time_ms: int,
    timeout_ms: int | None,
    batches: Sequence[StagedBatch] = (),
    upload_ms: int | None = None,
    offsets: Sequence[GroupOffsets] = (),
    summary: CommitSummary | None = None,
) -> TransactionPrepared:
    """A prepare as its caller wants it.

    Args:
        timeout_ms: how long the transaction may stay prepared; None for ever.
    """
    return TransactionPrepared(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        batches=tuple(
            PreparedBatch(**batch.model_dump(include=set(PreparedBatch.model_fields)))
            for batch in _leaving_room(batches)
        ),
        upload_ms=upload_ms if batches else None,
        offsets=tuple(offsets),
        timeout_ms=timeout_ms,
        summary=summary,
        time_ms=time_ms,
    )


def end_transaction(draft: Draft, wanted: TransactionEnded) -> ProducerIdentity:
    """End a transaction and return the producer's next identity; an end that was done before is answered again.

    Raises:
        Replayed: the application token was committed before.
    """
    try:
        return append_end(draft, wanted)
    except EndRepeated as repeated:
        return repeated.identity


def append_end(draft: Draft, wanted: TransactionEnded) -> ProducerIdentity:
    """End a transaction and return the producer's next identity.

    Raises:
        EndRepeated: it was ended so before.
        Replayed: the application token was committed before.
    """
    held = draft.transactions.get(wanted.transactional_id)
    if held is not None and held.prepared is not None and wanted.verdict == "commit":
        wanted = wanted.model_copy(update={"summary": held.prepared.summary})
    entry = plan_end(draft, wanted)
    draft.append(entry)
    return ProducerIdentity(entry.next_producer_id, entry.next_producer_epoch)


def commit_once(draft: Draft, wanted: TransactionEnded) -> tuple[ProducerIdentity, bool]:
    """Commit a transaction unless the work of its application token was committed before: then abort it.

    Returns:
        The producer's next identity, and whether this transaction is the one that committed. A repeated call is
        answered as the first one was.
    """
    try:
        return end_transaction(draft, wanted), True
    except Replayed:
        pass
    except InvalidTxnState:
        # Perhaps the abort of a replay, done before.
        with suppress(Replayed):
            check_token(draft, wanted.transactional_id, wanted.token)
            raise
    transaction = draft.transactions[wanted.transactional_id]
    identity = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    current = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if identity == current and transaction.state is not TransactionState.ONGOING:
        return identity, False
    abort = end_request(wanted.transactional_id, identity, "abort", owner=wanted.owner, time_ms=wanted.time_ms)
    return end_transaction(draft, abort), False


def end_request(
    transactional_id: str,
    identity: ProducerIdentity,
    verdict: str,
    *,
    time_ms: int,
    reason: str = "client",
    owner: str | None = None,
    batches: Sequence[StagedBatch] = (),
    upload_ms: int | None = None,
    offsets: Sequence[GroupOffsets] = (),
    token: ApplicationToken | None = None,
    task_count: int = 0,
    summary: CommitSummary | None = None,
) -> TransactionEnded:
    """An end as its caller wants it; ``plan_end`` fills in what it gets."""
    return TransactionEnded.model_validate(
        {
            "transactional_id": transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "owner": owner,
            "verdict": verdict,
            "reason": reason,
            "next_producer_id": _TO_BE_PLANNED,
            "next_producer_epoch": _TO_BE_PLANNED,
            "batches": tuple(_leaving_room(batches)),
            "upload_ms": upload_ms,
            "offsets": tuple(offsets),
            "token": token,
            "task_count": task_count,
            "summary": summary,
            "time_ms": time_ms,
        }
    )


def _leaving_room(batches: Sequence[StagedBatch]) -> Iterator[StagedBatch]:
    """The batches without the statistics that are too much for one entry: they are a help, and no commit needs them."""
    size = 0
    for batch in batches:
        size += len(batch.statistics.encode()) if batch.statistics is not None else 0
        yield batch if size <= _MOST_STATISTICS_BYTES else batch.model_copy(update={"statistics": None})


def abort_open_transaction(draft: Draft, transactional_id: str, *, reason: str, time_ms: int) -> bool:
    """Abort what is open under an id, in another's place. False if nothing is.

    Raises:
        TransactionalIdNotFound
        InvalidTxnState: the transaction is prepared: its verdict may have been given.
    """
    transaction = _known(draft, transactional_id)
    if transaction.prepared is not None:
        raise InvalidTxnState(
            f"transactional id {transactional_id!r}: its transaction is prepared, and whoever prepared it may have "
            "decided to commit; to abort it all the same use force_terminate_transaction "
            "(eoslog transactions force-terminate)"
        )
    if transaction.state is not TransactionState.ONGOING:
        return False
    _abort(draft, transaction, reason, time_ms)
    return True


def force_terminate(draft: Draft, transactional_id: str, *, time_ms: int) -> bool:
    """Abort what is open under an id, prepared or not, and fence its producer, as Kafka does: by an init in its place.

    Returns:
        False if nothing is open; then nobody is fenced.

    Raises:
        TransactionalIdNotFound
    """
    transaction = _known(draft, transactional_id)
    if transaction.state is not TransactionState.ONGOING:
        return False
    initialise(draft, transactional_id, timeout_ms=transaction.timeout_ms, time_ms=time_ms, kind=transaction.kind)
    return True


def _known(draft: Draft, transactional_id: str) -> Transaction:
    transaction = draft.transactions.get(transactional_id)
    if transaction is None:
        raise TransactionalIdNotFound(
            f"no transactional id is named {quoted(transactional_id)}, or it has expired; see list_transactions()"
        )
    return transaction


def abort_timed_out(draft: Draft, now_ms: int) -> list[str]:
    """Abort transactions past their time-out at ``now_ms`` of the store's clock; each may lose to its commit.

    It may share the record of somebody's own work: what cannot be ended here is left out, and does not hinder it.

    Returns:
        The transactional ids; more may be left for the next record.
    """
    aborted = []
    overdue = overdue_transactions(draft, now_ms)
    there = [entry for entry in draft.entries if isinstance(entry, TransactionEnded) and entry.reason == "timeout"]
    partitions = sum(len(entry.markers) for entry in there)
    for transaction in overdue[: max(0, _MOST_ABORTED_A_RECORD - len(there))]:
        if partitions and partitions + len(transaction.partitions) > _MOST_PARTITIONS_ABORTED_A_RECORD:
            break
        partitions += len(transaction.partitions)
        child = draft.child()
        try:
            _abort(child, transaction, "timeout", now_ms)
        except (RecordFull, EosLogError):
            continue
        child.merge()
        aborted.append(transaction.transactional_id)
    return aborted


def _abort(draft: Draft, transaction: Transaction, reason: str, time_ms: int) -> None:
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    end_transaction(
        draft,
        end_request(
            transaction.transactional_id,
            identity,
            "abort",
            reason=reason,
            owner=transaction.owner,
            time_ms=time_ms,
        ),
    )
