"""Appending records: one thread of a process puts the requests of all its threads into the next slot.

Each record takes three steps. ``next_record`` validates the proposals against the state after the newest slot and fits
them into a record. ``record_put`` puts the record conditionally into the next slot. ``contention`` decides which
process puts next. A process that loses the race for a slot has folded the winner's record, and validates its proposals
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from eoslog.errors import EosLogError, OutcomeLost
from eoslog.log.announcements import Announcements
from eoslog.log.append_queue import AppendCounts, AppendQueue, Proposal, earliest_deadline
from eoslog.log.contention import AppendErrors, AppendGroup, Contention, RequestsOfOthers
from eoslog.log.machine import Machine
from eoslog.log.next_record import Base, NextRecord, RecordMaker, Validated
from eoslog.log.record_put import ConditionalAppend, PutResult, RecordPut
from eoslog.log.replica import Replica
from eoslog.log.slots import entries_of
from eoslog.storage import tracing
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")


class Appender(Generic[S]):
    """Appends the requests of one process to a log. Safe to share between threads."""

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine[S],
        environment: Environment,
        *,
        replica: Replica[S],
        conditional_append: ConditionalAppend,
    ) -> None:
        self.counts = AppendCounts()
        self.announcements = Announcements(replica)
        self._contention = Contention(
            store,
            machine,
            environment,
            replica=replica,
            announcements=self.announcements,
            counts=self.counts,
        )
        self._url = store.url
        self._environment = environment
        self._replica = replica
        self._queue = AppendQueue(environment, self._append_all)
        self._maker = RecordMaker(store, machine, replica, self.announcements)
        self._put = RecordPut(store, environment, replica, conditional_append)
        self._errors = AppendErrors(store.url, replica, conditional_append)

    def append(self, proposal: Proposal) -> Any:
        """Append a proposal, or let another thread or process append it. Return its answer.

        Raises:
            CommitStateUnknown: the record may have landed, or another process may still append it.
            StoreUnavailable: its deadline passed, and nothing was appended.
            The error with which the newest state refuses the proposal.
        """
        if not self._queue.settle(proposal):
            # An interrupted leader may have sent the proposal before it was queued again.
            raise self._errors.unsettled(proposal)
        return proposal.result()

    def _append_all(self, given: list[Proposal]) -> None:
        for proposal in given:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.sent is not None or proposal.in_flight is not None:
                # An interrupt stopped the leader that sent it. A second interrupt came before the leader settled it.
                proposal.fail(self._errors.unsettled(proposal))
        proposals = [proposal for proposal in given if not proposal.done]
        try:
            for creator in [proposal for proposal in proposals if proposal.creates_log]:
                self._append_group([creator])
            proposals = [proposal for proposal in proposals if not proposal.done]
            if proposals and self._replica.must_be_opened():
                self._replica.open()
            self._append_group(proposals)
        except BaseException as error:
            self._replica.reset_unless_sound(error)
            for proposal in proposals:
                if proposal.has_landed:
                    proposal.finish()
                if not proposal.done:
                    proposal.fail(self._errors.after(error, proposal))
            if not isinstance(error, Exception):
                raise
        finally:
            for proposal in given:
                if proposal.sent is not None:
                    self._replica.awaited.pop(proposal.sent.request_id, None)

    def _append_group(self, proposals: list[Proposal]) -> None:
        """Settle proposals, record by record."""
        group = AppendGroup(proposals, self._replica, self._environment, self._errors)
        while group.pending:
            self._contention.append_through_service(group)
            if not group.pending:
                return
            with self._contention.turn(group) as others:
                is_lost = self._append_record(group, others)
                if is_lost:
                    # Try again at once with the same requests: the winner did not yet know that writers compete.
                    group.drop_settled()
                    is_lost = self._append_record(group, others)
            if is_lost and group.pending:
                self._contention.pause(group)

    def _append_record(self, group: AppendGroup, others: RequestsOfOthers) -> bool:
        """Try to put one record with proposals of a group. Return True if another process was faster."""
        asks_for_slot = bool(group.pending) and self._contention.must_ask_for_slot(group)
        limits = group.limits._replace(others=others.offered, with_overdue=True)
        while group.pending:
            validated = self._maker.make(group.pending, limits, group.append_id)
            if not self._settle_without_record(group, validated):
                group.read_tail()
                continue
            record = validated.record
            if record is None:
                return False
            fitted = limits.fitted(record)
            if fitted is not None:
                limits = group.limits = fitted
            elif record.is_too_large:
                record.taken[0].fail(record.size_error(self._url))
                group.drop_settled()
            elif asks_for_slot and self._contention.ask_for_slot(group, earliest_deadline(record.taken)):
                # The service waits for this process, so ask only with a record in hand. Then validate it on the state
                # that the service handed over.
                asks_for_slot = False
            else:
                return self._put_record(group, record, others)
        return False

    def _settle_without_record(self, group: AppendGroup, validated: Validated) -> bool:
        """Settle the proposals that need no record. Return False if the caller must read the newest slot first."""
        found = validated.proposals
        for proposal in found.landed:
            proposal.finish()
        if (found.refused or found.without_entries) and not group.was_newest(validated.base.slot):
            return False
        for proposal, error in found.refused:
            self._refuse(proposal, error, validated.base)
        for proposal in found.without_entries:
            proposal.finish()
        group.pending = found.taken + found.later
        return True

    def _refuse(self, proposal: Proposal, error: BaseException, base: Base) -> None:
        """Fail a proposal that the newest state refuses, unless another process has appended it before."""
        sent = proposal.sent
        if sent is not None and sent.opening != base.opening:
            # The replica was opened again and skipped records. The request may be in one of them.
            try:
                found = self.find_request(sent.slot, sent.request_id)
            except OutcomeLost as lost:
                proposal.fail(lost)
                return
            except EosLogError:
                proposal.fail(self._errors.unknown_request(proposal, sent))
                return
            if found is not None:
                proposal.tell(*found)
        if proposal.has_landed:
            proposal.finish()
        else:
            proposal.fail(error)

    def _put_record(self, group: AppendGroup, record: NextRecord, others: RequestsOfOthers) -> bool:
        """Put a record, and settle its proposals. Return True if another process was faster."""
        result = self._put.put(record)
        if result is not PutResult.LANDED:
            self.counts.conflicts += 1
            self._contention.lost(group)
            if result is PutResult.REOPENED:
                group.renew_append_id()
            return True
        self.counts.records += 1
        self.counts.commits += len(record.taken)
        self.counts.for_others += len(record.included)
        for proposal in record.taken:
            proposal.slot = record.slot_record.slot
            if proposal.span is not None:
                # The put's requests to the object store belong to the leader's span.
                tracing.link(proposal.span, tracing.current())
            proposal.finish()
        self._contention.won(group, record)
        others.considered = len(record.others)
        if record.included:
            self._environment.reached("log.shared.appended_for_others")
        return False

    def find_request(self, slot: int, request_id: str) -> tuple[Sequence[Mapping[str, Any]], int] | None:
        """Find a request that was sent to another process when ``slot`` was the newest slot this process knew.

        Returns:
            Its entries in the log, and their slot. None if no record has it yet.

        Raises:
            OutcomeLost: a slot that may hold it has been deleted, or is damaged.
            StoreUnavailable, StoreAccessDenied, NotAStore
        """
        newest = self._replica.read(lambda state, newest: newest)
        for later in range(slot + 1, newest + 1):
            record = self._replica.reader.record_at(later)
            if record is None:
                raise OutcomeLost(
                    f"another process was asked after slot {slot} to append a request. Slot {later} may hold it, but "
                    "is deleted or damaged. Look at the work itself to learn whether it landed: admin.last_committed, "
                    "the group's offsets, or the rows"
                )
            for request in record.requests or ():
                if request.request_id == request_id:
                    return entries_of(record, request), later
        return None
