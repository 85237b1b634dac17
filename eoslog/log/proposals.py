"""What several callers want to append at once, sorted into one record.

A proposal is a function of the state at the slot that it gets. Those that share a record are validated in order, each
on what the ones before it make of the state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eoslog.errors import InvalidRequest, RecordFull
from eoslog.log.checkpoint import CheckpointRoot
from eoslog.log.record import CheckpointEntry
from eoslog.log.view import View


class Flight(NamedTuple):
    """A record whose put was sent and not yet settled."""

    slot: int
    token: str


class SharedRequest(NamedTuple):
    """What any process may append for the process that asks, and perhaps several do.

    The state machine must refuse it once it was done, for good, whatever came after it.
    """

    entries: Sequence[Any]
    """Entries whose results (offsets, the next epoch) are filled in where they are appended."""
    answer: Callable[[Sequence[Mapping[str, Any]], int], Any]
    """Makes the answer from the entries as they stand in the log, and their slot.

    It raises ``ValueError`` or ``LookupError`` if they are not those of this request.
    """
    when_published: Callable[[int, str], None] = lambda slot, request_id: None
    """Told the newest slot that was known, and the request's id, before other processes can see the request."""


class Published(NamedTuple):
    """A request that other processes may have seen."""

    slot: int
    """The newest slot that was known then."""
    request_id: str
    opening: int
    """The number of the view's opening then. A view that was opened again has passed over slots."""


@dataclass(slots=True, eq=False)
class Proposal:
    """What one caller wants to append: a function of the state at the slot that it will get."""

    propose: Callable[[Any], Any] | None
    checkpoint: tuple[CheckpointEntry, CheckpointRoot] | None = None
    occupy: bool = False
    first: bool = False
    """It writes slot 0 of a log that does not exist yet."""
    deadline_ms: int | None = None
    """Until when its caller waits (elapsed time); None: as long as the log's settings say."""
    when_claimed: Callable[[int, str], None] | None = None
    """Told the slot and the token of each record with it, before the record is put."""
    flight: Flight | None = None
    """The record that it is aboard of."""
    answer: Any = None
    error: BaseException | None = None
    done: bool = False
    shared: SharedRequest | None = None
    """What other processes may append in its place; None: only this process appends it."""
    published: Published | None = None
    has_landed: bool = False
    """Whether another process has appended it. Then its answer is known."""
    first_entry: int = 0
    """Where its entries begin in the record, and how many there are."""
    entry_count: int = 0
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or when its thread is to lead."""

    def finish(self) -> None:
        """Settle it: its answer counts, or its error."""
        self.done = True
        self.woken.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

    def tell(self, entries: Sequence[Mapping[str, Any]], slot: int) -> None:
        """Take the answer from the record that another process appended."""
        if self.shared is None or self.has_landed or self.done:
            return
        try:
            self.answer = self.shared.answer(entries, slot)
        except (LookupError, TypeError, ValueError):
            # No record of eoslog's: it names this request for other entries.
            return
        self.has_landed = True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


def earliest_deadline(proposals: Iterable[Proposal]) -> int | None:
    """Until when all of those who wait for a record will wait."""
    return min((each.deadline_ms for each in proposals if each.deadline_ms is not None), default=None)


@dataclass(slots=True)
class Round:
    """The proposals of one attempt at a slot, sorted by what became of them."""

    taken: list[Proposal] = field(default_factory=list)
    silent: list[Proposal] = field(default_factory=list)
    refused: list[tuple[Proposal, BaseException]] = field(default_factory=list)
    landed: list[Proposal] = field(default_factory=list)
    """Another process appended them."""
    later: list[Proposal] = field(default_factory=list)
    """What does not fit into the record, and what follows only if the record is won: an error or an answer without
    entries that leans on entries of the same record."""


def sort_proposals(view: View[Any], draft: Any, pending: list[Proposal]) -> Round:
    """Add to a draft what may go into its record, and say what becomes of the rest.

    The draft may have entries already, of other processes. What is refused beside them goes into ``later``, too.
    """
    this = Round()
    has_company = bool(draft.entries)
    for proposal in pending:
        if proposal.has_landed:
            this.landed.append(proposal)
            continue
        child = draft.child()
        try:
            if proposal.checkpoint is not None:
                if any(other.checkpoint is not None for other in this.taken):
                    raise RecordFull
                view.check_checkpoint_entry(proposal.checkpoint[0])
            if proposal.propose is not None:
                proposal.answer = proposal.propose(child)
        except Exception as error:
            if this.taken or has_company:
                this.later.append(proposal)
            elif isinstance(error, RecordFull):
                asked = InvalidRequest("a record has room for one new producer id; ask for each in a call of its own")
                this.refused.append((proposal, asked))
            else:
                this.refused.append((proposal, error))
        else:
            if child.entries or proposal.checkpoint is not None or proposal.occupy:
                proposal.first_entry, proposal.entry_count = len(draft.entries), len(child.entries)
                child.merge()
                this.taken.append(proposal)
            elif this.taken or has_company:
                this.later.append(proposal)
            else:
                this.silent.append(proposal)
    return this
