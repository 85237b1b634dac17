"""The log lines of a producer.

They tell of work whose outcome is settled. So no method here raises an error: neither that of a handler of the
application, nor that of a read for a line, may change the outcome of a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec

from eoslog.errors import (
    ApplicationRecoverableError,
    EosLogError,
    InvalidProducerEpoch,
    RetriableError,
    TransactionAborted,
)
from eoslog.producer.producer_lifecycle import ProducerPhase
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.session import Session
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import CommitSummary
from eoslog.state.transaction_requests import InitAnswer
from eoslog.wording import counted, quoted

P = ParamSpec("P")
_logger = logging.getLogger(__name__)


def _harmless(method: Callable[P, None]) -> Callable[P, None]:
    """Make a method end quietly instead of raising an error."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(Exception):
            method(*args, **kwargs)

    return call


class ProducerLog:
    """Writes the log lines of one producer."""

    def __init__(self, store: Session, transactional_id: str | None, requests: TransactionManager) -> None:
        self._store = store
        self._transactional_id = transactional_id
        self._requests = requests

    @property
    def _name(self) -> str:
        if self._transactional_id is None:
            return f"producer id {self._requests.producer_id}"
        return f"transactional id {quoted(self._transactional_id)}"

    @_harmless
    def phase_changed(self, before: ProducerPhase, phase: ProducerPhase) -> None:
        """Log a change of the producer's phase."""
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("%s: %s: %s -> %s", self._store.url, self._name, before.value, phase.value)

    @_harmless
    def initialized(self, answer: InitAnswer) -> None:
        """Log the identity of the producer, and the earlier producer that it fenced."""
        done = "%s: %s initialized with producer id %d and epoch %d"
        if answer.aborted is None:
            _logger.info(done, self._store.url, self._name, *answer.identity)
        else:
            fenced = f"{done}. It fenced the producer with epoch %d and aborted its open transaction"
            _logger.warning(fenced, self._store.url, self._name, *answer.identity, answer.aborted.producer_epoch)

    @_harmless
    def committed(self, summary: CommitSummary | None) -> None:
        """Log a commit.

        Args:
            summary: None for a prepared transaction, whose rows were counted before the prepare.
        """
        if not _logger.isEnabledFor(logging.INFO):
            return
        slot = self._slot_of_last_commit()
        if summary is None:
            _logger.info("%s: %s committed its prepared transaction at slot %s", self._store.url, self._name, slot)
            return
        _logger.info(
            "%s: %s committed %s in %s at slot %s, open for %s ms",
            self._store.url,
            self._name,
            counted(summary.rows, "row"),
            counted(summary.files, "file"),
            slot,
            summary.duration_ms,
        )

    def _slot_of_last_commit(self) -> int | None:
        """Return the slot of the newest known commit of the transactional id; None if it cannot be read."""

        def snapshot(state: StoreState, slot: int) -> int | None:
            transaction = state.transactions.get(self._transactional_id or "")
            commit = transaction.last_commit if transaction is not None else None
            return commit.slot if commit is not None else None

        with suppress(EosLogError):
            return self._store.read(snapshot, refresh=False)
        return None

    @_harmless
    def replayed(self) -> None:
        """Log a commit whose version was committed before."""
        _logger.info("%s: %s: the version was committed before", self._store.url, self._name)

    @_harmless
    def aborted(self) -> None:
        """Log an abort."""
        _logger.info("%s: %s aborted", self._store.url, self._name)

    @_harmless
    def failed(self, error: EosLogError, *, is_fatal: bool) -> None:
        """Log the error that ended the transaction or the producer.

        Args:
            is_fatal: it has ended the producer.
        """
        # Messages of other errors may have values of rows.
        is_plain = isinstance(error, ApplicationRecoverableError | InvalidProducerEpoch | TransactionAborted)
        reason = str(error) if is_plain else type(error).__name__
        must = "cannot continue, close the producer" if is_fatal else "must abort its transaction"
        _logger.warning("%s: %s %s: %s", self._store.url, self._name, must, reason)

    @_harmless
    def background_flush_failed(self, error: EosLogError) -> None:
        """Log the error of a background flush. After a retriable one it tries again."""
        if isinstance(error, RetriableError):
            _logger.info("%s: the background flush tries again: %s", self._store.url, error)
        else:
            _logger.warning("%s: the background flush gave rows up: %s", self._store.url, error)

    @_harmless
    def exit_flush_failed(self, error: Exception) -> None:
        """Log the error of the flush at interpreter exit."""
        _logger.info("%s: the flush at exit failed: %s", self._store.url, error)

    @_harmless
    def rows_dropped(self, rows: int) -> None:
        """Log the number of rows that the end of a ``with`` block drops, because it aborts their transaction."""
        dropped = "%s: %s: the with block ends without a commit, rows dropped: %d"
        _logger.warning(dropped, self._store.url, self._name, rows)

    @_harmless
    def rows_lost(self, rows: int, error: EosLogError) -> None:
        """Log the number of rows without a transaction that the end of a ``with`` block could not write."""
        lost = "%s: the with block ends, rows lost: up to %d. %s"
        _logger.warning(lost, self._store.url, rows, type(error).__name__)

    @_harmless
    def rows_lost_at_exit(self, rows: int) -> None:
        """Log the number of rows that are lost at interpreter exit."""
        if self._transactional_id is not None:
            why = f"The transaction of {self._transactional_id!r} was not committed: call commit_transaction()"
        else:
            why = "They were not acknowledged: call flush() or close()"
        _logger.warning("%s: the process exits, rows lost: %d. %s before the exit.", self._store.url, rows, why)
