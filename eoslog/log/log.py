"""The log of a store: its reads, its appends and its checkpoints, as one process sees them.

A log is a sequence of consecutive slots. Each slot is put if absent, so a process that puts slot n+1 shows that slot n
was the newest. ``Replica`` holds the state for reads. ``Appender`` puts requests into slots. ``Checkpointing`` decides
when a checkpoint is due.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    CorruptRecord,
    EosLogError,
    InvalidEntry,
    OutcomeLost,
    RetriableError,
    StoreAccessDenied,
    StoreUnavailable,
    UnsupportedFormat,
)
from eoslog.log.announcements import OwnService
from eoslog.log.append_queue import AppendAttempts, OthersMessages, OwnCheckpoint, Proposal, SlotFence
from eoslog.log.appender import Appender
from eoslog.log.checkpoint import CheckpointRoot, write_checkpoint
from eoslog.log.machine import Machine, Request
from eoslog.log.messages import Message
from eoslog.log.record_put import ConditionalAppend
from eoslog.log.replica import LogConfig, Replica
from eoslog.log.slots import (
    CheckpointEntry,
    CheckpointReference,
)
from eoslog.storage import tracing
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.wording import without_code

S = TypeVar("S")
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_CHECKPOINT_ATTEMPTS = 3
_AT_MOST_EVERY = 16
_OVERDUE = 4
_ATTEMPTS_AN_INTERVAL = 8
"""The number of attempts at a checkpoint, by all processes together, in one interval between two checkpoints."""
_LONGEST_WAIT_S = 2.0


class Checkpointing:
    """Decides when a checkpoint is due, and writes one at a time. A failed checkpoint fails no append.

    A record makes a checkpoint due. The process that puts this record writes the checkpoint in the background. If no
    checkpoint follows, processes that put later records try, with some records between two attempts.
    """

    def __init__(self, environment: Environment, write: Callable[[], object]) -> None:
        self._environment = environment
        self._write = write
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._runner = 0
        """The id of the thread that writes a checkpoint; 0 if none does. Its own appends do not wait for it."""

    def run_if_due(self, replica: Replica[Any], *, has_put: bool) -> None:
        """Write a checkpoint if enough slots followed the last one. An overdue one is written in this thread.

        Args:
            has_put: this process has put the newest record.
        """
        every = replica.config.checkpoint_slots
        since = replica.slots_since_checkpoint()
        if since < every and not (since >= min(_AT_MOST_EVERY, every) and replica.tail_overflows()):
            return
        overdue = since >= _OVERDUE * every
        # A checkpoint takes as long as several records, and if several processes write one at the same time, only one
        # counts. So only the process that put the newest record tries, and not after each record.
        if not overdue and (not has_put or since % max(1, every // _ATTEMPTS_AN_INTERVAL)):
            return
        with self._lock:
            running = not self._idle.is_set()
            if not running:
                self._idle.clear()
        if running:
            if overdue and self._runner != threading.get_ident():
                self._environment.wait_for(self._idle, _LONGEST_WAIT_S)
            return
        try:
            if overdue:
                self._run()
            else:
                self._environment.background(self._run)
        except RuntimeError:  # The interpreter shuts down and starts no thread.
            self._idle.set()
        except BaseException:
            self._idle.set()
            raise

    def _run(self) -> None:
        self._runner = threading.get_ident()
        try:
            self._write()
        except EosLogError as error:
            _logger.info("no checkpoint was written: %s", error)
        except Exception:  # The append that made it due has succeeded.
            _logger.exception("no checkpoint was written")
        finally:
            self._runner = 0
            self._idle.set()


class Log(Generic[S]):
    """The log of one store, as one process follows and writes it. Safe to share between threads, not across a fork."""

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine[S],
        environment: Environment,
        config: LogConfig | None = None,
        *,
        before_checkpoint: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            before_checkpoint: called before a checkpoint that is due, to make the state smaller.
        """
        self.store = store
        self.machine = machine
        self.environment = environment
        self.config = config or LogConfig()
        self.replica: Replica[S] = Replica(store, machine, environment, self.config)
        self.before_checkpoint = before_checkpoint
        self._conditional_append = ConditionalAppend(store, environment, self.config.commit_timeout_ms)
        self.appender: Appender[S] = Appender(
            store, machine, environment, replica=self.replica, conditional_append=self._conditional_append
        )
        self._checkpointing = Checkpointing(environment, self._make_smaller_and_checkpoint)

    def adopt_slot_retention(self, slot_retention_ms: int) -> None:
        """Use the slot retention of the store's description. All processes of a store must use the same."""
        self.config = self.replica.config = replace(self.config, slot_retention_ms=slot_retention_ms)

    def read(self, function: Callable[[S, int], T], *, refresh: bool = True) -> T:
        """Call ``function`` with a state and its slot, and return its answer. By default the slot is the newest one.

        A read does not wait for records that other threads put. The state does not change while ``function`` runs, and
        no thread can append meanwhile. So ``function`` should be quick, and send no requests.

        Like each call of this class, it runs to its end in a thread of the library: an interrupt leaves no lock locked
        and no record half folded, and a signal handler can make calls of its own.
        """
        return self.environment.uninterrupted(partial(self.replica.read, function, refresh=refresh))

    def append(
        self,
        request: Request[T],
        *,
        timeout_ms: int | None = None,
        attempts: AppendAttempts | None = None,
    ) -> T:
        """Apply a request to the newest state, append its entries, and return its answer.

        Requests of several threads share a record. Another process may append the request (see ``ShareableRequest``).

        Args:
            timeout_ms: begin no further attempt after this time (ms). If a record holds requests of several threads,
                the earliest of their deadlines applies to it.
            attempts: the log notes here each put, and each message with the request, before it is sent.

        Raises:
            CommitStateUnknown: the outcome is unknown. The object store did not answer in time, the slot was deleted
                in the meantime, or another process may still append the request.
            StoreUnavailable: the time was up, and nothing was appended.
            The error with which the newest state refuses the request.
        """
        return self.environment.uninterrupted(partial(self._append, request, timeout_ms, attempts or AppendAttempts()))

    def _append(self, request: Request[T], timeout_ms: int | None, attempts: AppendAttempts) -> T:
        name = getattr(request, "name", type(request).__name__.lstrip("_"))
        with tracing.span(f"append {name}", tracing.MESSAGING | {"messaging.operation.name": name}) as span:
            proposal = Proposal(request, deadline_ms=self._deadline(timeout_ms), attempts=attempts, span=span)
            tried = len(attempts.puts)
            try:
                answer: T = self.appender.append(proposal)
            finally:
                if span is not None:
                    self._describe_append(proposal, len(attempts.puts) - tried)
        self._checkpointing.run_if_due(self.replica, has_put=proposal.slot is not None and not proposal.has_landed)
        return answer

    def _describe_append(self, proposal: Proposal, records: int) -> None:
        """Add the outcome of an append to its span.

        Args:
            records: how many records with the request this process has put, or tried to put.
        """
        is_in_own_record = proposal.slot is not None and not proposal.has_landed
        tracing.describe(
            proposal.span,
            {
                "eoslog.store": self.store.url,
                "eoslog.slot": proposal.slot,
                "eoslog.append.records": records,
                "eoslog.append.conflicts": records - is_in_own_record if proposal.slot is not None else None,
                "eoslog.append.by_another_process": proposal.has_landed,
            },
        )

    def append_for_others(self, messages: Sequence[Message]) -> None:
        """Append the valid requests in messages of other processes, and return when they are in a record.

        Raises:
            CommitStateUnknown, StoreUnavailable: as ``append``. The requests may have been appended.
        """
        self.environment.uninterrupted(partial(self._append_for_others, messages))

    def _append_for_others(self, messages: Sequence[Message]) -> None:
        proposal = Proposal(OthersMessages(messages))
        self.appender.append(proposal)
        self._checkpointing.run_if_due(self.replica, has_put=proposal.slot is not None)

    def announce(self, announcement: OwnService) -> None:
        """Announce an append service of this process, or its end, in each record that this process puts from now on.

        The first one is put at once. If the log announces another service, the record repeats that announcement.
        """
        self.appender.announcements.own_service = announcement
        self.environment.uninterrupted(partial(self.appender.append, Proposal(SlotFence())))

    def create(self, request: Request[object]) -> None:
        """Write slot 0 of a log that does not exist yet.

        Raises:
            The error of the request, if another process has created the log in the meantime.
        """
        self.environment.uninterrupted(partial(self.appender.append, Proposal(request, creates_log=True)))

    def resolve(self, slot: int, append_id: str, *, timeout_ms: int | None = None) -> bool:
        """Return True if the append that raised ``CommitStateUnknown`` has landed.

        If its slot is empty, append a no-op there first. Then the record cannot land later.

        Args:
            timeout_ms: begin no further attempt after this time (ms). None: ``LogConfig.commit_timeout_ms``.

        Raises:
            CommitStateUnknown: the object store does not answer, or refuses the request.
            OutcomeLost: the slot has been deleted since.
        """
        try:
            return self.winner(slot, timeout_ms=timeout_ms) == append_id
        except (RetriableError, StoreAccessDenied) as error:
            raise CommitStateUnknown(
                f"it is still unknown whether the append to slot {slot} landed: {error}", slot=slot, append_id=append_id
            ) from error

    def winner(self, slot: int, *, timeout_ms: int | None = None) -> str:
        """Return the append id of the record in a slot. If the slot is empty, append a no-op there first.

        Raises:
            OutcomeLost: the slot has been deleted, or is damaged.
            RetriableError, StoreAccessDenied, NotAStore
            CorruptRecord, UnsupportedFormat: the log around the slot cannot be read; call again.
        """
        return self.environment.uninterrupted(partial(self._winner, slot, timeout_ms))

    def _winner(self, slot: int, timeout_ms: int | None) -> str:
        deadline_ms = self._deadline(timeout_ms)
        if self.replica.slot < slot and self.read(lambda state, newest: newest) < slot:
            self.appender.append(Proposal(SlotFence(), deadline_ms=deadline_ms))
        try:
            append_id = self._conditional_append.append_id_of(slot, deadline_ms)
            why = "has been deleted since"
        except (CorruptRecord, UnsupportedFormat) as error:
            append_id, why = None, f"cannot be read: {without_code(error)}"
        # Refresh after the slot was read, not before. If the slot was deleted and another record was put under its
        # name, the checkpoints above are older than that put. So this refresh sees them, and the check below works.
        self.read(lambda state, newest: None)
        if append_id is not None and (
            not self._may_be_deleted(slot)
            or self._conditional_append.continues(self.replica, slot, append_id, deadline_ms)
        ):
            return append_id
        raise OutcomeLost(
            f"an append to slot {slot} was not answered, and the slot {why}. Look at the work itself to learn whether "
            "it landed: admin.last_committed, the group's offsets, or the rows"
        )

    def _deadline(self, timeout_ms: int | None) -> int | None:
        return None if timeout_ms is None else self.environment.monotonic_ms() + timeout_ms

    def _may_be_deleted(self, slot: int) -> bool:
        """Return True if the slot is below the older of the log's two checkpoints. Other slots are never deleted."""
        older = self.replica.previous_checkpoint
        return older is not None and slot < older.slot

    def _make_smaller_and_checkpoint(self) -> None:
        try:
            self.before_checkpoint()
        except EosLogError as error:
            _logger.warning("%s: the state could not be made smaller before its checkpoint: %s", self.store.url, error)
        self.checkpoint()

    def checkpoint(self) -> CheckpointReference:
        """Write a checkpoint of the newest known state, and append an entry that names it.

        Returns:
            The newest checkpoint of the log: this one, or a newer one of another process.

        Raises:
            StoreUnavailable: other processes replaced the checkpoint whose parts this one shares, at each attempt.
        """
        return self.environment.uninterrupted(self._checkpoint)

    def _checkpoint(self) -> CheckpointReference:
        problem = ""
        for _ in range(_CHECKPOINT_ATTEMPTS):
            try:
                return self._checkpoint_once()
            except InvalidEntry as error:
                problem = str(error)
        raise StoreUnavailable(f"{self.store.url}: no checkpoint could be written: {problem}. Try again")

    def _checkpoint_once(self) -> CheckpointReference:
        replica = self.replica

        def copied(state: S, slot: int) -> tuple[S, int, str, CheckpointRoot | None, int]:
            copy = self.machine.frozen_copy(state)
            return copy, slot, replica.append_id, replica.checkpoint_root, self.store.clock.last_date_ms

        state, slot, append_id, shared, upload_ms = self.read(copied, refresh=False)
        reference, root = write_checkpoint(
            self.store, self.environment, self.machine, state=state, slot=slot, append_id=append_id, shared=shared
        )
        own = {part.path for part in root.parts if part.path is not None}
        shares = shared is not None and any(part.path in own for part in shared.parts if part.path is not None)
        entry = CheckpointEntry(
            reference=reference, upload_ms=upload_ms, shares_with=shared.slot if shared is not None and shares else None
        )
        try:
            self.appender.append(Proposal(OwnCheckpoint(entry, root)))
        except InvalidEntry:
            newest = self.replica.checkpoint
            if newest is None or newest.slot < slot:
                raise
            self.environment.reached("log.checkpoint.overtaken")
            return newest
        return reference
