"""The record for the next slot: proposals are validated against the newest known state, and fitted to a record's size.

The proposals of a record are applied in order, each on the state that the proposals before it leave. Nothing here
changes the replica or sends a request, so a record that is not put can be dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.errors import CorruptRecord, InvalidRequest, RecordFull
from eoslog.log.announcements import Announcements
from eoslog.log.append_queue import OthersMessages, OwnCheckpoint, Proposal, SlotFence
from eoslog.log.machine import Machine
from eoslog.log.messages import OthersRequests
from eoslog.log.replica import Replica
from eoslog.log.slots import (
    LARGEST_RECORD_BYTES,
    IncludedRequest,
    SlotRecord,
    encode_line,
    slot_body,
)
from eoslog.storage.clock import Moment
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")
_logger = logging.getLogger(__name__)
_LARGEST_SHARED_RECORD_BYTES = 4 << 20
"""A record of several proposals, or with requests of other processes, is at most this large (bytes)."""


class Base(NamedTuple):
    """The state that a record was validated against."""

    state: Any
    slot: int
    last_check: Moment
    opening: int
    """How often the replica had been opened at that state."""


@dataclass(frozen=True, kw_only=True)
class NextRecord:
    """A record that may be put into the slot after its base."""

    base: Base
    draft: Any
    taken: Sequence[Proposal]
    """The proposals whose requests it has."""
    others: Sequence[OthersRequests]
    """The requests of other processes that were offered for this record. It may have left out some, or all."""
    included: Sequence[IncludedRequest]
    """The requests of other processes that it has."""
    slot_record: SlotRecord
    body: bytes

    @property
    def is_too_large(self) -> bool:
        """True if no slot can hold it."""
        return len(self.body) > LARGEST_RECORD_BYTES

    def size_error(self, url: str) -> InvalidRequest:
        """Return the error of a proposal whose record is too large.

        Args:
            url: the URL of the object store.
        """
        return InvalidRequest(
            f"{url}: a record has {len(self.body)} bytes, but a slot holds at most {LARGEST_RECORD_BYTES}. Commit "
            "fewer files in one call"
        )


class RecordLimits(NamedTuple):
    """The most that the next record may take."""

    proposals: int = 1 << 30
    others: Sequence[OthersRequests] = ()
    with_overdue: bool = True
    """True if it also aborts overdue transactions."""

    def fitted(self, record: NextRecord) -> RecordLimits | None:
        """Return the limits for a smaller record than this one; None if it fits, or if nothing can be left out."""
        if record.is_too_large and self.with_overdue:
            # The appends of this process come first. The next record has room for the aborts.
            return self._replace(with_overdue=False)
        if len(record.body) <= _LARGEST_SHARED_RECORD_BYTES:
            return None
        if record.included:
            return self._replace(others=self.others[: len(self.others) // 2])
        if len(record.taken) > 1:
            return self._replace(proposals=len(record.taken) // 2)
        return None


@dataclass(slots=True)
class SortedProposals:
    """The proposals of one attempt at a slot, sorted by what happens to them next."""

    taken: list[Proposal] = field(default_factory=list)
    without_entries: list[Proposal] = field(default_factory=list)
    refused: list[tuple[Proposal, BaseException]] = field(default_factory=list)
    landed: list[Proposal] = field(default_factory=list)
    """Proposals that another process has appended."""
    later: list[Proposal] = field(default_factory=list)
    """Proposals for a later attempt. Some do not fit into the record. The others were refused, or added no entry, on a
    draft with entries of other proposals. That answer does not count yet, because the record may lose its race."""


class Validated(NamedTuple):
    """The result of a validation."""

    base: Base
    proposals: SortedProposals
    record: NextRecord | None
    """The record with the proposals that were taken; None if none was."""


class RecordMaker(Generic[S]):
    """Makes records for the slot after the newest one that this process knows."""

    def __init__(
        self, store: ObjectStore, machine: Machine[S], replica: Replica[S], announcements: Announcements
    ) -> None:
        self._store = store
        self._machine = machine
        self._replica = replica
        self._announcements = announcements

    def make(self, pending: Sequence[Proposal], limits: RecordLimits, append_id: str) -> Validated:
        """Validate proposals, and make a record of the valid ones.

        Args:
            pending: at least one proposal.

        Raises:
            CorruptRecord: the log has an invalid record, so no process may append.
            StoreUnavailable, NotAStore, UnsupportedFormat: the replica had to be opened.
        """
        replica = self._replica
        while True:
            with replica.lock:
                if replica.invalid is not None:
                    raise CorruptRecord(
                        f"{self._store.url}: {replica.invalid}. Nothing more is appended. Run eoslog verify"
                    )
                if replica.is_open or pending[0].creates_log:
                    return self._made(pending, limits, append_id)
            # Another thread was interrupted during a fold, and the replica was reset.
            replica.open()

    def _made(self, pending: Sequence[Proposal], limits: RecordLimits, append_id: str) -> Validated:
        replica = self._replica
        base = Base(replica.state, replica.slot, replica.last_check, replica.opening)
        candidates = pending[: limits.proposals]
        draft = self._machine.new_draft(replica.state, replica.slot + 1)
        included = self._include(draft, limits.others)
        this = sort_proposals(replica, draft, candidates)
        if included and not this.taken:
            # Requests of other processes may be the reason for the refusal: validate again without them.
            draft, included = self._machine.new_draft(replica.state, replica.slot + 1), []
            this = sort_proposals(replica, draft, candidates)
        this.later += pending[limits.proposals :]
        if not this.taken:
            return Validated(base, this, None)
        now_ms = self._store.clock.now_ms()
        if limits.with_overdue:
            # Add the aborts last. The producer of an overdue transaction may end it in this same record, and then the
            # producer's outcome counts.
            self._machine.add_overdue(draft, now_ms)
        slot_record = SlotRecord(
            requests=tuple(included + _own_requests(this.taken)) or None,
            slot=replica.slot + 1,
            append_id=append_id,
            prev=replica.append_id,
            append_service=self._announcements.next(now_ms),
            checkpoint=replica.checkpoint,
            previous_checkpoint=replica.previous_checkpoint,
            entries=tuple(map(self._machine.encode_entry, draft.entries)) + _checkpoint_entries(this.taken),
        )
        record = NextRecord(
            base=base,
            draft=draft,
            taken=this.taken,
            others=limits.others,
            included=included,
            slot_record=slot_record,
            body=slot_body(encode_line(slot_record), replica.tail_lines(), draft.files),
        )
        return Validated(base, this, record)

    def _include(self, draft: Any, others: Sequence[OthersRequests]) -> list[IncludedRequest]:
        """Add the valid requests of other processes to a draft. Leave the rest to the processes that sent them."""
        included: list[IncludedRequest] = []
        for each in others:
            for request_id, request in each:
                child = draft.child()
                try:
                    self._machine.append_for_another(child, request.entries, request.contents())
                except Exception as error:
                    _logger.debug("%s: a request is left out: %s", self._store.url, error)
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


def _own_requests(taken: Sequence[Proposal]) -> list[IncludedRequest]:
    """Return the requests of this process that it has sent to other processes, too."""
    return [
        IncludedRequest(request_id=each.sent.request_id, first_entry=each.first_entry, entry_count=each.entry_count)
        for each in taken
        if each.sent is not None
    ]


def _checkpoint_entries(taken: Sequence[Proposal]) -> tuple[dict[str, Any], ...]:
    return tuple(
        each.content.entry.model_dump(exclude_none=True) for each in taken if isinstance(each.content, OwnCheckpoint)
    )


def sort_proposals(replica: Replica[Any], draft: Any, pending: Sequence[Proposal]) -> SortedProposals:
    """Add to a draft the proposals that its record takes, and sort the rest.

    The draft may already have entries of other processes. A proposal that is refused after them goes into ``later``.
    """
    this = SortedProposals()
    has_others = bool(draft.entries)
    for proposal in pending:
        if proposal.has_landed:
            this.landed.append(proposal)
            continue
        child = draft.child()
        try:
            needs_record = _add(replica, child, proposal, this.taken)
        except Exception as error:
            if this.taken or has_others:
                this.later.append(proposal)
            elif isinstance(error, RecordFull):
                asked = InvalidRequest(
                    "one record has no room for the producer ids of this request. Begin fewer jobs in one call"
                )
                this.refused.append((proposal, asked))
            else:
                this.refused.append((proposal, error))
        else:
            serves = has_others and isinstance(proposal.content, OthersMessages)
            if child.entries or needs_record or serves:
                proposal.first_entry, proposal.entry_count = len(draft.entries), len(child.entries)
                child.merge()
                this.taken.append(proposal)
            elif this.taken or has_others:
                this.later.append(proposal)
            else:
                this.without_entries.append(proposal)
    return this


def _add(replica: Replica[Any], draft: Any, proposal: Proposal, taken: Sequence[Proposal]) -> bool:
    """Apply a proposal to a draft. Return True if it needs a record even if it adds no entry to the draft.

    Raises:
        RecordFull: the record has its only checkpoint entry already.
        The error with which the draft's state refuses the proposal.
    """
    content = proposal.content
    if isinstance(content, OwnCheckpoint):
        if any(isinstance(other.content, OwnCheckpoint) for other in taken):
            raise RecordFull
        replica.check_checkpoint_entry(content.entry)
        return True
    if isinstance(content, SlotFence):
        return True
    if not isinstance(content, OthersMessages):
        proposal.answer = content.apply(draft)
    return False
