"""The span of a producer's transaction, from ``begin_transaction`` to its end, over all calls and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from eoslog.errors import EosLogError
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.storage import tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class TransactionSpan:
    """The span of the open transaction. Without a tracer provider nothing is recorded."""

    def __init__(self) -> None:
        self._span: Span | None = None
        self._error: EosLogError | None = None
        """The error that has failed the transaction."""
        self._within: AbstractContextManager[Any] | None = None
        """The call in which the span is current."""

    def begin(self, url: str, transactional_id: str | None, identity: ProducerIdentity | None) -> None:
        """Start the span of a transaction. It becomes current with the next call."""
        self._error = None
        described = {
            "eoslog.store": url,
            "eoslog.transactional_id": transactional_id,
            "eoslog.producer_id": None if identity is None else identity.producer_id,
            "eoslog.producer_epoch": None if identity is None else identity.producer_epoch,
        }
        self._span = tracing.start("transaction", tracing.MESSAGING | described)

    def enter(self) -> None:
        """Make the span current for a call in this thread."""
        if self._span is not None:
            self._within = tracing.within(self._span)
            self._within.__enter__()

    def leave(self) -> None:
        """End the call: the span that was current before is current again."""
        if self._within is not None:
            within, self._within = self._within, None
            within.__exit__(None, None, None)

    def describe(self, topics: Iterable[str], rows: Callable[[], int]) -> None:
        """Add the transaction's topics and number of rows, unless it has none."""
        if self._span is not None and (count := rows()):
            tracing.describe(self._span, tracing.rows_of(topics, count))

    def fail(self, error: EosLogError) -> None:
        """Remember the error that has failed the transaction."""
        self._error = error

    def end(self, outcome: str) -> None:
        """End the span.

        Args:
            outcome: ``committed``; ``replayed`` if the version was committed before; ``aborted``; ``failed`` if the
                producer has failed; ``prepared`` or ``open`` if the producer is closed before the transaction ends.
        """
        span, self._span = self._span, None
        if span is None:
            return
        tracing.describe(span, {"eoslog.outcome": outcome})
        if outcome in ("aborted", "failed", "open"):
            tracing.fail(span, self._error or outcome)
        tracing.end(span)
