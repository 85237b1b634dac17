"""The proposals that one leader of the append queue appends, and what its attempts have learned so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eoslog.errors import CommitStateUnknown, EosLogError, StoreUnavailable
from eoslog.log.append_queue import Proposal, SentRequest, earliest_deadline
from eoslog.log.next_record import NextRecord, RecordLimits
from eoslog.log.record_put import ConditionalAppend
from eoslog.log.replica import Replica
from eoslog.storage.environment import Environment

_SHORTEST_TIME_MS = 1_000
"""A request with less time left is not sent to another process (ms)."""


class AppendErrors:
    """Makes the errors of given-up proposals. Each error says: not appended, or outcome unknown."""

    def __init__(self, url: str, replica: Replica[Any], conditional_append: ConditionalAppend) -> None:
        self._url = url
        self._replica = replica
        self._conditional_append = conditional_append

    def unsettled(self, proposal: Proposal) -> EosLogError:
        """Return the error of a proposal whose time is up, or whose leader was interrupted."""
        if proposal.sent is not None:
            return self.unknown_request(proposal, proposal.sent)
        if proposal.in_flight is not None:
            return self._conditional_append.unknown(*proposal.in_flight)
        return StoreUnavailable(f"{self._url}: the time was up before a record was written; nothing was appended")

    def after(self, error: BaseException, proposal: Proposal) -> BaseException:
        """Return the error of one proposal of an attempt that ended with ``error``."""
        if proposal.sent is not None:
            return self.unknown_request(proposal, proposal.sent)
        if proposal.in_flight is not None:
            return error if isinstance(error, Exception) else self._conditional_append.unknown(*proposal.in_flight)
        if isinstance(error, CommitStateUnknown) or not isinstance(error, Exception):
            return StoreUnavailable(
                f"{self._url}: the record before this one was not settled. Nothing was appended; try again"
            )
        return error

    def unknown_request(self, proposal: Proposal, sent: SentRequest) -> CommitStateUnknown:
        """Return the error of a proposal that another process may append now or later."""
        replica = self._replica
        with replica.lock:
            # If this replica had folded a record with the request, ``has_landed`` would be true.
            was_followed = replica.opening == sent.opening and sent.request_id in replica.awaited
            slot = replica.slot if was_followed and not proposal.has_landed else sent.slot
        return CommitStateUnknown(
            f"{self._url}: another process was asked after slot {slot} to append a request, and no record "
            "has it yet; that process may append it later. Repeat the same call: nothing is done twice",
            slot=slot,
            append_id=sent.request_id,
            is_sent=True,
        )


class AppendGroup:
    """Proposals that are appended together, in as many records as they need."""

    def __init__(
        self, pending: list[Proposal], replica: Replica[Any], environment: Environment, errors: AppendErrors
    ) -> None:
        self.pending = pending
        """The proposals that are not settled, in their order."""
        self.append_id = environment.new_id()
        """The id of the next record."""
        self.races = 0
        """The number of lost races for a slot."""
        self.limits = RecordLimits()
        """The limits of the last record. The next one is about as large."""
        self._replica = replica
        self._environment = environment
        self._errors = errors
        self._tail_slot = -1 if pending and pending[0].creates_log else None
        """The newest slot that this group has read or put; -1 before slot 0; None if it has done neither."""

    @property
    def deadline_ms(self) -> int | None:
        """The earliest time at which a caller gives up (elapsed time, ms); None if none has a deadline."""
        return earliest_deadline(self.pending)

    def read_tail(self) -> None:
        """Refresh the replica."""
        self._replica.refresh()
        self._tail_slot = self._replica.slot

    def was_newest(self, slot: int) -> bool:
        """Return True if this group has seen that the slot was the newest one of the log."""
        return slot == self._tail_slot

    def continue_after(self, record: NextRecord) -> None:
        """Begin another record with the rest of the proposals, because this one is in the log."""
        self.pending = self.pending[len(record.taken) :]
        self._tail_slot = record.slot_record.slot
        self.renew_append_id()

    def renew_append_id(self) -> None:
        """Give the next record another id. A process that finds this id in a slot finds its own record."""
        self.append_id = self._environment.new_id()

    def drop_settled(self) -> None:
        """Drop the proposals that another process has appended, and the proposals whose deadline has passed."""
        now_ms = self._environment.monotonic_ms()
        for proposal in self.pending:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.deadline_ms is not None and proposal.deadline_ms < now_ms:
                proposal.fail(self._errors.unsettled(proposal))
        self.pending = [proposal for proposal in self.pending if not proposal.done]

    def finish_landed(self, *, refresh: bool = True) -> bool:
        """Finish the proposals that other processes have appended. Return True if no other pending proposal is left.

        Args:
            refresh: refresh the replica first, if it does not show yet that all pending proposals have landed.
        """
        if refresh and not all(proposal.has_landed for proposal in self.pending):
            self.read_tail()
        landed = [proposal for proposal in self.pending if proposal.has_landed]
        for proposal in landed:
            # Wake the proposal's thread now. It need not wait for the other proposals.
            proposal.finish()
        return len(landed) == len(self.pending)

    @property
    def landed_count(self) -> int:
        """The number of its pending proposals that other processes have appended."""
        return sum(proposal.has_landed for proposal in self.pending)

    def with_time(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        """Return the proposals with enough time. If the deadline of a sent one passes, its outcome is unknown."""
        soon_ms = self._environment.monotonic_ms() + _SHORTEST_TIME_MS
        return [each for each in proposals if each.deadline_ms is None or each.deadline_ms > soon_ms]
