"""Appending records: one thread of a process puts the requests of all its threads into the next slot.

A record is validated against the state after the newest slot, and put conditionally into the next slot. A process that
loses the race for a slot folds the winner's record and validates its requests again. Processes share records (see
``shared_commits``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    EosLogError,
    InvalidRequest,
    OutcomeLost,
    StoreUnavailable,
    StoreVanished,
    UnsupportedFormat,
)
from eoslog.log.append_client import LARGEST_REQUEST_BYTES, AppendClient
from eoslog.log.append_queue import (
    AppendCounts,
    AppendQueue,
    InFlight,
    Proposal,
    SentRequest,
    earliest_deadline,
    sort_proposals,
)
from eoslog.log.conditional_append import ConditionalAppend
from eoslog.log.machine import Machine, shared_entries
from eoslog.log.messages import Message, OthersRequests
from eoslog.log.replica import Moment, Replica
from eoslog.log.shared_commits import SharedCommits
from eoslog.log.slots import (
    LARGEST_RECORD_BYTES,
    AppendServiceAnnouncement,
    IncludedRequest,
    SlotRecord,
    encode_line,
    entries_of,
    first_line,
    slot_body,
    slot_path,
)
from eoslog.storage import tracing
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import LARGEST_MESSAGE_BYTES, HostQueue, Turn
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")
_logger = logging.getLogger(__name__)
_LARGEST_SHARED_RECORD_BYTES = 4 << 20
_COMPETITION_MS = 10_000
"""After a lost race a process expects for this time that others compete for slots (ms). Without a lost race it gives
way once in this time."""
_RACES_TO_GIVE_WAY = 2
"""A process that gives way pauses longer than one that has lost many races."""
_SHORTEST_TIME_MS = 1_000
"""A request with less time left is not sent to another process (ms)."""
_LONGEST_RACE = 5
"""After this number of lost races the pause no longer changes. A lost race means that another process appended."""


class _Base(NamedTuple):
    """The state that a record was validated against."""

    state: Any
    slot: int
    last_check: Moment
    opening: int
    """How often the replica had been opened at that state."""


@dataclass(frozen=True)
class OwnService:
    """The announcement of an append service in the records of its process."""

    service_id: str
    address: str
    certificate_sha256: str | None
    lease_ms: int
    """An announcement expires this long after its record was made (ms)."""
    replaces: str | None = None
    """The id of a service that did not answer, whose announcement this one replaces."""
    is_withdrawn: bool = False
    """True if the service ends. Its records announce no service then."""

    def at(self, now_ms: int) -> AppendServiceAnnouncement | None:
        """Return the announcement in a record that is made at ``now_ms`` (ms by the store's clock)."""
        if self.is_withdrawn:
            return None
        return AppendServiceAnnouncement(
            service_id=self.service_id,
            address=self.address,
            expires_ms=now_ms + self.lease_ms,
            certificate_sha256=self.certificate_sha256,
        )


@dataclass(slots=True)
class _Attempts:
    """The state that one attempt to put a record passes to the next."""

    append_id: str
    tail_slot: int | None
    """The newest slot when this append last refreshed the replica; None if it has not done so."""
    races: int = 0
    """The number of lost races for a slot."""
    has_lost: bool = False
    """True if the last attempt lost its race."""
    most: int = 1 << 30
    """The largest number of proposals in the next record."""
    with_overdue: bool = True
    """True if the next record also aborts overdue transactions."""
    others: Sequence[OthersRequests] = ()
    """Requests of other processes, which the next record also takes."""
    taken_others: Sequence[OthersRequests] | None = None
    """The requests of others that the record of the last attempt took; None if that attempt put no record."""


class Appender(Generic[S]):
    """Appends the requests of one process to a log. Safe to share between threads."""

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine[S],
        environment: Environment,
        replica: Replica[S],
        conditional_append: ConditionalAppend,
    ) -> None:
        self.store = store
        self.machine = machine
        self.environment = environment
        self.replica = replica
        self.counts = AppendCounts()
        self._queue = AppendQueue(environment, self._append_all)
        self._conditional_append = conditional_append
        self._shared = SharedCommits(store.url, environment, machine)
        self._client = AppendClient(store, environment)
        self.own_service: OwnService | None = None
        """The append service of this process; None if it runs none."""
        self._append_id_of_host = ""
        """The append id of the newest record that a process of this host is known to have put."""
        self._competes_until_ms = 0
        """Until when this process expects that other hosts compete for slots (elapsed time, ms)."""
        self._gave_way_ms = environment.monotonic_ms()
        """When this process last gave way without knowing of other hosts (elapsed time, ms)."""

    def settle(self, proposal: Proposal) -> None:
        if not self._queue.settle(proposal):
            # An interrupted leader may have sent the proposal before it was queued again.
            raise self._unsettled(proposal)

    def _out_of_time(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.store.url}: the time was up before a record was written; nothing was appended")

    def _unsettled(self, proposal: Proposal) -> EosLogError:
        """Return the error for a proposal that no thread attempts any more: not appended, or an unknown outcome."""
        if proposal.sent is not None:
            return self._unknown_request(proposal, proposal.sent)
        return (
            self._out_of_time() if proposal.in_flight is None else self._conditional_append.unknown(*proposal.in_flight)
        )

    def _append_all(self, proposals: list[Proposal]) -> None:
        for proposal in proposals:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.sent is not None or proposal.in_flight is not None:
                # An interrupt stopped the leader that sent it. A second interrupt came before the leader settled it.
                proposal.fail(self._unsettled(proposal))
        proposals = [proposal for proposal in proposals if not proposal.done]
        try:
            for first in [proposal for proposal in proposals if proposal.first]:
                self._append_rounds([first])
            proposals = [proposal for proposal in proposals if not proposal.done]
            if proposals and (not self.replica.is_open or self.replica.is_expired()):
                self.replica.open()
            self._append_rounds(proposals)
        except BaseException as error:
            self.replica.reset_unless_sound(error)
            for proposal in proposals:
                if proposal.has_landed:
                    proposal.finish()
                if not proposal.done:
                    proposal.fail(self._outcome(proposal, error))
            if not isinstance(error, Exception):
                raise
        finally:
            for proposal in proposals:
                if proposal.sent is not None:
                    self.replica.awaited.pop(proposal.sent.request_id, None)

    def _outcome(self, proposal: Proposal, error: BaseException) -> BaseException:
        """Return the error for one proposal of an attempt that ended with ``error``."""
        if proposal.sent is not None:
            return self._unknown_request(proposal, proposal.sent)
        if proposal.in_flight is not None:
            return error if isinstance(error, Exception) else self._conditional_append.unknown(*proposal.in_flight)
        if isinstance(error, CommitStateUnknown) or not isinstance(error, Exception):
            return StoreUnavailable(
                f"{self.store.url}: the record before this one was not settled. Nothing was appended; try again"
            )
        return error

    def _append_rounds(self, pending: list[Proposal]) -> None:
        """Settle proposals, record by record."""
        attempts = _Attempts(self.environment.new_id(), -1 if pending and pending[0].first else None)
        while pending := self._append_through_service(pending, attempts):
            # The holder of the turn may wait for the append service of this process, so the service takes no turn.
            if self.store.host_queue is None or not self.replica.is_open or self.own_service is not None:
                self._take_messages(pending, attempts)
                pending = self._append_with_others(pending, attempts)
            else:
                pending = self._append_in_turn(self.store.host_queue, pending, attempts)
            if pending and attempts.has_lost:
                # Pause after the turn has ended. A pause within the turn would only delay other processes.
                races = min(attempts.races, _LONGEST_RACE)
                # In a remote store the processes that lost a race read the winner's record for about the same time. The
                # one that lost the most races pauses least, so it puts first.
                self._conditional_append.back_off(_LONGEST_RACE + 1 - races if self.store.is_remote else races)
                pending = self._patient(pending)
                if pending and attempts.races > 1:
                    # Other processes append faster than this one folds slot by slot. Go to the newest slot.
                    self._read_tail(attempts)

    def _append_through_service(self, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Let the append service append the requests that it may append. Return the proposals that are not settled.

        Nothing depends on the service. If it does not answer, this process appends the requests itself.
        """
        if not pending or not self._reaches_service():
            return pending
        unsent = [each for each in pending if each.sent is None and shared_entries(each.request)]
        if not unsent:
            return pending
        began_ms = self.environment.monotonic_ms()
        with_time = self._with_time(unsent)
        message = self._shared.message(self.replica, with_time, LARGEST_REQUEST_BYTES)
        if not message:
            return pending
        self.environment.reached("log.service.before_send")
        records = self._client.ask(message, earliest_deadline(with_time))
        self.environment.reached("log.service.answered")
        # Without an answer, the service may have appended the requests all the same.
        self._have_landed(pending, attempts, refresh=records is None or not self.replica.follow(records))
        self.counts.waited_ms += self.environment.monotonic_ms() - began_ms
        self.counts.by_others += sum(proposal.has_landed for proposal in pending)
        return self._patient(pending)

    def _reaches_service(self) -> bool:
        """Return True if the log announces the append service of another process, and this one is connected to it."""
        announced, own = self.replica.append_service, self.own_service
        is_own = announced is not None and own is not None and announced.service_id == own.service_id
        return announced is not None and not is_own and self._client.reach(announced)

    def _ask_for_slot(self, attempts: _Attempts, deadline_ms: int | None) -> bool:
        """Ask the append service to leave the next slot to this process. Return True if it does.

        A request that only this process may append would lose each race against a service that is busy.

        Args:
            deadline_ms: when the callers give up (elapsed time, ms).
        """
        records = self._client.ask(self._shared.request_for_a_slot(self.replica), deadline_ms)
        if records is None:
            return False
        if not self.replica.follow(records):
            # This process is far behind, or the store repeats no records.
            self._read_tail(attempts)
        return True

    def _with_time(self, pending: list[Proposal]) -> list[Proposal]:
        """Return the proposals that may be sent: if the deadline of a sent request passes, its outcome is unknown."""
        soon_ms = self.environment.monotonic_ms() + _SHORTEST_TIME_MS
        return [each for each in pending if each.deadline_ms is None or each.deadline_ms > soon_ms]

    def _take_messages(
        self, pending: list[Proposal], attempts: _Attempts, messages: Sequence[Message | None] = ()
    ) -> None:
        """Let the next record take the requests in these messages, and those in the messages of the proposals."""
        found = [*messages, *(message for proposal in pending for message in proposal.messages)]
        if max((each.slot for each in found if each is not None), default=-1) > self.replica.slot:
            # A sender knows a newer state, on which its requests may be valid.
            self._read_tail(attempts)
        included = self.replica.included
        attempts.others = [() if each is None or each.name in included else each.with_ids for each in found]

    def _append_in_turn(self, queue: HostQueue, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Wait for this process's turn, and put a record.

        While it waits, the process that has the turn may append the requests for it.

        Returns:
            The proposals that are not settled, in their order.
        """
        with queue.turn(earliest_deadline(pending)) as turn:
            if not turn.begin() and self._is_overtaken_in_queue(turn, pending, attempts):
                self.environment.reached("log.shared.appended_by_another")
                return self._patient(pending)
            messages = turn.messages()
            self._take_messages(pending, attempts, self._shared.decoded(messages))
            pending = self._append_with_others(self._patient(pending), attempts)
            # Not after an error: the put may have landed, and the next process must read the log.
            turn.newest = self.replica.newest_records(LARGEST_MESSAGE_BYTES)
            if attempts.taken_others:
                turn.answer(min(len(attempts.taken_others), len(messages)))
            return pending

    def _is_overtaken_in_queue(self, turn: Turn, pending: list[Proposal], attempts: _Attempts) -> bool:
        """Wait for this process's turn. Return True if other processes append all its requests before it."""
        began_ms = self.environment.monotonic_ms()
        with_time = self._with_time(pending) if turn.is_crowded else []
        message = self._shared.message(self.replica, with_time, LARGEST_MESSAGE_BYTES)
        was_sent = False
        try:
            while True:
                if message:
                    self.environment.reached("log.shared.before_send")
                turn.ask(message)
                if message:
                    self.environment.reached("log.shared.sent")
                # The holder of an earlier turn may have appended the requests, and have died before it answered.
                if was_sent and self._have_landed(pending, attempts):
                    return True
                if not turn.wait():
                    # Others may have appended during the wait.
                    return self._have_landed(pending, attempts)
                was_sent = bool(message)
                # A holder answers each message whose requests it appended. So if it hands over the turn without an
                # answer, no record has these requests, and the log need not be read.
                is_newest = self.replica.follow(turn.handed_over)
                if is_newest:
                    self._append_id_of_host = self.replica.append_id
                if turn.is_appended:
                    if self._have_landed(pending, attempts, refresh=not is_newest):
                        return True
                    # The remaining requests need a turn of this process. A repeated message would end each wait early.
                    message = b""
                if turn.begin():
                    return self._have_landed(pending, attempts, refresh=not is_newest)
        finally:
            self.counts.waited_ms += self.environment.monotonic_ms() - began_ms
            self.counts.by_others += sum(proposal.has_landed for proposal in pending)

    def _have_landed(self, pending: list[Proposal], attempts: _Attempts, *, refresh: bool = True) -> bool:
        """Return True if other processes have appended all these requests.

        Args:
            refresh: refresh the replica before.
        """
        if refresh and not all(proposal.has_landed for proposal in pending):
            self._read_tail(attempts)
        landed = [proposal for proposal in pending if proposal.has_landed]
        for proposal in landed:
            # Its thread need not wait for the rest.
            proposal.finish()
        return len(landed) == len(pending)

    def _append_with_others(self, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Put a record with the requests of this process and those of ``attempts.others``."""
        try:
            pending = self._attempt(pending, attempts)
            if attempts.has_lost:
                # Try again at once with the same requests: the winner did not yet know that writers compete.
                pending = self._attempt(self._patient(pending), attempts)
        finally:
            attempts.others = ()
        return pending

    def _read_tail(self, attempts: _Attempts) -> None:
        self.replica.refresh()
        attempts.tail_slot = self.replica.slot

    def _attempt(self, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Try to put one record. Return the proposals that are not settled, in their order."""
        replica = self.replica
        attempts.has_lost, attempts.taken_others = False, None
        asks_for_slot = bool(pending) and self._reaches_service()
        if pending and not asks_for_slot and self._gives_way():
            self._read_tail(attempts)
            self._conditional_append.back_off(_RACES_TO_GIVE_WAY)
        while pending:
            if replica.invalid is not None:
                raise CorruptRecord(f"{self.store.url}: {replica.invalid}. Nothing more is appended; run eoslog verify")
            if not replica.is_open and not pending[0].first:
                # Another thread was interrupted during a fold, and the replica was reset.
                replica.open()
            with replica.lock:
                if not replica.is_open and not pending[0].first:
                    continue
                base = _Base(replica.state, replica.slot, replica.last_check(), replica.opening)
                draft = self.machine.new_draft(replica.state, replica.slot + 1)
                included = self._include(draft, attempts.others)
                this = sort_proposals(replica, draft, pending[: attempts.most])
                if included and not this.taken:
                    # Requests of other processes may be the reason for the refusal: validate again without them.
                    draft, included = self.machine.new_draft(replica.state, replica.slot + 1), []
                    this = sort_proposals(replica, draft, pending[: attempts.most])
                this.later += pending[attempts.most :]
                if this.taken:
                    # Add the aborts last. The producer of an overdue transaction may end it in this same record, and
                    # then the producer's outcome counts.
                    if attempts.with_overdue:
                        self.machine.add_overdue(draft, self.store.clock.now_ms())
                    record = self._record(draft, this.taken, attempts.append_id, included)
                    body = slot_body(encode_line(record), replica.tail_lines(), draft.files)
            for proposal in this.landed:
                proposal.finish()
            if (this.refused or this.without_entries) and attempts.tail_slot != base.slot:
                self._read_tail(attempts)
                continue
            for proposal, error in this.refused:
                self._refuse(proposal, error, base)
            for proposal in this.without_entries:
                proposal.finish()
            if not this.taken:
                return this.later
            if len(body) > LARGEST_RECORD_BYTES and attempts.with_overdue:
                # The appends of this process come first. The next record has room for the aborts.
                attempts.with_overdue = False
                pending = this.taken + this.later
                continue
            attempts.with_overdue = True
            if len(body) > _LARGEST_SHARED_RECORD_BYTES and included:
                attempts.others = attempts.others[: len(attempts.others) // 2]
                pending = this.taken + this.later
                continue
            if len(body) > _LARGEST_SHARED_RECORD_BYTES and len(this.taken) > 1:
                attempts.most = len(this.taken) // 2
                pending = this.taken + this.later
                continue
            if len(body) > LARGEST_RECORD_BYTES:
                this.taken[0].fail(
                    InvalidRequest(
                        f"{self.store.url}: a record has {len(body)} bytes, but a slot holds at most "
                        f"{LARGEST_RECORD_BYTES}. Commit fewer files in one call"
                    )
                )
                pending = this.later
                continue
            if asks_for_slot:
                # Ask only with a record in hand: the service waits for it. Then validate on the newest state.
                asks_for_slot = False
                if self._ask_for_slot(attempts, earliest_deadline(this.taken)):
                    pending = this.taken + this.later
                    continue
            won = self._put_record(base, draft, this.taken, record, body)
            if won:
                self.counts.records += 1
                self.counts.commits += len(this.taken)
                self.counts.for_others += len(included)
                for proposal in this.taken:
                    proposal.slot = record.slot
                    # The span of the leader has the requests that put the record.
                    tracing.link(proposal.span, tracing.current())
                    proposal.finish()
                self._append_id_of_host = record.append_id
                attempts.append_id = self.environment.new_id()
                attempts.tail_slot = base.slot + 1
                attempts.taken_others = attempts.others
                if included:
                    self.environment.reached("log.shared.appended_for_others")
                return this.later
            self.counts.conflicts += 1
            attempts.races += 1
            attempts.has_lost = True
            self._competes_until_ms = self.environment.monotonic_ms() + _COMPETITION_MS
            if won is None:
                attempts.append_id = self.environment.new_id()
            return this.taken + this.later
        return pending

    def _gives_way(self) -> bool:
        """Decide whether other hosts may put the next record first. They may only after a record of this host.

        A host that lost the race for that record must read it before it puts the next one. The winner need not read
        it, so it would win each race. The winner does not know of the other host until it gives way and loses a race
        itself. So it gives way from time to time, too.
        """
        if self.replica.append_id != self._append_id_of_host or not self.store.is_remote:
            return False
        now_ms = self.environment.monotonic_ms()
        if now_ms < self._competes_until_ms:
            return True
        if now_ms < self._gave_way_ms + _COMPETITION_MS:
            return False
        self._gave_way_ms = now_ms
        return True

    def _patient(self, proposals: list[Proposal]) -> list[Proposal]:
        """Return the proposals that have time for another attempt, and fail those whose deadline has passed."""
        now_ms = self.environment.monotonic_ms()
        for proposal in proposals:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.deadline_ms is not None and proposal.deadline_ms < now_ms:
                proposal.fail(self._unsettled(proposal))
        return [proposal for proposal in proposals if not proposal.done]

    def _include(self, draft: Any, others: Sequence[OthersRequests]) -> list[IncludedRequest]:
        """Add the valid requests of other processes to a draft. Leave the rest to the processes that sent them."""
        included: list[IncludedRequest] = []
        for each in others:
            for request_id, request in each:
                child = draft.child()
                try:
                    self.machine.append_for_another(child, request.entries, request.contents())
                except Exception as error:
                    _logger.debug("%s: a request is left out: %s", self.store.url, error)
                    continue
                first_entry = len(draft.entries)
                child.merge()
                included.append(
                    IncludedRequest(
                        request_id=request_id,
                        first_entry=first_entry,
                        entry_count=len(draft.entries) - first_entry,
                    )
                )
        return included

    def _refuse(self, proposal: Proposal, error: BaseException, base: _Base) -> None:
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
                proposal.fail(self._unknown_request(proposal, sent))
                return
            if found is not None:
                proposal.tell(*found)
        if proposal.has_landed:
            proposal.finish()
        else:
            proposal.fail(error)

    def _unknown_request(self, proposal: Proposal, sent: SentRequest) -> CommitStateUnknown:
        replica = self.replica
        with replica.lock:
            # If this replica had folded a record with the request, ``has_landed`` would be true.
            was_followed = replica.opening == sent.opening and sent.request_id in replica.awaited
            slot = replica.slot if was_followed and not proposal.has_landed else sent.slot
        return CommitStateUnknown(
            f"{self.store.url}: another process was asked after slot {slot} to append a request, and no record "
            "has it yet; that process may append it later. Repeat the same call: nothing is done twice",
            slot=slot,
            append_id=sent.request_id,
            is_sent=True,
        )

    def _record(
        self,
        draft: Any,
        taken: list[Proposal],
        append_id: str,
        included: list[IncludedRequest],
    ) -> SlotRecord:
        replica = self.replica
        entries = [self.machine.encode_entry(entry) for entry in draft.entries]
        entries += [
            proposal.checkpoint[0].model_dump(exclude_none=True)
            for proposal in taken
            if proposal.checkpoint is not None
        ]
        own = [
            IncludedRequest(request_id=each.sent.request_id, first_entry=each.first_entry, entry_count=each.entry_count)
            for each in taken
            if each.sent is not None
        ]
        return SlotRecord(
            requests=tuple(included + own) or None,
            slot=replica.slot + 1,
            append_id=append_id,
            prev=replica.append_id,
            append_service=self._next_announcement(),
            checkpoint=replica.checkpoint,
            previous_checkpoint=replica.previous_checkpoint,
            entries=tuple(entries),
        )

    def _next_announcement(self) -> AppendServiceAnnouncement | None:
        """Return the append service that the next record announces."""
        found, own = self.replica.append_service, self.own_service
        now_ms = self.store.clock.now_ms()
        if found is not None and not found.is_current(now_ms):
            found = None
        if own is None or (found is not None and found.service_id not in (own.service_id, own.replaces)):
            return found
        return own.at(now_ms)

    def _put_record(
        self, base: _Base, draft: Any, taken: list[Proposal], record: SlotRecord, body: bytes
    ) -> bool | None:
        """Put a record into the slot after ``base``.

        Another thread may refresh the replica meanwhile, and so fold this record or the winner's.

        Returns:
            True if the record landed. False if another record has the slot. None if the replica was opened again: then
            the caller tries again.
        """
        replica = self.replica
        slot, append_id = record.slot, record.append_id
        asked = replica.moment()
        if slot > 0 and not replica.is_long_after(base.last_check) and self.store.is_missing(slot_path(slot - 1)):
            # No process deletes the newest slot. A record after a missing one would make the store unreadable.
            raise StoreVanished(
                f"{self.store.url}: slot {slot - 1} is missing, although this process has read it: an earlier state "
                "replaced the store. Nothing was written. Call eoslog.connect() again to continue from that state"
            )
        for proposal in taken:
            proposal.in_flight = InFlight(slot, append_id)
            proposal.attempts.puts[proposal.in_flight] = proposal.answer
        try:
            winner = self._conditional_append.put_until_known(
                slot, body, append_id, deadline_ms=earliest_deadline(taken)
            )
        except UnsupportedFormat as error:
            if replica.is_long_after(replica.dated(asked)):
                raise self._conditional_append.unknown(slot, append_id) from error
            raise
        if winner is None and self._is_part_of_log(base, slot, append_id):
            with replica.changing():
                if replica.state is base.state and replica.slot == base.slot:
                    draft.merge()
                    self._adopt_checkpoints(taken)
                    replica.advance(record, first_line(body))
                    replica.keep_files(slot, body)
                    replica.note_check(asked)
                elif replica.slot == base.slot:
                    # Another thread reopened the replica. The draft belongs to the replaced state, so fold the record.
                    replica.fold_body(slot, body)
            return True
        if replica.is_long_after(replica.dated(asked)):
            # This record may have landed, and may have been deleted before the present record was put there.
            raise self._conditional_append.unknown(slot, append_id)
        if winner is None:
            try:
                replica.open()
            except EosLogError as error:
                raise self._conditional_append.unknown(slot, append_id) from error
        for proposal in taken:
            proposal.in_flight = None
        if winner is not None and not replica.is_expired() and replica.fold_body(slot, winner):
            return False
        if winner is not None:
            replica.open()
        return None

    def _adopt_checkpoints(self, taken: list[Proposal]) -> None:
        for proposal in taken:
            if proposal.checkpoint is not None:
                entry, root = proposal.checkpoint
                self.replica.adopt_own_checkpoint(entry.reference, root)

    def _is_part_of_log(self, base: _Base, slot: int, append_id: str) -> bool:
        """Return True if the record that this process has just put is part of the log.

        It is, if the replica was fresh when the draft was made. Otherwise an earlier record of this slot may have been
        deleted before the put, and then the new record is not part of the log. ``base`` tells whether the replica was
        fresh then. The present replica does not: another thread may have opened it again since.

        Raises:
            CommitStateUnknown: the object store did not answer.
        """
        if base.slot >= 0 and not self.replica.is_long_after(base.last_check):
            return True
        try:
            if self._conditional_append.continues(self.replica, slot, append_id):
                return True
        except EosLogError as error:
            raise self._conditional_append.unknown(slot, append_id) from error
        self.environment.reached("log.slot.stale_win_refused")
        return False

    def find_request(self, slot: int, request_id: str) -> tuple[Sequence[Mapping[str, Any]], int] | None:
        """Find a request that was sent to another process when ``slot`` was the newest slot this process knew.

        Returns:
            Its entries in the log, and their slot. None if no record has it yet.

        Raises:
            OutcomeLost: a slot that may hold it has been deleted, or is damaged.
            StoreUnavailable, StoreAccessDenied, NotAStore
        """
        newest = self.replica.read(lambda state, newest: newest)
        for later in range(slot + 1, newest + 1):
            record = self.replica.record_at(later)
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
