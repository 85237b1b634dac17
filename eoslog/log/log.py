"""The log: contiguous slots, each put if absent. A process that puts slot n+1 proves that slot n was the last.

An append is validated against the state after the newest slot, and put conditionally into the next slot. A process that
loses the race folds the winner's record and validates again. A put without an answer is repeated, the same bytes to the
same slot, until its outcome is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    EosLogError,
    InvalidEntry,
    InvalidRequest,
    OutcomeLost,
    RetriableError,
    StoreAccessDenied,
    StoreUnavailable,
    StoreVanished,
    UnsupportedFormat,
    without_code,
)
from eoslog.log.append_queue import AppendCounts, AppendQueue
from eoslog.log.checkpoint import CheckpointRoot, write_checkpoint
from eoslog.log.checkpointing import Checkpointing
from eoslog.log.conditional_append import ConditionalAppend
from eoslog.log.machine import Machine, Request, shared_entries
from eoslog.log.proposals import AppendAttempts, InFlight, Proposal, Published, earliest_deadline, sort_proposals
from eoslog.log.replica import LogConfig, Moment, Replica
from eoslog.log.shared_commits import OthersPublication, OwnPublication, SharedCommits
from eoslog.log.slot_paths import slot_path
from eoslog.log.slot_record import (
    LARGEST_RECORD_BYTES,
    CheckpointEntry,
    CheckpointReference,
    IncludedRequest,
    SlotRecord,
    encode_line,
    entries_of,
    first_line,
    with_tail,
)
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_CHECKPOINT_ATTEMPTS = 3
_LARGEST_SHARED_RECORD_BYTES = 4 << 20
_RACES_BEFORE_SHARING = 2
_LONGEST_RACE = 5
"""After so many lost races the pause no longer grows. A lost race means that another process appended."""


class _Base(NamedTuple):
    """The state that a record was validated against."""

    state: Any
    slot: int
    proved: Moment
    opening: int
    """How often the replica had been opened then."""


@dataclass(slots=True)
class _Attempts:
    """What one attempt to put a record leaves for the next attempt."""

    token: str
    tail_slot: int | None
    """The newest slot when this append last refreshed the replica; None if it has not done so."""
    races: int = 0
    """How many races for a slot were lost."""
    has_lost: bool = False
    """Whether the last attempt lost its race."""
    appended_for_others: int | None = None
    """How many requests of other processes are in the record that the last attempt put; None if it put no record."""
    most: int = 1 << 30
    """How many proposals the next record takes at most."""
    with_overdue: bool = True
    """Whether the next record takes aborts of overdue transactions."""
    others: Sequence[OthersPublication] = ()
    """Publications of other processes, which the next record also takes."""


class Log(Generic[S]):
    """The log of one store, as one process follows and writes it. Safe to share between threads, not across a fork."""

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine[S],
        environment: Environment,
        config: LogConfig | None = None,
    ) -> None:
        self.store = store
        self.machine = machine
        self.environment = environment
        self.config = config or LogConfig()
        self.replica: Replica[S] = Replica(store, machine, environment, self.config)
        self.before_checkpoint: Callable[[], object] = lambda: None
        """Called before a checkpoint that is due, to make the state smaller."""
        self.counts = AppendCounts()
        self._queue = AppendQueue(environment, self._append_all)
        self._claims = ConditionalAppend(store, environment, self.config.commit_timeout_ms)
        self._shared = SharedCommits(store, environment, machine)
        self._checkpointing = Checkpointing(environment, self._make_smaller_and_checkpoint)

    def adopt_grace(self, grace_ms: int) -> None:
        """Use the grace of this log. All processes that follow the log or delete slots use the same."""
        with self.replica.lock:
            self.config = self.replica.config = replace(self.config, grace_ms=grace_ms)

    def read(self, function: Callable[[S, int], T], *, refresh: bool = True) -> T:
        """Call ``function`` with the state and its slot; by default with those of the newest slot of the log.

        A read does not wait for records that other threads put. The state does not change while ``function`` runs, and
        no thread can append meanwhile. So ``function`` should be quick, and send no requests.
        """
        replica = self.replica
        while True:
            if refresh or not replica.is_open:
                try:
                    replica.refresh()
                except BaseException as error:
                    self._reset_view_unless_sound(error)
                    raise
            with replica.lock:
                # The replica is closed again if another thread was interrupted since the refresh.
                if replica.is_open:
                    return function(replica.state, replica.slot)

    def append(
        self,
        request: Request[T],
        *,
        timeout_ms: int | None = None,
        attempts: AppendAttempts | None = None,
    ) -> T:
        """Apply a request to the newest state, append its entries, and return its answer.

        Requests of several threads share a record. If writers compete for slots, another process may append the request
        (see ``ShareableRequest``).

        Args:
            timeout_ms: begin no further attempt after so long. A record with proposals of several threads is given up
                when the first of their deadlines passes.
            attempts: told of each put and each publication of the request, before it is sent.

        Raises:
            CommitStateUnknown: the outcome of the record was not known in time, or its slot was deleted meanwhile, or
                another process may still append the request.
            StoreUnavailable: the time was up, and nothing was appended.
            Whatever the request raises at the log's tail.
        """
        proposal = Proposal(request, deadline_ms=self._deadline(timeout_ms), attempts=attempts or AppendAttempts())
        self._submit(proposal)
        answer: T = proposal.result()
        self._checkpointing.run_if_due(self.replica)
        return answer

    def create(self, request: Request[object]) -> None:
        """Write slot 0 of a log that does not exist yet.

        Raises:
            Whatever the request raises on a log that has been begun meanwhile.
        """
        proposal = Proposal(request, first=True)
        self._submit(proposal)
        proposal.result()

    def resolve(self, slot: int, token: str, *, timeout_ms: int | None = None) -> bool:
        """Whether the record of an append that raised ``CommitStateUnknown`` landed: occupy its slot, then read it.

        Args:
            timeout_ms: begin no further attempt after so long (ms); None: as long as the log's settings say.

        Raises:
            CommitStateUnknown: as before, of the same append: the store does not answer, or refuses.
            OutcomeLost: the slot has been deleted since.
        """
        try:
            return self.winner(slot, timeout_ms=timeout_ms) == token
        except (RetriableError, StoreAccessDenied) as error:
            raise CommitStateUnknown(
                f"what became of the append to slot {slot} is still unknown: {error}", slot=slot, token=token
            ) from error

    def find_request(self, slot: int, request_id: str) -> tuple[Sequence[Mapping[str, Any]], int] | None:
        """Find a request that was published when ``slot`` was the newest slot this process knew.

        Returns:
            Its entries as they stand in the log, and their slot. None if no record has it yet.

        Raises:
            OutcomeLost: a slot that may have it has been deleted, or is damaged.
            StoreUnavailable, StoreAccessDenied, NotAStore
        """
        newest = self.read(lambda state, newest: newest)
        for later in range(slot + 1, newest + 1):
            record = self.replica.record_at(later)
            if record is None:
                raise OutcomeLost(
                    f"a request was published after slot {slot}, and slot {later} is gone or damaged, which may have "
                    "it; whether it landed is to be seen by the work itself (admin.last_committed, the group's "
                    "offsets, or the rows)"
                )
            for request in record.requests or ():
                if request.request_id == request_id:
                    return entries_of(record, request), later
        return None

    def winner(self, slot: int, *, timeout_ms: int | None = None) -> str:
        """The token of the record that has a slot; if none has, the slot is occupied, so that none comes later.

        Raises:
            OutcomeLost: the slot has been deleted, or is damaged.
            RetriableError, StoreAccessDenied, NotAStore
            CorruptRecord, UnsupportedFormat: the log around it cannot be read; ask again.
        """
        deadline_ms = self._deadline(timeout_ms)
        if self.replica.slot < slot and self.read(lambda state, newest: newest) < slot:
            occupier = Proposal(None, occupy=True, deadline_ms=deadline_ms)
            self._submit(occupier)
            occupier.result()
        try:
            token = self._claims.token_of(slot, deadline_ms)
            why = "has been deleted since"
        except (CorruptRecord, UnsupportedFormat) as error:
            token, why = None, f"cannot be read: {without_code(error)}"
        # Afterwards: what came to the slot's name when it was deleted came after the checkpoints above it.
        self.read(lambda state, newest: None)
        if token is not None and (
            not self._may_be_deleted(slot) or self._claims.continues(self.replica, slot, token, deadline_ms)
        ):
            return token
        raise OutcomeLost(
            f"an append to slot {slot} was not answered, and the slot {why}; whether it landed is to be seen by "
            "the work itself (admin.last_committed, the group's offsets, or the rows)"
        )

    def _deadline(self, timeout_ms: int | None) -> int | None:
        return None if timeout_ms is None else self.environment.monotonic_ms() + timeout_ms

    def _may_be_deleted(self, slot: int) -> bool:
        """Slots are deleted only below the older of the two checkpoints that the log names."""
        older = self.replica.previous_checkpoint
        return older is not None and slot < older.slot

    def _submit(self, proposal: Proposal) -> None:
        if not self._queue.settle(proposal):
            # A thread that was interrupted may have sent it, and left it in the queue.
            raise self._unsettled(proposal)

    def _out_of_time(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.store.url}: the time was up before a record was written; nothing was appended")

    def _unsettled(self, proposal: Proposal) -> EosLogError:
        """The error for a proposal that no thread attempts any more: not appended, or its outcome is unknown."""
        if proposal.published is not None:
            return self._unknown_request(proposal, proposal.published)
        return self._out_of_time() if proposal.in_flight is None else self._claims.unknown(*proposal.in_flight)

    def _append_all(self, proposals: list[Proposal]) -> None:
        for proposal in proposals:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.published is not None or proposal.in_flight is not None:
                # The thread that sent it was interrupted, and a second time while it settled the other proposals.
                proposal.fail(self._unsettled(proposal))
        proposals = [proposal for proposal in proposals if not proposal.done]
        try:
            for first in [proposal for proposal in proposals if proposal.first]:
                self._append_rounds([first])
            proposals = [proposal for proposal in proposals if not proposal.done]
            if proposals and (not self.replica.is_open or self.replica.is_stale()):
                self.replica.open()
            self._append_rounds(proposals)
        except BaseException as error:
            self._reset_view_unless_sound(error)
            for proposal in proposals:
                if proposal.has_landed:
                    proposal.finish()
                if not proposal.done:
                    proposal.fail(self._outcome(proposal, error))
            if not isinstance(error, Exception):
                raise
        finally:
            for proposal in proposals:
                if proposal.published is not None:
                    self.replica.awaited.pop(proposal.published.request_id, None)

    def _outcome(self, proposal: Proposal, error: BaseException) -> BaseException:
        """The error for one proposal of an attempt that ended with ``error``."""
        if proposal.published is not None:
            return self._unknown_request(proposal, proposal.published)
        if proposal.in_flight is not None:
            return error if isinstance(error, Exception) else self._claims.unknown(*proposal.in_flight)
        if isinstance(error, CommitStateUnknown) or not isinstance(error, Exception):
            return StoreUnavailable(
                f"{self.store.url}: the record before this one was not settled; nothing was appended"
            )
        return error

    def _reset_view_unless_sound(self, error: BaseException) -> None:
        """Reset the replica unless ``error`` is eoslog's own. Others, as Ctrl-C, may have stopped a fold half-way."""
        if not isinstance(error, EosLogError):
            self.replica.reset()

    def _append_rounds(self, pending: list[Proposal]) -> None:
        """Settle proposals, record by record."""
        attempts = _Attempts(self.environment.new_token(), -1 if pending and pending[0].first else None)
        while pending:
            if self._is_contended(pending, attempts):
                pending = self._share(pending, attempts)
                continue
            with self.store.turn() as has_waited:
                if has_waited:
                    # Other processes have appended meanwhile. A refresh costs less than a lost race.
                    self._look_at_tail(attempts)
                pending = self._attempt(pending, attempts)
                if attempts.has_lost and self.store.queues_writers:
                    # The winner had its turn before. Try again at once: few processes append outside of their turn.
                    self._look_at_tail(attempts)
                    pending = self._attempt(self._patient(pending), attempts)
            if attempts.has_lost and not self._is_contended(pending, attempts):
                # Pause only after the turn has ended: otherwise other processes would wait for nothing.
                self._claims.back_off(min(attempts.races, _LONGEST_RACE))
                pending = self._patient(pending)
                if pending and attempts.races > 1:
                    # Others are faster. Following slot by slot, this process would never reach the newest slot.
                    self._look_at_tail(attempts)

    def _is_contended(self, pending: list[Proposal], attempts: _Attempts) -> bool:
        """Whether to share a record with other processes instead of racing for a slot."""
        if not self._shared.is_possible:
            return False
        has_requests = any(shared_entries(proposal.request) for proposal in pending)
        return self.replica.is_contended or (has_requests and attempts.races >= _RACES_BEFORE_SHARING)

    def _share(self, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Publish requests, and return when they are in a record of this process or of another one.

        Returns:
            The proposals that are not settled, in their order.
        """
        own = self._shared.publish(self.replica, pending)
        is_settled_here = bool(own.path)
        try:
            while pending:
                # A proposal that no other process may append does not wait for other processes.
                if self._shared.look(self.replica, own) or any(proposal.published is None for proposal in pending):
                    is_turn = True
                else:
                    is_turn = not self._is_overtaken(own, pending, attempts)
                    pending = self._patient(pending)
                if not pending:
                    self.environment.reached("log.shared.appended_by_another")
                    is_settled_here = False
                elif is_turn:
                    pending = self._append_with_others(own, pending, attempts)
        finally:
            if is_settled_here:
                # Otherwise another process has appended the requests and deletes them. Or their deadlines have passed:
                # then their outcome is unknown in any case, and another process may still append them.
                self._shared.delete([own.path])
        return pending

    def _is_overtaken(self, own: OwnPublication, pending: list[Proposal], attempts: _Attempts) -> bool:
        """Wait for a new record. False if none came in time: then this process should append."""
        slot = self.replica.slot
        began_ms = self.environment.monotonic_ms()
        deadline_ms = earliest_deadline(pending)
        end_ms = own.patient_until_ms if deadline_ms is None else min(own.patient_until_ms, deadline_ms)
        try:
            while self.environment.monotonic_ms() <= end_ms:
                self.environment.sleep_ms(own.pause_ms(self.environment.jitter()))
                self._look_at_tail(attempts)
                if self.replica.slot > slot or all(proposal.has_landed for proposal in pending):
                    return True
            return False
        finally:
            self.counts.waited_ms += self.environment.monotonic_ms() - began_ms
            self.counts.by_others += sum(proposal.has_landed for proposal in pending)

    def _append_with_others(self, own: OwnPublication, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Put a record with what this process and the others have published."""
        attempts.others = self._shared.of_others(own)
        if own.newest_slot > self.replica.slot:
            # Another process knew a newer slot, so a put to the next slot of this replica would lose.
            self._look_at_tail(attempts)
        try:
            pending = self._attempt(self._patient(pending), attempts)
            if attempts.has_lost:
                # Try again at once with the same publications: the winner did not yet know that writers compete.
                pending = self._attempt(self._patient(pending), attempts)
            if attempts.appended_for_others:
                self.environment.reached("log.shared.appended_for_others")
            if attempts.appended_for_others is not None:
                # Also those with requests that were left out. Such a request was done before or is not valid here; if
                # it becomes valid later, its own process appends it.
                self._shared.delete([each.path for each in attempts.others])
        finally:
            attempts.others = ()
        return pending

    def _look_at_tail(self, attempts: _Attempts) -> None:
        self.replica.refresh()
        attempts.tail_slot = self.replica.slot

    def _attempt(self, pending: list[Proposal], attempts: _Attempts) -> list[Proposal]:
        """Try to put one record. Returns the proposals that are not settled, in their order."""
        replica = self.replica
        attempts.has_lost, attempts.appended_for_others = False, None
        while pending:
            if replica.invalid is not None:
                raise CorruptRecord(f"{self.store.url}: {replica.invalid}; nothing more is appended")
            if not replica.is_open and not pending[0].first:
                # Another thread was interrupted during a fold, and the replica was reset.
                replica.open()
            with replica.lock:
                if not replica.is_open and not pending[0].first:
                    continue
                base = _Base(replica.state, replica.slot, replica.proved(), replica.opening)
                draft = self.machine.new_draft(replica.state, replica.slot + 1)
                included = self._include(draft, attempts.others)
                this = sort_proposals(replica, draft, pending[: attempts.most])
                if included and not this.taken:
                    # Requests of other processes may be the reason for the refusal: validate again without them.
                    draft, included = self.machine.new_draft(replica.state, replica.slot + 1), []
                    this = sort_proposals(replica, draft, pending[: attempts.most])
                this.later += pending[attempts.most :]
                if this.taken:
                    # Last: the producer of an overdue transaction may end it in this same record. Then the producer's
                    # outcome counts.
                    if attempts.with_overdue:
                        self.machine.add_overdue(draft, self.store.clock.now_ms())
                    record = self._record(draft, this.taken, attempts.token, included)
                    body = with_tail(encode_line(record), replica.tail_lines())
            for proposal in this.landed:
                proposal.finish()
            if (this.refused or this.without_entries) and attempts.tail_slot != base.slot:
                self._look_at_tail(attempts)
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
                        f"{self.store.url}: a record of {len(body)} bytes is larger than the {LARGEST_RECORD_BYTES} "
                        "that a slot holds; commit fewer files at once"
                    )
                )
                pending = this.later
                continue
            won = self._claim(base, draft, this.taken, record, body)
            if won:
                self.counts.records += 1
                self.counts.commits += len(this.taken)
                self.counts.for_others += len(included)
                for proposal in this.taken:
                    proposal.finish()
                attempts.token = self.environment.new_token()
                attempts.tail_slot = base.slot + 1
                attempts.appended_for_others = len(included)
                return this.later
            self.counts.conflicts += 1
            attempts.races += 1
            attempts.has_lost = True
            if won is None:
                attempts.token = self.environment.new_token()
            return this.taken + this.later
        return pending

    def _patient(self, proposals: list[Proposal]) -> list[Proposal]:
        """Return the proposals that have time for another attempt, and fail those whose deadline has passed."""
        now_ms = self.environment.monotonic_ms()
        for proposal in proposals:
            if proposal.has_landed:
                proposal.finish()
            elif proposal.deadline_ms is not None and proposal.deadline_ms < now_ms:
                proposal.fail(self._unsettled(proposal))
        return [proposal for proposal in proposals if not proposal.done]

    def _include(self, draft: Any, others: Sequence[OthersPublication]) -> list[IncludedRequest]:
        """Add the valid requests of other processes to a draft. Leave the rest to the processes that published them."""
        included: list[IncludedRequest] = []
        for each in others:
            for request_id, request in each.requests:
                child = draft.child()
                try:
                    self.machine.append_for_another(child, request.entries)
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
        """Fail a proposal that is refused at the log's tail, unless another process has appended it before."""
        published = proposal.published
        if published is not None and published.opening != base.opening:
            # The replica was opened again and passed over records. The request may be in one of them.
            try:
                found = self.find_request(published.slot, published.request_id)
            except OutcomeLost as lost:
                proposal.fail(lost)
                return
            except EosLogError:
                proposal.fail(self._unknown_request(proposal, published))
                return
            if found is not None:
                proposal.tell(*found)
        if proposal.has_landed:
            proposal.finish()
        else:
            proposal.fail(error)

    def _unknown_request(self, proposal: Proposal, published: Published) -> CommitStateUnknown:
        replica = self.replica
        with replica.lock:
            # A record that was folded meanwhile and has the request would have told the proposal.
            was_followed = replica.opening == published.opening and published.request_id in replica.awaited
            slot = replica.slot if was_followed and not proposal.has_landed else published.slot
        return CommitStateUnknown(
            f"{self.store.url}: a request was published after slot {slot}, and no record has it yet; another "
            "process may append it later. Repeat the same call: nothing is done twice",
            slot=slot,
            token=published.request_id,
            is_published=True,
        )

    def _record(self, draft: Any, taken: list[Proposal], token: str, included: list[IncludedRequest]) -> SlotRecord:
        replica = self.replica
        entries = [self.machine.encode_entry(entry) for entry in draft.entries]
        entries += [
            proposal.checkpoint[0].model_dump(exclude_none=True)
            for proposal in taken
            if proposal.checkpoint is not None
        ]
        own = [
            IncludedRequest(
                request_id=each.published.request_id, first_entry=each.first_entry, entry_count=each.entry_count
            )
            for each in taken
            if each.published is not None
        ]
        return SlotRecord(
            requests=tuple(included + own) or None,
            contended=True if included else None,
            slot=replica.slot + 1,
            token=token,
            prev=replica.token,
            checkpoint=replica.checkpoint,
            previous_checkpoint=replica.previous_checkpoint,
            entries=tuple(entries),
        )

    def _claim(self, base: _Base, draft: Any, taken: list[Proposal], record: SlotRecord, body: bytes) -> bool | None:
        """Put the slot after ``base``. True: won. False: lost to the record now folded. None: the replica was reopened.

        Another thread may refresh the replica meanwhile, and so fold this record or the winner's.
        """
        replica = self.replica
        slot, token = record.slot, record.token
        asked = replica.moment()
        if slot > 0 and not replica.is_long_after(base.proved) and self.store.is_missing(slot_path(slot - 1)):
            # No process deletes the newest slot. A record after a missing one would make the store unreadable.
            raise StoreVanished(
                f"{self.store.url}: slot {slot - 1} is missing, which this process has read: an earlier state of the "
                "store was put in its place. Nothing was written. Call eoslog.connect() again to go on from that state"
            )
        for proposal in taken:
            proposal.in_flight = InFlight(slot, token)
            proposal.attempts.puts[proposal.in_flight] = proposal.answer
        try:
            winner = self._claims.put_until_known(slot, body, token, deadline_ms=earliest_deadline(taken))
        except UnsupportedFormat as error:
            if replica.is_long_after(replica.dated(asked)):
                raise self._claims.unknown(slot, token) from error
            raise
        if winner is None and self._is_genuine(base, slot, token):
            with replica.changing():
                if replica.state is base.state and replica.slot == base.slot:
                    draft.merge()
                    self._adopt_checkpoints(taken)
                    replica.advance(record, first_line(body))
                    replica.prove(asked)
                elif replica.slot == base.slot:
                    # Reopened: the draft's changes would go into a state that nobody sees any more.
                    replica.fold_body(slot, body)
            return True
        if replica.is_long_after(replica.dated(asked)):
            # The record may have landed, and its slot been deleted, before what stands there now came.
            raise self._claims.unknown(slot, token)
        if winner is None:
            try:
                replica.open()
            except EosLogError as error:
                raise self._claims.unknown(slot, token) from error
        for proposal in taken:
            proposal.in_flight = None
        if winner is not None and not replica.is_stale() and replica.fold_body(slot, winner):
            return False
        if winner is not None:
            replica.open()
        return None

    def _adopt_checkpoints(self, taken: list[Proposal]) -> None:
        for proposal in taken:
            if proposal.checkpoint is not None:
                entry, root = proposal.checkpoint
                self.replica.adopt_own_checkpoint(entry.reference, root)

    def _is_genuine(self, base: _Base, slot: int, token: str) -> bool:
        """Whether a slot that was just won continues the log.

        It does if the replica was fresh when the draft was made. Otherwise the slot's name may have been deleted before
        the put, and the record is not part of the log. The replica of the draft counts, not the replica of now: another
        thread may have reopened it since.

        Raises:
            CommitStateUnknown: that could not be found out.
        """
        if base.slot >= 0 and not self.replica.is_long_after(base.proved):
            return True
        try:
            if self._claims.continues(self.replica, slot, token):
                return True
        except EosLogError as error:
            raise self._claims.unknown(slot, token) from error
        self.environment.reached("log.slot.stale_win_refused")
        return False

    def _make_smaller_and_checkpoint(self) -> None:
        try:
            self.before_checkpoint()
        except EosLogError as error:
            _logger.warning("%s: the state is checkpointed as large as it is: %s", self.store.url, error)
        self.checkpoint()

    def checkpoint(self) -> CheckpointReference:
        """Write down the state as it is now, and refer to it from the log.

        Returns:
            The log's checkpoint: this one, or a later one of another process that was faster.

        Raises:
            StoreUnavailable: others changed what this one rests on, each time.
        """
        problem = ""
        for _ in range(_CHECKPOINT_ATTEMPTS):
            try:
                return self._checkpoint_once()
            except InvalidEntry as error:
                problem = str(error)
        raise StoreUnavailable(f"{self.store.url}: no checkpoint could be written: {problem}")

    def _checkpoint_once(self) -> CheckpointReference:
        replica = self.replica

        def copied(state: S, slot: int) -> tuple[S, int, str, CheckpointRoot | None, int]:
            copy = self.machine.frozen_copy(state)
            return copy, slot, replica.token, replica.checkpoint_root, self.store.clock.last_date_ms

        state, slot, token, shared, upload_ms = self.read(copied, refresh=False)
        reference, root = write_checkpoint(self.store, self.environment, self.machine, state, slot, token, shared)
        own = {part.path for part in root.parts if part.path is not None}
        shares = shared is not None and any(part.path in own for part in shared.parts if part.path is not None)
        entry = CheckpointEntry(
            reference=reference, upload_ms=upload_ms, shares_with=shared.slot if shared is not None and shares else None
        )
        proposal = Proposal(None, checkpoint=(entry, root))
        self._submit(proposal)
        try:
            proposal.result()
        except InvalidEntry:
            newest = self.replica.checkpoint
            if newest is None or newest.slot < slot:
                raise
            self.environment.reached("log.checkpoint.overtaken")
            return newest
        return reference
