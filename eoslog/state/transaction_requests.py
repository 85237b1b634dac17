"""The requests to the transaction coordinator: from producers, and from processes that abort a producer's transaction.
The requests with which producers end their transactions are in ``end_requests``.

A request is a value. ``apply`` validates it on a draft, appends its entries, and returns the answer. The answer holds
only at the slot of the draft. When the log loses the race for a slot, it calls ``apply`` again on a newer state.

The coordinator is this code, not a process. Its only memory is the state, so any process may run it for any producer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eoslog.errors import (
    EosLogError,
    InvalidTxnState,
    RecordFull,
    TransactionalIdNotFound,
)
from eoslog.state.draft import Draft
from eoslog.state.end_requests import end_request
from eoslog.state.features import TRANSACTION_VERSION, need_feature
from eoslog.state.names import PartitionId
from eoslog.state.prepared import PrepareRepeated
from eoslog.state.producer_ids import (
    ProducerIdentity,
    check_expected,
    check_identity,
    check_timeout,
    current_identity,
    prepared_identity,
)
from eoslog.state.store_state import Transaction, TransactionState
from eoslog.state.transaction_entries import (
    AddedToTransaction,
    ProducerInitialized,
    TransactionEnded,
    TransactionPrepared,
)
from eoslog.state.transactions import check_start, overdue_transactions
from eoslog.wording import none_named

_MOST_ABORTED_A_RECORD = 100
_MOST_PARTITIONS_ABORTED_A_RECORD = 50_000
"""The limit for all transactions that a record aborts; a single transaction may have more partitions.

The control row of each partition takes about 100 bytes of the record.
"""


class InitAnswer(NamedTuple):
    """The answer to ``InitProducerId``."""

    identity: ProducerIdentity
    prepared: ProducerIdentity | None
    """The identity that names the id's prepared transaction; None if it has none."""
    aborted: ProducerIdentity | None = None
    """The identity of the holder whose open transaction was aborted; None if none was open."""


@dataclass(frozen=True)
class InitProducerId:
    """Assign an identity: fence the holder, abort its open transaction, then take the next epoch (KIP-360, KIP-939).

    A repeated request gets the same answer without a new entry.
    """

    transactional_id: str | None
    timeout_ms: int
    time_ms: int
    expected: ProducerIdentity | None = None
    """The identity that the producer had before."""
    kind: str = "producer"
    owner: str | None = None
    keep_prepared: bool = False
    """Leave a prepared transaction open. The new holder must complete it before it does anything else."""

    name: ClassVar = "init"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> InitAnswer:
        """Assign the identity, and return it with the name of the prepared transaction.

        Raises:
            InvalidTransactionTimeout, InvalidRequest
            ProducerFenced: another producer has taken over the transactional id since ``expected``.
        """
        before = None if self.transactional_id is None else draft.transactions.get(self.transactional_id)
        identity = self.take(draft)
        # The writer aborts overdue transactions at the end of each record. That is too late here: the prepared
        # transaction may be overdue itself, and the answer must not name a transaction that this record aborts.
        AbortOverdueTransactions(self.time_ms).apply(draft)
        if self.transactional_id is None:
            return InitAnswer(identity, None)
        transaction = draft.transactions[self.transactional_id]
        aborted = None
        if before is not None and before.state is TransactionState.ONGOING and transaction.state is not before.state:
            aborted = current_identity(before)
        return InitAnswer(current_identity(transaction), prepared_identity(transaction), aborted)

    def take(self, draft: Draft) -> ProducerIdentity:
        """Assign the identity without aborting the overdue transactions of other ids. Raises as ``apply`` does."""
        check_timeout(self.timeout_ms)
        expected = self.expected
        if self.transactional_id is not None:
            transaction = draft.transactions.get(self.transactional_id)
            earlier = check_expected(transaction, expected, keep_prepared=self.keep_prepared)
            if earlier is not None:
                # The answer to an earlier attempt was lost. The repetition gets the same identity (KIP-360). A second
                # entry would only use up another epoch.
                return earlier
            keeps = self.keep_prepared and transaction is not None and transaction.prepared is not None
            if transaction is not None and transaction.state is TransactionState.ONGOING and not keeps:
                _abort(draft, transaction, "fence", self.time_ms)
                # The abort has raised the epoch. With ``expected`` the entry would now look like a repeated init, and
                # be refused. The check above has compared it already.
                expected = None
        entry = draft.append(
            ProducerInitialized.model_validate(
                {
                    "transactional_id": self.transactional_id,
                    "kind": self.kind,
                    "owner": self.owner,
                    "expected_producer_id": expected.producer_id if expected else None,
                    "expected_producer_epoch": expected.producer_epoch if expected else None,
                    "timeout_ms": self.timeout_ms,
                    "keep_prepared": self.keep_prepared,
                    "time_ms": self.time_ms,
                }
            )
        )
        return ProducerIdentity(entry.producer_id, entry.producer_epoch)


@dataclass(frozen=True)
class AddToTransaction:
    """Add partitions and group offsets to a transaction. A repeated request for partitions leaves no entry."""

    entry: AddedToTransaction
    start_slot: int | None = None
    """As in ``EndTransaction``. None: the request may begin a transaction.

    Under transaction version 1 late offsets would begin the next transaction otherwise, or be added to it.
    """
    name: ClassVar = "add"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> None:
        """Add them.

        Raises:
            InvalidTxnState: the request may not begin a transaction, and none is open.
            ConcurrentTransactions: see ``_check_start``.
            What ``apply_addition`` raises.
        """
        entry = self.entry
        identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
        transaction = check_identity(draft, entry.transactional_id, identity)
        is_open = transaction.state is TransactionState.ONGOING
        if self.start_slot is not None and not is_open:
            raise InvalidTxnState(f"transactional id {entry.transactional_id!r} has no open transaction")
        check_start(transaction, self.start_slot)
        known = transaction.partitions | transaction.added_partitions
        wanted = {PartitionId(each.topic_id, each.partition) for each in entry.partitions}
        if is_open and transaction.prepared is None and not entry.offsets and wanted <= known:
            return
        need_feature(draft, TRANSACTION_VERSION)
        draft.append(entry)


@dataclass(frozen=True)
class PrepareTransaction:
    """Prepare a transaction. The answer is the identity that names it. A repeated request gets the same answer."""

    entry: TransactionPrepared
    name: ClassVar = "prepare"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> ProducerIdentity:
        """Prepare the transaction. Raises what ``check_prepare`` and ``check_identity`` raise, except
        ``PrepareRepeated``.
        """
        entry = self.entry
        with suppress(PrepareRepeated):
            draft.append(entry)
        named = ProducerIdentity(entry.producer_id, entry.producer_epoch)
        # The writer aborts overdue transactions at the end of each record. That is too late here: an earlier attempt
        # may have prepared the transaction, and its timeout may have passed. Then the answer must be the abort.
        AbortOverdueTransactions(entry.time_ms).apply(draft)
        check_identity(draft, entry.transactional_id, named)
        return named


@dataclass(frozen=True)
class AbortTransaction:
    """Abort the open transaction of an id on its producer's behalf. The answer is False if none is open.

    The producer is not fenced: it learns of the abort, and may begin its next transaction (KIP-588).
    """

    transactional_id: str
    reason: str
    time_ms: int

    def apply(self, draft: Draft) -> bool:
        """Abort the transaction.

        Raises:
            TransactionalIdNotFound
            InvalidTxnState: the transaction is prepared. Its application may already have decided to commit it.
        """
        transaction = _known_unprepared(draft, self.transactional_id)
        if transaction.state is not TransactionState.ONGOING:
            return False
        _abort(draft, transaction, self.reason, self.time_ms)
        return True


@dataclass(frozen=True)
class FenceProducer:
    """Fence the producer of an id, and abort its open transaction (Kafka's ``Admin.fenceProducers``).

    An init on the producer's behalf fences it. The answer is False if no transaction was open.
    """

    transactional_id: str
    time_ms: int

    def apply(self, draft: Draft) -> bool:
        """Fence the producer.

        Raises:
            TransactionalIdNotFound
            InvalidTxnState: the transaction is prepared. Its application may already have decided to commit it.
        """
        transaction = _known_unprepared(draft, self.transactional_id)
        _fence(draft, transaction, self.time_ms)
        return transaction.state is TransactionState.ONGOING


@dataclass(frozen=True)
class ForceTerminateTransaction:
    """Abort the open transaction of an id, prepared or not, and fence its producer (KIP-939).

    An init on the producer's behalf fences it. The answer is False if no transaction is open; then nothing is fenced.
    """

    transactional_id: str
    time_ms: int

    def apply(self, draft: Draft) -> bool:
        """Abort the transaction and fence the producer. Raises: TransactionalIdNotFound"""
        transaction = _known(draft, self.transactional_id)
        if transaction.state is not TransactionState.ONGOING:
            return False
        _fence(draft, transaction, self.time_ms)
        return True


def _known(draft: Draft, transactional_id: str) -> Transaction:
    transaction = draft.transactions.get(transactional_id)
    if transaction is None:
        raise unknown_transactional_id(transactional_id, draft.transactions)
    return transaction


def _known_unprepared(draft: Draft, transactional_id: str) -> Transaction:
    transaction = _known(draft, transactional_id)
    if transaction.prepared is not None:
        raise InvalidTxnState(
            f"transactional id {transactional_id!r}: its transaction is prepared, and its application may "
            "have decided to commit it. To abort it anyway, use force_terminate_transaction "
            "(eoslog transactions force-terminate)"
        )
    return transaction


def unknown_transactional_id(transactional_id: str, existing: Iterable[str]) -> TransactionalIdNotFound:
    """Return the error that no transactional id has this name, or no longer."""
    named = none_named("transactional id", transactional_id, existing)
    return TransactionalIdNotFound(f"{named}. An unused id expires")


@dataclass(frozen=True)
class AbortOverdueTransactions:
    """Abort the transactions that have exceeded their timeout. The answer is the list of their transactional ids.

    One record aborts a limited number of transactions. The next record may abort the rest.
    """

    now_ms: int
    """The time of the store's clock (ms)."""

    def apply(self, draft: Draft) -> list[str]:
        """Abort the transactions. A transaction whose abort is refused is skipped."""
        aborted: list[str] = []
        overdue = overdue_transactions(draft, self.now_ms)
        if not overdue:
            return aborted
        # Several requests of one record may each abort overdue transactions. The limits are those of the record.
        timeouts = [each for each in draft.entries if isinstance(each, TransactionEnded) and each.reason == "timeout"]
        partitions = sum(len(entry.markers) for entry in timeouts)
        for transaction in overdue[: max(0, _MOST_ABORTED_A_RECORD - len(timeouts))]:
            if partitions and partitions + len(transaction.partitions) > _MOST_PARTITIONS_ABORTED_A_RECORD:
                break
            partitions += len(transaction.partitions)
            child = draft.child()
            try:
                _abort(child, transaction, "timeout", self.now_ms)
            except (RecordFull, EosLogError):
                # The record may hold another writer's work. An abort that is refused must not fail that work.
                continue
            child.merge()
            aborted.append(transaction.transactional_id)
        return aborted


def _abort(draft: Draft, transaction: Transaction, reason: str, time_ms: int) -> None:
    draft.append(
        end_request(
            transaction.transactional_id,
            current_identity(transaction),
            "abort",
            reason=reason,
            owner=transaction.owner,
            time_ms=time_ms,
        )
    )


def _fence(draft: Draft, transaction: Transaction, time_ms: int) -> None:
    timeout_ms = transaction.timeout_ms
    if transaction.kind == "producer":
        # The store may allow only shorter timeouts by now. The next producer of the id brings a timeout of its own.
        timeout_ms = min(timeout_ms, draft.max_transaction_timeout_ms)
    InitProducerId(transaction.transactional_id, timeout_ms=timeout_ms, time_ms=time_ms, kind=transaction.kind).take(
        draft
    )
