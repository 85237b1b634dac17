"""The state of the log after one slot: the state of the machine, and the log's own knowledge.

The log itself keeps the two newest checkpoints, the append service, the names of recent messages, and the lines that
the next record repeats. A record changes all of it. Nothing here sends a request or takes a lock.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

from eoslog.errors import EosLogError, InvalidEntry
from eoslog.log.checkpoint import CheckpointRoot
from eoslog.log.machine import Machine
from eoslog.log.slots import (
    CHECKPOINT_ENTRY,
    AppendServiceAnnouncement,
    CheckpointEntry,
    CheckpointReference,
    SlotRecord,
    decode_checkpoint_entry,
)
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")
_logger = logging.getLogger(__name__)
_MOST_INCLUDED = 4096


@dataclass(eq=False)
class LogState(Generic[S]):
    """The fold of the log up to ``slot``."""

    store: ObjectStore
    machine: Machine[S]
    state: S = field(init=False)
    slot: int = -1
    append_id: str = ""
    checkpoint: CheckpointReference | None = None
    previous_checkpoint: CheckpointReference | None = None
    checkpoint_root: CheckpointRoot | None = None
    checkpoint_bytes: int = 0
    """The size of the newest checkpoint that this process read or wrote, with all its parts."""
    append_service: AppendServiceAnnouncement | None = None
    """The service that appends for all hosts, as the newest record announces it; it may have expired."""
    included: dict[str, None] = field(default_factory=dict)
    """The names of the messages whose requests are in the newest records, the oldest first."""
    invalid: str | None = None
    """The reason why the fold skipped an invalid record; None if it skipped none. Otherwise writers stop."""
    tail: deque[tuple[int, bytes]] = field(default_factory=deque)
    """The slots and lines of the newest records, the oldest first."""
    tail_bytes: int = 0

    def __post_init__(self) -> None:
        self.state = self.machine.initial()

    def become(self, other: LogState[S]) -> None:
        """Take over another state of the same log."""
        for each in fields(LogState):
            setattr(self, each.name, getattr(other, each.name))

    def begin_at(
        self, checkpoint: CheckpointReference, previous: CheckpointReference | None, state: S, root: CheckpointRoot
    ) -> None:
        """Begin at a checkpoint that was read.

        Args:
            previous: the checkpoint before it; None if it is not known.
            state: the state of the machine in this checkpoint.
        """
        self.state = state
        self.slot, self.append_id = root.slot, root.append_id
        self.checkpoint, self.previous_checkpoint = checkpoint, previous
        self._know_parts_of(root)

    def fold(self, record: SlotRecord, line: bytes) -> bool:
        """Apply a record that continues this state. Return False if it is invalid.

        The entries of an invalid record change nothing, and an error is logged.
        """
        entries = [entry for entry in record.entries if entry.get("type") != CHECKPOINT_ENTRY]
        checkpoints: list[CheckpointReference] = []
        try:
            for value in record.entries:
                if value.get("type") == CHECKPOINT_ENTRY:
                    entry = decode_checkpoint_entry(value)
                    if self._obstacle(entry) is None:
                        checkpoints.append(entry.reference)
            reason = self.machine.fold(self.state, record.slot, entries)
        except InvalidEntry as error:
            reason = str(error)
        if reason is None:
            for reference in checkpoints:
                self._adopt_checkpoint(reference)
        else:
            self.invalid = f"slot {record.slot} holds an invalid record: {reason}"
            _logger.error("%s: %s", self.store.url, self.invalid)
        self.advance(record, line)
        return reason is None

    def advance(self, record: SlotRecord, line: bytes) -> None:
        """Move to a slot whose entries have been applied."""
        slot = self.slot = record.slot
        self.append_id = record.append_id
        self.append_service = record.append_service
        for request in record.requests or ():
            self.included[request.request_id.partition("-")[0]] = None
        while len(self.included) > _MOST_INCLUDED:
            del self.included[next(iter(self.included))]
        if self.store.tail_bytes > 0:
            self.tail.append((slot, line))
            self.tail_bytes += len(line)
            floor = self.checkpoint.slot if self.checkpoint is not None else -1
            while self.tail and (self.tail_bytes > self.store.tail_bytes or self.tail[0][0] <= floor):
                self.tail_bytes -= len(self.tail.popleft()[1])

    def check_checkpoint_entry(self, entry: CheckpointEntry) -> None:
        """Check that readers will adopt a checkpoint.

        Raises:
            InvalidEntry: the checkpoint is not newer than the current one; or it shares parts with a checkpoint that
                was replaced; or vacuum may have deleted its objects.
        """
        obstacle = self._obstacle(entry)
        if obstacle is not None:
            raise InvalidEntry(obstacle)

    def _obstacle(self, entry: CheckpointEntry) -> str | None:
        """Return the reason to ignore a checkpoint; None if it is adopted.

        An ignored checkpoint does not make its record invalid. Entries of older checkpoints may land after a newer one,
        and a reader that begins at the newer one meets them in the fold.
        """
        reference = entry.reference
        if reference in (self.checkpoint, self.previous_checkpoint):
            return None
        if self.checkpoint is not None and reference.slot <= self.checkpoint.slot:
            return f"there is a checkpoint of slot {self.checkpoint.slot} already"
        live = {each.slot for each in (self.checkpoint, self.previous_checkpoint) if each is not None}
        if entry.shares_with is not None and entry.shares_with not in live:
            return f"the checkpoint shares parts with slot {entry.shares_with}, whose checkpoint was replaced"
        try:
            self.machine.check_upload(self.state, entry.upload_ms)
        except EosLogError as error:
            return str(error)
        return None

    def _adopt_checkpoint(self, reference: CheckpointReference) -> None:
        if reference in (self.checkpoint, self.previous_checkpoint):
            return
        if self.checkpoint is not None and reference.slot <= self.checkpoint.slot:
            return
        self.previous_checkpoint = self.checkpoint
        self.checkpoint = reference
        if self.checkpoint_root is not None and self.checkpoint_root.slot != reference.slot:
            self.checkpoint_root = None

    def adopt_own_checkpoint(self, reference: CheckpointReference, root: CheckpointRoot) -> None:
        """Adopt a checkpoint that this process wrote, and remember its parts."""
        self._adopt_checkpoint(reference)
        if self.checkpoint == reference:
            self._know_parts_of(root)

    def _know_parts_of(self, root: CheckpointRoot) -> None:
        self.checkpoint_root = root
        self.checkpoint_bytes = sum(part.length for part in root.parts)

    def tail_lines(self) -> list[bytes]:
        """Return the lines that the next record repeats for processes that open the log."""
        return [line for _, line in self.tail]

    def slots_since_checkpoint(self) -> int:
        return self.slot - (self.checkpoint.slot if self.checkpoint is not None else -1)

    def tail_overflows(self) -> bool:
        """Return True if the repeated tail no longer reaches back to the checkpoint."""
        return self.store.tail_bytes > 0 and len(self.tail) < self.slots_since_checkpoint()
