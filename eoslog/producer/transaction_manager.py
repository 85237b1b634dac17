"""The requests of a producer to its coordinator: init, prepare and end. It keeps the group offsets until the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.positions import with_added
from eoslog.session.session import Session
from eoslog.state.end_requests import NO_CONTENT, EndTransaction, TransactionContent, end_request, prepare_request
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.groups import has_members, is_from_outside
from eoslog.state.prepared import check_prepared_timeout
from eoslog.state.producer_ids import ProducerIdentity, check_timeout, raised_epoch
from eoslog.state.transaction_requests import InitAnswer, InitProducerId, PrepareTransaction

_logger = logging.getLogger(__name__)


class TransactionManager:
    """A producer's identity and transaction. A request that got no answer may be repeated."""

    def __init__(
        self,
        store: Session,
        append: IdempotentAppend,
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
        """The producer id and epoch; None if the next flush must ask for them."""
        self.prepared: ProducerIdentity | None = None
        """The name of the prepared transaction that this producer holds."""
        self.forget()

    def forget(self) -> None:
        """Start a new, empty transaction."""
        self._offsets: tuple[GroupOffsets, ...] = ()
        self._may_be_known = False

    @property
    def producer_id(self) -> int:
        """The producer id; -1 without an identity."""
        return -1 if self.identity is None else self.identity.producer_id

    @property
    def has_offsets(self) -> bool:
        return bool(self._offsets)

    @property
    def may_be_known(self) -> bool:
        """True if a request of this producer has made the transaction known to the log, or may still do so."""
        return self._may_be_known or self.prepared is not None

    def add_offsets(self, added: GroupOffsets) -> None:
        """Add group offsets to commit with the transaction. A newer offset replaces an older one."""
        self._offsets = with_added(self._offsets, added)

    def initialize(self, *, keep_prepared: bool = False) -> InitAnswer:
        """Ask for an identity. With ``keep_prepared``, also ask for the prepared transaction that comes with it."""
        answer = self._append(
            InitProducerId(
                self._transactional_id,
                timeout_ms=self._timeout_ms,
                time_ms=self._store.now_ms(),
                keep_prepared=keep_prepared,
            )
        )
        self.identity, self.prepared = answer.identity, answer.prepared
        return answer

    def raise_epoch(self) -> None:
        """Take the next epoch, for a producer without transactional id. After the last one, ask for a new id."""
        assert self._transactional_id is None
        self.identity = None if self.identity is None else raised_epoch(self.identity)

    def prepare(self, content: TransactionContent) -> None:
        """Prepare the transaction with this content and the added offsets."""
        assert self.identity is not None
        assert self._transactional_id is not None
        request = prepare_request(
            self._transactional_id,
            self.identity,
            content=replace(content, offsets=self._offsets),
            timeout_ms=self._prepared_timeout_ms,
            time_ms=self._store.now_ms(),
        )
        # The request may land from now on, even if its answer is lost.
        self._may_be_known = True
        self.prepared = self._append(PrepareTransaction(request))
        self._warn_of_offsets_without_member(request.offsets)

    def commit(self, content: TransactionContent) -> bool:
        """Commit the transaction with this content and the added offsets.

        Returns:
            False if its application version was committed before: then the transaction was aborted.
        """
        return self._end("commit", replace(content, offsets=self._offsets))

    def abort(self) -> None:
        """Abort the transaction."""
        self._end("abort", NO_CONTENT)

    def _end(self, outcome: str, content: TransactionContent) -> bool:
        assert self.identity is not None
        assert self._transactional_id is not None
        request = end_request(
            self._transactional_id, self.identity, outcome, content=content, time_ms=self._store.now_ms()
        )
        # The request may land from now on, even if its answer is lost.
        self._may_be_known = True
        self.identity, is_done = self._append(EndTransaction(request, content.files))
        self.prepared = None
        self._warn_of_offsets_without_member(request.offsets)
        return is_done

    def _warn_of_offsets_without_member(self, offsets: Sequence[GroupOffsets]) -> None:
        # No refresh: the replica folded the slot of this transaction when the append was answered.
        bare = {each.group for each in offsets if is_from_outside(each)}
        if bare:
            with_members = self._store.read(
                lambda state, slot: [group_id for group_id in sorted(bare) if has_members(state, group_id)],
                refresh=False,
            )
            for group_id in with_members:
                _warn_of_group_without_member(self._store.url, group_id)


@cache
def _warn_of_group_without_member(url: str, group_id: str) -> None:
    """Warn once in a process of offsets that no rebalance can refuse."""
    _logger.warning(
        "%s: a transaction has offsets of group %r that name no member, but the group has members. After a rebalance "
        "two consumers may process the same rows. Give consumer.group_metadata() to send_offsets_to_transaction(), not "
        "the group's id",
        url,
        group_id,
    )
