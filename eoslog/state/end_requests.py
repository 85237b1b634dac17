"""The requests that end transactions, and the content that enters the log with an end or a prepare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eoslog.errors import (
    InvalidTxnState,
    Replayed,
    TransactionAborted,
)
from eoslog.state.application_versions import check_application_version
from eoslog.state.draft import Draft
from eoslog.state.features import TRANSACTION_VERSION, need_feature
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.prepared import with_prepared_summary
from eoslog.state.producer_ids import (
    ProducerIdentity,
    current_identity,
    why_aborted,
)
from eoslog.state.shared_entries import is_shareable_end
from eoslog.state.store_state import Transaction, TransactionState
from eoslog.state.transaction_ends import EndRepeated, check_end
from eoslog.state.transaction_entries import (
    ApplicationVersion,
    CommitSummary,
    PreparedBatch,
    StagedBatch,
    TransactionEnded,
    TransactionPrepared,
)
from eoslog.state.transactions import check_start

_MOST_STATISTICS_BYTES = 16 << 20
"""The limit for one entry (bytes). A record has room for this much beside the largest number of prepared files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionContent:
    """The content of a transaction that enters the log with its end, or with its prepare. An abort has none."""

    batches: Sequence[StagedBatch] = ()
    upload_ms: int | None = None
    """A lower bound of the time at which the first upload of a batch began (ms by the store's clock)."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The contents of the files that are to be in the record, by path."""
    offsets: Sequence[GroupOffsets] = ()
    application_version: ApplicationVersion | None = None
    """The version of the application's work. A prepared transaction has none."""
    task_count: int = 0
    """The number of the job's tasks; 0 for a producer."""
    summary: CommitSummary | None = None


NO_CONTENT = TransactionContent()


def prepare_request(
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    content: TransactionContent = NO_CONTENT,
    timeout_ms: int | None,
    time_ms: int,
) -> TransactionPrepared:
    """Return the entry that prepares a transaction.

    Args:
        timeout_ms: how long the transaction may stay prepared (ms); None for no limit.
    """
    return TransactionPrepared(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        batches=tuple(
            PreparedBatch(**batch.model_dump(include=set(PreparedBatch.model_fields)))
            for batch in _leaving_room(content.batches)
        ),
        upload_ms=content.upload_ms if content.batches else None,
        offsets=tuple(content.offsets),
        timeout_ms=timeout_ms,
        summary=content.summary,
        time_ms=time_ms,
    )


class EndAnswer(NamedTuple):
    """The answer to ``EndTransaction``."""

    identity: ProducerIdentity
    """The producer's next identity."""
    is_done: bool
    """False if the application version had been committed before. Then this transaction was aborted."""


@dataclass(frozen=True)
class EndTransaction:
    """Commit or abort a transaction. A repeated request gets the same answer.

    If the application version was committed before, a commit aborts the transaction instead.
    """

    entry: TransactionEnded
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The contents of the files that are to be in the record, by path."""
    start_slot: int | None = None
    """The slot in which the transaction began; -1 if none is known to be open, None if the request does not say so.

    Under transaction version 1 the epoch does not tell one transaction from the next, which a late end would hit.
    """

    @property
    def name(self) -> str:
        return self.entry.outcome

    @property
    def is_final(self) -> bool:
        return self.entry.outcome == "commit"

    def apply(self, draft: Draft) -> EndAnswer:
        """End the transaction, and return the producer's next identity.

        Raises:
            TransactionAborted: a timeout or an administrator aborted the transaction. Its producer must call abort,
                and may then continue (KIP-588).
            ConcurrentTransactions: see ``_check_start``.
            What ``apply_end`` raises, except ``EndRepeated`` and ``Replayed``.
        """
        entry = self.entry
        draft.offer_files(self.files)
        identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
        transaction = draft.transactions.get(entry.transactional_id)
        # A fenced producer is told so: the open transaction is not its own, and it must not repeat its request.
        if transaction is not None and identity == current_identity(transaction):
            check_start(transaction, self.start_slot)
        try:
            return EndAnswer(_end(draft, entry), True)
        except Replayed:
            # The work was committed before. Its rows must not be committed twice, so abort the transaction below.
            pass
        except InvalidTxnState as refused:
            # An earlier attempt at this request may have aborted the transaction as a replay, and its answer was lost.
            # Then the commit meets an aborted transaction. The application version tells this from a real refusal: if
            # it was committed before, ``check_application_version`` raises ``Replayed``, and the first answer is given
            # again.
            with suppress(Replayed):
                check_application_version(draft, entry.transactional_id, entry.application_version)
                _check_not_aborted(draft.transactions[entry.transactional_id], identity, refused)
                raise
        transaction = draft.transactions[entry.transactional_id]
        # Nothing was begun under this epoch, so there is nothing to abort, and the producer keeps its epoch.
        if identity == current_identity(transaction) and transaction.state is not TransactionState.ONGOING:
            return EndAnswer(identity, False)
        abort = end_request(entry.transactional_id, identity, "abort", owner=entry.owner, time_ms=entry.time_ms)
        return EndAnswer(_end(draft, abort), False)

    @property
    def shared_entries(self) -> Sequence[TransactionEnded]:
        return (self.entry,) if is_shareable_end(self.entry) else ()

    def shared_answer(self, entries: Sequence[Mapping[str, Any]], slot: int) -> EndAnswer:
        """Return the answer, as the entry in the log that ended the transaction states it.

        Raises:
            ValueError: the entry belongs to another request.
        """
        (entry,) = entries
        found = TransactionEnded.model_validate(entry)
        named = ("transactional_id", "producer_id", "producer_epoch", "outcome")
        if any(getattr(found, name) != getattr(self.entry, name) for name in named):
            raise ValueError(f"another end of transactional id {found.transactional_id!r}")
        return EndAnswer(_next_identity(found), True)


def _end(draft: Draft, entry: TransactionEnded) -> ProducerIdentity:
    try:
        if entry.keeps_epoch:
            check_end(draft, entry)
            need_feature(draft, TRANSACTION_VERSION)
        return _next_identity(draft.append(with_prepared_summary(draft, entry)))
    except EndRepeated as repeated:
        return repeated.identity


def _check_not_aborted(transaction: Transaction, identity: ProducerIdentity, refused: InvalidTxnState) -> None:
    why = why_aborted(transaction, identity)
    if why:
        raise TransactionAborted(
            f"transactional id {transaction.transactional_id!r}: the transaction was not committed, because {why}. "
            "Call abort_transaction() and begin it again"
        ) from refused


def _next_identity(ended: TransactionEnded) -> ProducerIdentity:
    return ProducerIdentity(ended.next_producer_id, ended.next_producer_epoch)


def end_request(
    transactional_id: str,
    identity: ProducerIdentity,
    outcome: str,
    *,
    content: TransactionContent = NO_CONTENT,
    reason: str = "client",
    owner: str | None = None,
    keeps_epoch: bool = False,
    time_ms: int,
) -> TransactionEnded:
    """Return the entry that ends a transaction. ``apply_end`` fills in its results.

    Args:
        keeps_epoch: the end is one of transaction version 1.
    """
    return TransactionEnded.model_validate(
        {
            "transactional_id": transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "transaction_version": 1 if keeps_epoch else None,
            "owner": owner,
            "outcome": outcome,
            "reason": reason,
            "batches": tuple(_leaving_room(content.batches)),
            "upload_ms": content.upload_ms if content.batches else None,
            "offsets": tuple(content.offsets),
            "application_version": content.application_version,
            "task_count": content.task_count,
            "summary": content.summary,
            "time_ms": time_ms,
        }
    )


def _leaving_room(batches: Sequence[StagedBatch]) -> Iterator[StagedBatch]:
    """Yield the batches. Once their statistics exceed the limit of one entry, the next batches have none.

    Statistics only help readers to skip files. A commit succeeds without them.
    """
    size = 0
    for batch in batches:
        size += len(batch.statistics.encode()) if batch.statistics is not None else 0
        yield batch if size <= _MOST_STATISTICS_BYTES else batch.model_copy(update={"statistics": None})
