"""What several callers want to append at once, sorted into one record.

A proposal is a function of the state at the slot that it gets. Those that share a record are validated in order, each
on what the ones before it make of the state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
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
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or when its thread is to lead."""

    def finish(self) -> None:
        """Settle it: its answer counts, or its error."""
        self.done = True
        self.woken.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

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
    later: list[Proposal] = field(default_factory=list)
    """What does not fit into the record, and what follows only if the record is won: an error or an answer without
    entries that leans on entries of the same record."""


def sort_proposals(view: View[Any], draft: Any, pending: list[Proposal]) -> Round:
    """Add to a draft what may go into its record, and say what becomes of the rest."""
    this = Round()
    for proposal in pending:
        child = draft.child()
        try:
            if proposal.checkpoint is not None:
                if any(other.checkpoint is not None for other in this.taken):
                    raise RecordFull
                view.check_checkpoint_entry(proposal.checkpoint[0])
            if proposal.propose is not None:
                proposal.answer = proposal.propose(child)
        except Exception as error:
            if this.taken:
                this.later.append(proposal)
            elif isinstance(error, RecordFull):
                asked = InvalidRequest("a record has room for one new producer id; ask for each in a call of its own")
                this.refused.append((proposal, asked))
            else:
                this.refused.append((proposal, error))
        else:
            if child.entries or proposal.checkpoint is not None or proposal.occupy:
                child.merge()
                this.taken.append(proposal)
            elif this.taken:
                this.later.append(proposal)
            else:
                this.silent.append(proposal)
    return this
