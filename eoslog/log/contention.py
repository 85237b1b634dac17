"""The choice of the process that puts the next record: the append service, or the process that has its host's turn.

Correctness does not depend on this choice, because put-if-absent alone decides which record a slot gets. A good choice
loses few puts, and no writer loses all of its races.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eoslog.errors import CommitStateUnknown, EosLogError, StoreUnavailable
from eoslog.log.announcements import Announcements
from eoslog.log.append_client import LARGEST_REQUEST_BYTES, AppendClient
from eoslog.log.append_queue import AppendCounts, OthersMessages, Proposal, SentRequest, earliest_deadline
from eoslog.log.machine import Machine, shared_entries
from eoslog.log.messages import Message, OthersRequests
from eoslog.log.next_record import NextRecord, RecordLimits
from eoslog.log.record_put import ConditionalAppend
from eoslog.log.replica import Replica
from eoslog.log.shared_commits import SharedCommits
from eoslog.storage.conditional_put import back_off
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import LARGEST_MESSAGE_BYTES, Turn
from eoslog.storage.object_store import ObjectStore

_COMPETITION_MS = 10_000
"""After a lost race a process expects for this time that others compete for slots (ms). Without a lost race it gives
way once in this time."""
_RACES_TO_GIVE_WAY = 2
"""A process that gives way pauses as long as after this many failures. The loser of many races pauses less."""
_LONGEST_RACE = 5
"""After this number of lost races the pause no longer changes."""
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
        return StoreUnavailable(
            f"{self._url}: the time was up before a record was written. Nothing was appended. Repeat the "
            "call, with a longer timeout if the object store is slow"
        )

    def after(self, error: BaseException, proposal: Proposal) -> BaseException:
        """Return the error of one proposal of an attempt that ended with ``error``."""
        if proposal.sent is not None:
            return self.unknown_request(proposal, proposal.sent)
        if proposal.in_flight is not None:
            return error if isinstance(error, Exception) else self._conditional_append.unknown(*proposal.in_flight)
        if isinstance(error, CommitStateUnknown) or not isinstance(error, Exception):
            return StoreUnavailable(
                f"{self._url}: the record before this one was not settled. Nothing was appended. Try again"
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
            "has it yet. That process may append it later. Repeat the same call: nothing is done twice",
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


@dataclass(slots=True)
class RequestsOfOthers:
    """The requests of other processes that one record may take."""

    offered: Sequence[OthersRequests] = ()
    considered: int = 0
    """The number of messages, from the first, whose requests were validated for the record. The caller sets it when the
    record is in the log. Their senders get an answer, also if the record left out their requests as invalid."""


class Contention:
    """Arranges with other processes which one puts the next record. Only the leader of the append queue uses it."""

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine[Any],
        environment: Environment,
        *,
        replica: Replica[Any],
        announcements: Announcements,
        counts: AppendCounts,
    ) -> None:
        self._store = store
        self._environment = environment
        self._replica = replica
        self._announcements = announcements
        self._counts = counts
        self._shared = SharedCommits(store.url, environment, machine)
        self._client = AppendClient(store, environment)
        self._append_id_of_host = ""
        """The append id of the newest record that a process of this host is known to have put."""
        self._competes_until_ms = 0
        """The time until which this process expects that other hosts compete for slots (elapsed time, ms)."""
        self._gave_way_ms = environment.monotonic_ms()
        """When this process last gave way without knowing of other hosts (elapsed time, ms)."""

    def append_through_service(self, group: AppendGroup) -> None:
        """Let the append service append the proposals that it may append.

        Nothing depends on the service. If it does not answer, this process appends the proposals itself.
        """
        if not self._reaches_service():
            return
        unsent = [each for each in group.pending if each.sent is None and shared_entries(each.content)]
        if not unsent:
            return
        began_ms = self._environment.monotonic_ms()
        with_time = group.with_time(unsent)
        message = self._shared.message(self._replica, with_time, LARGEST_REQUEST_BYTES)
        if not message:
            return
        self._environment.reached("log.service.before_send")
        records = self._client.ask(message, earliest_deadline(with_time))
        self._environment.reached("log.service.answered")
        # Without an answer, the service may have appended the requests all the same.
        group.finish_landed(refresh=records is None or not self._replica.follow(records))
        self._counts.waited_ms += self._environment.monotonic_ms() - began_ms
        self._counts.by_others += group.landed_count
        group.drop_settled()

    def _reaches_service(self) -> bool:
        """Return True if the log announces the append service of another process, and this one is connected to it."""
        announced = self._announcements.of_another_process()
        return announced is not None and self._client.reach(announced)

    def must_ask_for_slot(self, group: AppendGroup) -> bool:
        """Return True if the group must ask the append service for its slot.

        Without a service, this first gives another host time, if that host should put the next record.
        """
        if self._reaches_service():
            return True
        if self._gives_way():
            group.read_tail()
            back_off(self._environment, _RACES_TO_GIVE_WAY)
        return False

    def ask_for_slot(self, group: AppendGroup, deadline_ms: int | None) -> bool:
        """Ask the append service to leave the next slot to this process. Return True if it does.

        A request that only this process may append would lose each race against a service that is busy.

        Args:
            deadline_ms: when the callers give up (elapsed time, ms).
        """
        records = self._client.ask(self._shared.request_for_a_slot(self._replica), deadline_ms)
        if records is None:
            return False
        if not self._replica.follow(records):
            # This process is far behind, or the store repeats no records.
            group.read_tail()
        return True

    @contextmanager
    def turn(self, group: AppendGroup) -> Iterator[RequestsOfOthers]:
        """Wait until this process may put a record. Within the context, the other processes of its host wait.

        During the wait, the process that has the turn may append the proposals. Then the group has no pending ones. On
        a system without turns, this returns at once.
        """
        queue = self._store.host_queue
        # The holder of the turn may wait for the append service of this process, so the service takes no turn.
        if queue is None or not self._replica.is_open or self._announcements.own_service is not None:
            yield self._requests_of_others(group)
            return
        with queue.turn(earliest_deadline(group.pending)) as turn:
            if not turn.begin() and self._is_overtaken(turn, group):
                self._environment.reached("log.shared.appended_by_another")
                group.drop_settled()
                yield RequestsOfOthers()
                return
            messages = turn.messages()
            others = self._requests_of_others(group, self._shared.decoded(messages))
            group.drop_settled()
            yield others
            # Not after an error: the put may have landed, and the next process must read the log.
            turn.newest = self._replica.newest_records(LARGEST_MESSAGE_BYTES)
            if others.considered:
                turn.answer(min(others.considered, len(messages)))

    def _requests_of_others(self, group: AppendGroup, messages: Sequence[Message | None] = ()) -> RequestsOfOthers:
        """Return the requests in these messages, and in the messages that are proposals of this process."""
        found = list(messages)
        for proposal in group.pending:
            if isinstance(proposal.content, OthersMessages):
                found += proposal.content.messages
        if max((each.slot for each in found if each is not None), default=-1) > self._replica.slot:
            # A sender knows a newer state, on which its requests may be valid.
            group.read_tail()
        included = self._replica.included
        return RequestsOfOthers([() if each is None or each.name in included else each.with_ids for each in found])

    def _is_overtaken(self, turn: Turn, group: AppendGroup) -> bool:
        """Wait for this process's turn. Return True if other processes append all its proposals before it."""
        began_ms = self._environment.monotonic_ms()
        with_time = group.with_time(group.pending) if turn.is_crowded else []
        message = self._shared.message(self._replica, with_time, LARGEST_MESSAGE_BYTES)
        earlier_holder_knows = False
        try:
            while True:
                if message:
                    self._environment.reached("log.shared.before_send")
                holder_knows = turn.ask(message)
                if holder_knows:
                    self._environment.reached("log.shared.sent")
                # The holder of an earlier turn may have appended the requests, and have died before it answered.
                if earlier_holder_knows and group.finish_landed():
                    return True
                if not turn.wait():
                    # Others may have appended during the wait.
                    return group.finish_landed()
                earlier_holder_knows = holder_knows
                # A holder answers each message whose requests it appended. So if it hands over the turn without an
                # answer, no record has these requests, and the log need not be read.
                is_newest = self._replica.follow(turn.handed_over)
                if is_newest:
                    self._append_id_of_host = self._replica.append_id
                if turn.is_appended:
                    if group.finish_landed(refresh=not is_newest):
                        return True
                    # The remaining requests need a turn of this process. A repeated message would end each wait early.
                    message = b""
                if turn.begin():
                    return group.finish_landed(refresh=not is_newest)
        finally:
            self._counts.waited_ms += self._environment.monotonic_ms() - began_ms
            self._counts.by_others += group.landed_count

    def _gives_way(self) -> bool:
        """Return True if this process should let another host put the next record: its own host put the newest one.

        The losers of the last race must read the winner's record before they put the next one. The winner need not, so
        without a pause it would win every race. It learns of other hosts only when it loses a race. So it also gives
        way from time to time without knowing of any.
        """
        if self._replica.append_id != self._append_id_of_host or not self._store.is_remote:
            return False
        if not self._replica.is_open:
            # The log is being created. There is no record to read yet.
            return False
        now_ms = self._environment.monotonic_ms()
        if now_ms < self._competes_until_ms:
            return True
        if now_ms < self._gave_way_ms + _COMPETITION_MS:
            return False
        self._gave_way_ms = now_ms
        return True

    def won(self, group: AppendGroup, record: NextRecord) -> None:
        """Note that a record of this process has got its slot. The group continues with its other proposals."""
        self._append_id_of_host = record.slot_record.append_id
        group.continue_after(record)

    def lost(self, group: AppendGroup) -> None:
        """Note that another process has put the record for a slot first."""
        group.races += 1
        self._competes_until_ms = self._environment.monotonic_ms() + _COMPETITION_MS

    def pause(self, group: AppendGroup) -> None:
        """Pause after a lost race, and after several races go to the newest slot.

        A pause within a turn would only delay the other processes of this host, so call this after the turn.
        """
        races = min(group.races, _LONGEST_RACE)
        # In a remote store the processes that lost a race read the winner's record for about the same time. The one
        # that lost the most races pauses least, so it puts first.
        back_off(self._environment, _LONGEST_RACE + 1 - races if self._store.is_remote else races)
        group.drop_settled()
        if group.pending and group.races > 1:
            # Other processes append faster than this one folds slot by slot.
            group.read_tail()
