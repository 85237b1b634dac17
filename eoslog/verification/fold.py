"""The fold of the log's records: each continues the one before and is valid there, and checkpoints are its state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from eoslog.errors import InvalidEntry, without_code
from eoslog.log.machine import Machine
from eoslog.log.paths import slot_path
from eoslog.log.record import CheckpointReference, SlotRecord
from eoslog.log.view import decode_checkpoint_entry
from eoslog.rules.state import StoreState
from eoslog.verification.checkpoints import LoadedCheckpoint, differences
from eoslog.verification.finding import Finding
from eoslog.verification.opened import is_checkpoint
from eoslog.verification.outside import paths_outside

_BEFORE_ALL = -1


class Fold:
    """The state after ``slot``, as far as records and checkpoints lead to it."""

    def __init__(
        self, machine: Machine[StoreState], checkpoints: Iterable[tuple[CheckpointReference, LoadedCheckpoint]]
    ) -> None:
        self.state: StoreState | None = None
        """None while it is not known."""
        self.slot = _BEFORE_ALL
        self._machine = machine
        self._token: str | None = None
        """That of the record before; None if it is not known."""
        self._ahead = sorted(checkpoints, key=lambda each: each[0].slot)
        """The checkpoints that the fold has not come to."""
        self._since: int | None = None
        """The first of the records that were added without a gap."""
        self._written: set[CheckpointReference] = set()
        """The checkpoints that entries told of."""

    def begin(self) -> None:
        """Before slot 0."""
        self.state, self._token, self.slot = self._machine.initial(), "", _BEFORE_ALL

    def lose(self) -> None:
        """The state is not known any more, until the next checkpoint."""
        self.state, self._token, self.slot = None, None, _BEFORE_ALL
        self._since = None

    def add(self, record: SlotRecord) -> Iterator[Finding]:
        """Go on with the record of the next slot."""
        slot, path = record.slot, slot_path(record.slot)
        if self._token is not None and record.prev != self._token:
            problem = (
                f"the record does not continue that of slot {slot - 1}: one of the two is not what was written, "
                f"this or {slot_path(slot - 1)}"
            )
            yield Finding(kind="slot-chain-broken", problem=problem, slot=slot, path=path)
            self.lose()
        if self.state is not None and self.slot == slot - 1:
            reason = self._apply(self.state, record)
            if reason is not None:
                outside = next(paths_outside(record.entries), None)
                yield Finding(
                    kind="record-invalid" if outside is None else "reference-outside",
                    problem=reason if outside is None else f"it names {outside!r}",
                    slot=slot,
                    path=path,
                )
        self._token = record.token
        self._since = slot if self._since is None else self._since
        yield from self._unwritten(record, self._since)

    def pass_checkpoints(self, slot: int) -> Iterator[Finding]:
        """Compare the fold with the checkpoints up to a slot, and go on from there: readers do, whether it agrees."""
        while self._ahead and self._ahead[0][0].slot <= slot:
            reference, loaded = self._ahead.pop(0)
            if loaded.state is None or loaded.root is None:
                continue
            place = reference.slot
            if self.state is not None and self.slot == place:
                unlike = differences(self.state, loaded.state)
                if self._token is not None and loaded.root.token != self._token:
                    unlike.append("token")
                if unlike:
                    problem = f"the state that the slots lead to is another in {', '.join(unlike)}"
                    yield Finding(kind="checkpoint-differs", problem=problem, slot=place, path=reference.path)
            elif self._token is not None and place == slot and loaded.root.token != self._token:
                problem = "it is the state after another record than that of its slot"
                yield Finding(kind="checkpoint-differs", problem=problem, slot=place, path=reference.path)
            self.state, self.slot, self._token = loaded.state, place, loaded.root.token

    def _unwritten(self, record: SlotRecord, since: int) -> Iterator[Finding]:
        """Checkpoints that the record names and no entry told of. That of a slot lies in a record behind the slot."""
        for reference in (record.checkpoint, record.previous_checkpoint):
            if reference is None or reference.slot < since or reference in self._written:
                continue
            self._written.add(reference)
            problem = f"the record names {reference.path}, a checkpoint that no record before it told of"
            yield Finding(kind="checkpoint-differs", problem=problem, slot=record.slot, path=slot_path(record.slot))
        for entry in filter(is_checkpoint, record.entries):
            with contextlib.suppress(InvalidEntry):
                self._written.add(decode_checkpoint_entry(entry).reference)

    def _apply(self, state: StoreState, record: SlotRecord) -> str | None:
        """Why the record is not valid and changes nothing, or None."""
        self.slot = record.slot
        try:
            for entry in record.entries:
                if is_checkpoint(entry):
                    decode_checkpoint_entry(entry)
        except InvalidEntry as error:
            return without_code(error)
        reason = self._machine.fold(state, record.slot, [each for each in record.entries if not is_checkpoint(each)])
        return None if reason is None else without_code(reason)
