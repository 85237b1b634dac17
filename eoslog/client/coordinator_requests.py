"""The requests of a producer to its coordinator (init, prepare, end), and its transaction's offsets until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eoslog.client.answered_appends import AnsweredAppends, Request, Shareable
from eoslog.client.group import with_added
from eoslog.errors import InvalidTxnState, TransactionAborted
from eoslog.rules.coordinator import (
    abort_timed_out,
    commit_once,
    end_request,
    end_transaction,
    initialise,
    prepare_request,
    prepare_transaction,
)
from eoslog.rules.draft import Draft
from eoslog.rules.group_entries import GroupOffsets
from eoslog.rules.prepared import check_prepared_timeout
from eoslog.rules.producer_ids import ProducerIdentity, check_identity, check_timeout, prepared_identity, why_aborted
from eoslog.rules.transaction_entries import ApplicationToken, CommitSummary, StagedBatch, TransactionEnded
from eoslog.rules.transactions import is_shareable_end

if TYPE_CHECKING:
    from eoslog.client.store import Store


class CoordinatorRequests:
    """A producer's identity and transaction, as in the log. A request without an answer may be made again."""

    def __init__(
        self,
        store: Store,
        append: AnsweredAppends,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int,
        prepared_timeout_ms: int | None,
    ) -> None:
        check_timeout(transaction_timeout_ms)
        check_prepared_timeout(prepared_timeout_ms)
        self._store = store
        self._append = append
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._prepared_timeout_ms = prepared_timeout_ms
        self.identity: ProducerIdentity | None = None
        """Producer id and epoch, as of the last answer."""
        self.prepared: ProducerIdentity | None = None
        """The name of the prepared transaction that this producer holds."""
        self.forget()

    def forget(self) -> None:
        """Begin a transaction anew, with nothing in it."""
        self._offsets: tuple[GroupOffsets, ...] = ()
        self._may_be_known = False

    @property
    def has_offsets(self) -> bool:
        return bool(self._offsets)

    @property
    def may_be_known(self) -> bool:
        """Whether a request made here has told the log of the transaction, or may still do so."""
        return self._may_be_known or self.prepared is not None

    def add_offsets(self, added: GroupOffsets) -> None:
        """Group offsets that are to be committed with the transaction; the newer ones count."""
        self._offsets = with_added(self._offsets, added)

    def initialise(self, *, keep_prepared: bool = False) -> None:
        """Ask for an identity. With ``keep_prepared``, also ask for the prepared transaction that comes with it."""

        def propose(draft: Draft) -> tuple[ProducerIdentity, ProducerIdentity | None]:
            now_ms = self._store.now_ms()
            identity = initialise(
                draft,
                self._transactional_id,
                timeout_ms=self._timeout_ms,
                time_ms=now_ms,
                keep_prepared=keep_prepared,
            )
            # Here and not at the end of the record: the answer must tell whether this aborts the prepared transaction.
            abort_timed_out(draft, now_ms)
            if self._transactional_id is None:
                return identity, None
            transaction = draft.transactions[self._transactional_id]
            return (
                ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
                prepared_identity(transaction),
            )

        self.identity, self.prepared = self._append(Request.INIT, propose)

    def prepare(self, staged: Sequence[StagedBatch], upload_ms: int | None, summary: CommitSummary) -> None:
        """Prepare the transaction with these staged batches and the offsets that were added."""
        assert self.identity is not None
        assert self._transactional_id is not None
        request = prepare_request(
            self._transactional_id,
            self.identity,
            time_ms=self._store.now_ms(),
            timeout_ms=self._prepared_timeout_ms,
            batches=staged,
            upload_ms=upload_ms,
            offsets=self._offsets,
            summary=summary,
        )
        # From here on it may land at any time, until the next slot is taken.
        self._may_be_known = True

        def propose(draft: Draft) -> ProducerIdentity:
            named = prepare_transaction(draft, request)
            # Here and not at the end of the record: a transaction that an earlier attempt prepared may be past its
            # timeout. Then the answer must be that it was aborted.
            abort_timed_out(draft, request.time_ms)
            check_identity(draft, request.transactional_id, named)
            return named

        self.prepared = self._append(Request.PREPARE, propose)

    def end(
        self,
        verdict: str,
        staged: Sequence[StagedBatch] = (),
        upload_ms: int | None = None,
        token: ApplicationToken | None = None,
        summary: CommitSummary | None = None,
    ) -> bool:
        """End the transaction. A commit takes these staged batches and the offsets that were added.

        Returns:
            False if the work of ``token`` was committed before: then the transaction was aborted.
        """
        assert self.identity is not None
        assert self._transactional_id is not None
        request = end_request(
            self._transactional_id,
            self.identity,
            verdict,
            batches=staged,
            upload_ms=upload_ms if staged else None,
            offsets=self._offsets if verdict == "commit" else (),
            token=token,
            summary=summary,
            time_ms=self._store.now_ms(),
        )
        # From here on it may land at any time, until the next slot is taken.
        self._may_be_known = True

        def propose(draft: Draft) -> tuple[ProducerIdentity, bool]:
            try:
                return commit_once(draft, request) if token is not None else (end_transaction(draft, request), True)
            except InvalidTxnState as refused:
                self._check_not_aborted(draft, request.transactional_id, refused)
                raise

        def ended(entries: Sequence[Mapping[str, Any]], slot: int) -> tuple[ProducerIdentity, bool]:
            return _ended(request, *entries), True

        shareable = Shareable([request], ended) if is_shareable_end(request) else None
        self.identity, done = self._append(Request(verdict), propose, shareable)
        self.prepared = None
        return done

    def _check_not_aborted(self, draft: Draft, transactional_id: str, refused: InvalidTxnState) -> None:
        """Raise ``TransactionAborted`` if the coordinator aborted the transaction: the caller must abort (KIP-588)."""
        assert self.identity is not None
        why = why_aborted(draft.transactions[transactional_id], self.identity)
        if why:
            raise TransactionAborted(
                f"transactional id {transactional_id!r}: the transaction was not committed, for {why}; call "
                "abort_transaction() and begin it again"
            ) from refused


def _ended(request: TransactionEnded, *entries: Mapping[str, Any]) -> ProducerIdentity:
    """Return the producer's next identity, from the entry in the log that ended its transaction.

    Raises:
        ValueError: the entry is not the one of this request.
    """
    (entry,) = entries
    found = TransactionEnded.model_validate(entry)
    named = ("transactional_id", "producer_id", "producer_epoch", "verdict")
    if any(getattr(found, name) != getattr(request, name) for name in named):
        raise ValueError(f"another end of transactional id {found.transactional_id!r}")
    return ProducerIdentity(found.next_producer_id, found.next_producer_epoch)
