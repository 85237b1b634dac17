"""How the processes end a transaction, and what they write down of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import eoslog
from eoslog.errors import AbortableError, EosLogError, OutcomeLost, RetriableError
from tests.checker import Kind, MicroOperation, Outcome
from tests.soak.history import ProcessHistory
from tests.soak.process import until_answered


class TransactionOperation:
    """A transaction in a process's history: a poll perhaps, and the rows that it writes."""

    def __init__(
        self,
        history: ProcessHistory,
        value: Sequence[MicroOperation],
        *,
        keys: Iterable[str] = (),
        staged: bool = False,
    ) -> None:
        self._history = history
        self._operation = history.begin(Kind.TXN, value, keys=keys, staged=staged)

    def commit(self, producer: eoslog.Producer) -> bool:
        """Commit, as often as it takes for an answer. True if it is committed, False if it was aborted instead.

        Raises:
            EosLogError: this producer is done.
        """
        while True:
            try:
                producer.commit_transaction()
                self.complete(Outcome.OK)
                return True
            except RetriableError as error:
                logging.info("commit once more: %s", error)
            except EosLogError as error:
                self.complete(Outcome.INFO if isinstance(error, OutcomeLost) else Outcome.FAIL)
                self._abort_after(producer, error)
                return False

    def fail(self, producer: eoslog.Producer, error: EosLogError) -> None:
        """Give the transaction up before its commit was asked for.

        Raises:
            EosLogError: this producer is done.
        """
        self.complete(Outcome.FAIL)
        self._abort_after(producer, error)

    def _abort_after(self, producer: eoslog.Producer, error: EosLogError) -> None:
        logging.info("aborted after %s: %s", type(error).__name__, error)
        if not isinstance(error, AbortableError):
            raise error
        until_answered(producer.abort_transaction)

    def complete(self, outcome: Outcome) -> None:
        self._history.end(self._operation, outcome)
