"""Proposals: the requests of several callers, sorted into one record.

The requests of a record are applied in order, each on the state that the requests before it leave.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eoslog.errors import InvalidRequest, RecordFull
from eoslog.log.checkpoint import CheckpointRoot
from eoslog.log.machine import Request, ShareableRequest
from eoslog.log.replica import Replica
from eoslog.log.slot_record import CheckpointEntry


class InFlight(NamedTuple):
    """A record whose put was sent and whose outcome is not known yet."""

    slot: int
    append_id: str


class Published(NamedTuple):
    """A request that other processes may have seen."""

    slot: int
    """The newest slot that this process knew when it published."""
    request_id: str
    opening: int
    """How often the replica had been opened then. A replica that was opened again may have passed over slots."""


@dataclass(slots=True)
class AppendAttempts:
    """The attempts at a request that may have landed, or may land yet. One object may serve several appends of it."""

    puts: dict[InFlight, Any] = field(default_factory=dict)
    """Records whose put was sent, and the answer if that record is in the log."""
    publications: list[Published] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Proposal:
    """A request in the queue, and its outcome."""

    request: Request[Any] | None
    checkpoint: tuple[CheckpointEntry, CheckpointRoot] | None = None
    fences_slot: bool = False
    """Append a record without entries, so that no late put can take the slot."""
    first: bool = False
    """Whether it writes slot 0 of a log that does not exist yet."""
    deadline_ms: int | None = None
    """Until when its caller waits (elapsed time, ms); None: as long as the log's settings say."""
    attempts: AppendAttempts = field(default_factory=AppendAttempts)
    """The attempts so far. Each is noted before it is sent, so an interrupt after the put loses none."""
    in_flight: InFlight | None = None
    """The record with this request whose outcome is not known yet; None if there is none."""
    answer: Any = None
    error: BaseException | None = None
    done: bool = False
    published: Published | None = None
    has_landed: bool = False
    """Whether another process has appended it. Then its answer is known."""
    first_entry: int = 0
    """The index of its first entry in the record."""
    entry_count: int = 0
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or when its thread is to lead."""

    def finish(self) -> None:
        """Settle the proposal with its answer or its error, and wake its thread."""
        self.done = True
        self.woken.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

    def tell(self, entries: Sequence[Mapping[str, Any]], slot: int) -> None:
        """Take the answer from a record that names this request. The fold calls this, in any thread."""
        if self.has_landed or self.done or not isinstance(self.request, ShareableRequest):
            return
        try:
            self.answer = self.request.shared_answer(entries, slot)
        except (LookupError, TypeError, ValueError):
            # eoslog writes no such record: it names this request for other entries. Ignore it.
            return
        self.has_landed = True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


def earliest_deadline(proposals: Iterable[Proposal]) -> int | None:
    """The earliest deadline of the proposals (elapsed time, ms); None if none has a deadline."""
    return min((each.deadline_ms for each in proposals if each.deadline_ms is not None), default=None)


@dataclass(slots=True)
class SortedProposals:
    """The proposals of one attempt at a slot, sorted by what happens to them next."""

    taken: list[Proposal] = field(default_factory=list)
    without_entries: list[Proposal] = field(default_factory=list)
    refused: list[tuple[Proposal, BaseException]] = field(default_factory=list)
    landed: list[Proposal] = field(default_factory=list)
    """Proposals that another process has appended."""
    later: list[Proposal] = field(default_factory=list)
    """Proposals for a later attempt. They do not fit into the record, or their error or their answer without entries
    depends on other entries of the record, which may lose its race."""


def sort_proposals(replica: Replica[Any], draft: Any, pending: list[Proposal]) -> SortedProposals:
    """Add to a draft the proposals that its record takes, and sort the rest.

    The draft may already have entries of other processes. A proposal that is refused beside them goes into ``later``.
    """
    this = SortedProposals()
    has_others = bool(draft.entries)
    for proposal in pending:
        if proposal.has_landed:
            this.landed.append(proposal)
            continue
        child = draft.child()
        try:
            if proposal.checkpoint is not None:
                if any(other.checkpoint is not None for other in this.taken):
                    raise RecordFull
                replica.check_checkpoint_entry(proposal.checkpoint[0])
            if proposal.request is not None:
                proposal.answer = proposal.request.apply(child)
        except Exception as error:
            if this.taken or has_others:
                this.later.append(proposal)
            elif isinstance(error, RecordFull):
                asked = InvalidRequest("a record has room for one new producer id; ask for each in a call of its own")
                this.refused.append((proposal, asked))
            else:
                this.refused.append((proposal, error))
        else:
            if child.entries or proposal.checkpoint is not None or proposal.fences_slot:
                proposal.first_entry, proposal.entry_count = len(draft.entries), len(child.entries)
                child.merge()
                this.taken.append(proposal)
            elif this.taken or has_others:
                this.later.append(proposal)
            else:
                this.without_entries.append(proposal)
    return this
