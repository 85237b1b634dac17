"""Checks of the log, slot by slot: each record continues the record before it, and the checkpoints are its states.

The verification reads all existing slots, a few at a time. It folds them from slot 0 on, or from the older checkpoint
if earlier slots were deleted. It compares the result with each checkpoint on the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from eoslog.errors import CorruptRecord, InvalidEntry, NotAStore
from eoslog.format.checked_files import check_file
from eoslog.log.checkpoint import CheckpointRoot, decode_root, inline_body
from eoslog.log.log import Log
from eoslog.log.machine import Machine
from eoslog.log.replica import Replica
from eoslog.log.slots import (
    CHECKPOINT_ENTRY,
    CheckpointReference,
    SlotRecord,
    decode_checkpoint_entry,
    decode_line,
    first_line,
    slot_path,
)
from eoslog.state.store_state import StoreState
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Kind, Progress, finding
from eoslog.verification.slot_checks import (
    SLOTS_AT_ONCE,
    AppendIds,
    Records,
    Run,
    layout,
    of_slot,
    runs,
    with_unlisted,
    without_adjoining_orphans,
)
from eoslog.wording import without_code


def opened(log: Log[StoreState]) -> tuple[Replica[StoreState] | None, str]:
    """Open a separate replica. Return it, or None and the reason why the log cannot be opened."""
    problem = ""
    for _ in range(READS_BEFORE_REPORT):
        replica = Replica(log.store, log.machine, log.environment, log.config)
        try:
            replica.open()
        except (CorruptRecord, NotAStore) as error:
            problem = without_code(error)
        else:
            return replica, ""
    return None, problem


def named_checkpoints(log: Log[StoreState], found: list[Run]) -> list[CheckpointReference]:
    """Return the two checkpoints that the log names, newest first.

    They come from a newly opened replica. If the log cannot be opened, they come from its newest readable record.

    Args:
        log: the log.
        found: the existing slots, ascending.
    """
    replica, _ = opened(log)
    if replica is None:
        return _named_by_records(log, found)
    return [each for each in (replica.checkpoint, replica.previous_checkpoint) if each is not None]


def is_checkpoint(entry: dict[str, Any]) -> bool:
    """Return True if an entry of a record names a checkpoint. The log handles such entries, not the state machine."""
    return entry.get("type") == CHECKPOINT_ENTRY


def _named_by_records(log: Log[StoreState], found: list[Run]) -> list[CheckpointReference]:
    for run in reversed(found):
        for slot in range(run.last, run.first - 1, -1):
            stored = log.store.get_many([slot_path(slot)])[0]
            try:
                record = decode_line(first_line(stored.body if stored is not None else b""), slot)
                own = [decode_checkpoint_entry(each).reference for each in record.entries if is_checkpoint(each)]
            except (CorruptRecord, InvalidEntry):
                continue
            named = {each for each in (*own, record.checkpoint, record.previous_checkpoint) if each is not None}
            return sorted(named, key=lambda each: -each.slot)[:2]
    return []


@dataclass(slots=True)
class LoadedCheckpoint:
    """The result of reading a checkpoint."""

    findings: list[Finding] = field(default_factory=list)
    root: CheckpointRoot | None = None
    state: StoreState | None = None


def load_checkpoint(
    store: ObjectStore, machine: Machine[StoreState], reference: CheckpointReference
) -> LoadedCheckpoint:
    """Read a checkpoint as far as possible.

    Raises:
        UnsupportedFormat: a newer version wrote the checkpoint.
    """
    loaded = LoadedCheckpoint()

    def add(kind: Kind, path: str, problem: Exception | str = "") -> None:
        loaded.findings.append(finding(kind, path, slot=reference.slot, problem=without_code(problem)))

    def read(path: str, length: int, crc32c: int) -> bytes | None:
        for attempt in range(READS_BEFORE_REPORT):
            try:
                body = store.get(path).body
                check_file(body, length, crc32c, path)
                return body
            except ObjectNotFound:
                add(Kind.CHECKPOINT_MISSING, path)
                return None
            except CorruptRecord as error:
                if attempt == READS_BEFORE_REPORT - 1:
                    add(Kind.CHECKPOINT_DAMAGED, path, error)
        return None

    body = read(reference.path, reference.length, reference.crc32c)
    if body is None:
        return loaded
    try:
        loaded.root = root = decode_root(body, reference.path)
        if root.slot != reference.slot:
            raise CorruptRecord(f"the root is of slot {root.slot}, but the log names it for slot {reference.slot}")
        bodies: dict[str, bytes] = {}
        for part in root.parts:
            try:
                found = inline_body(part) if part.path is None else read(part.path, part.length, part.crc32c)
            except CorruptRecord as error:
                # Go on, to report the objects of the other parts, too.
                add(Kind.CHECKPOINT_DAMAGED, reference.path, error)
                continue
            if found is not None:
                bodies[part.name] = found
        if not loaded.findings:
            loaded.state = machine.restore(bodies)
    except CorruptRecord as error:
        add(Kind.CHECKPOINT_DAMAGED, reference.path, error)
    return loaded


def differences(folded: StoreState, stored: StoreState) -> list[str]:
    """Return the names of the fields in which two states differ."""
    return [each.name for each in fields(folded) if getattr(folded, each.name) != getattr(stored, each.name)]


def paths_outside(value: object) -> Iterator[str]:
    """Yield the paths in a JSON value that lead out of the store: absolute, with a scheme, or with ``..`` parts."""
    if isinstance(value, dict):
        path = value.get("path")
        if isinstance(path, str) and (
            path.startswith("/")
            or "://" in path
            or "\\" in path
            or any(part in ("", ".", "..") for part in path.split("/"))
        ):
            yield path
        for each in value.values():
            yield from paths_outside(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from paths_outside(each)


_BEFORE_ALL = -1


class Fold:
    """The state after ``slot``, computed from records and checkpoints."""

    def __init__(
        self, machine: Machine[StoreState], checkpoints: Iterable[tuple[CheckpointReference, LoadedCheckpoint]]
    ) -> None:
        self.state: StoreState | None = None
        """The state; None while it is unknown."""
        self.slot = _BEFORE_ALL
        self._machine = machine
        self._append_id: str | None = None
        """The append id of the record before; None if it is unknown."""
        self._ahead = sorted(checkpoints, key=lambda each: each[0].slot)
        """The checkpoints that the fold has not reached."""
        self._since: int | None = None
        """The first slot since the last gap."""
        self._written: set[CheckpointReference] = set()
        """The checkpoints that entries have named."""

    def begin(self) -> None:
        """Start with the empty state before slot 0."""
        self.state, self._append_id, self.slot = self._machine.initial(), "", _BEFORE_ALL

    def lose(self) -> None:
        """Forget the state. It is unknown until the next checkpoint."""
        self.state, self._append_id, self.slot = None, None, _BEFORE_ALL
        self._since = None

    def add(self, record: SlotRecord) -> Iterator[Finding]:
        """Fold the record of the next slot, and yield what is wrong with it."""
        slot = record.slot
        if self._append_id is not None and record.prev != self._append_id:
            yield of_slot(Kind.SLOT_CHAIN_BROKEN, slot, before=slot - 1, path_before=slot_path(slot - 1))
            self.lose()
        if self.state is not None and self.slot == slot - 1:
            reason = self._apply(self.state, record)
            if reason is not None:
                outside = next(paths_outside(record.entries), None)
                kind = Kind.RECORD_INVALID if outside is None else Kind.REFERENCE_OUTSIDE
                yield of_slot(kind, slot, problem=reason, outside=outside)
        self._append_id = record.append_id
        self._since = slot if self._since is None else self._since
        yield from self._unwritten(record, self._since)

    def pass_checkpoints(self, slot: int) -> Iterator[Finding]:
        """Compare the fold with the checkpoints up to a slot, and continue from their states.

        It continues from a checkpoint even if the fold differs, because readers that open the checkpoint do so too.
        """
        while self._ahead and self._ahead[0][0].slot <= slot:
            reference, loaded = self._ahead.pop(0)
            if loaded.state is None or loaded.root is None:
                continue
            checkpoint_slot = reference.slot
            differs = partial(finding, Kind.CHECKPOINT_DIFFERS, reference.path, slot=checkpoint_slot)
            if self.state is not None and self.slot == checkpoint_slot:
                unlike = differences(self.state, loaded.state)
                if self._append_id is not None and loaded.root.append_id != self._append_id:
                    unlike.append("append_id")
                if unlike:
                    yield differs(problem=f"the state that the slots lead to differs in {', '.join(unlike)}")
            elif self._append_id is not None and checkpoint_slot == slot and loaded.root.append_id != self._append_id:
                yield differs(problem="it is the state after another record than the record of its slot")
            self.state, self.slot, self._append_id = loaded.state, checkpoint_slot, loaded.root.append_id

    def _unwritten(self, record: SlotRecord, since: int) -> Iterator[Finding]:
        """Yield a finding for each checkpoint that the record names but that no earlier entry named.

        The entry that names the checkpoint of a slot is in a later slot. So checkpoints of slots before ``since`` are
        skipped: their entries may be in records that were not read.
        """
        for reference in (record.checkpoint, record.previous_checkpoint):
            if reference is None or reference.slot < since or reference in self._written:
                continue
            self._written.add(reference)
            problem = f"the record names checkpoint {reference.path}, which no earlier record wrote"
            yield of_slot(Kind.CHECKPOINT_DIFFERS, record.slot, problem=problem)
        for entry in filter(is_checkpoint, record.entries):
            with contextlib.suppress(InvalidEntry):
                self._written.add(decode_checkpoint_entry(entry).reference)

    def _apply(self, state: StoreState, record: SlotRecord) -> str | None:
        """Apply the record. Return None, or the reason why it is invalid and changes nothing."""
        self.slot = record.slot
        try:
            for entry in record.entries:
                if is_checkpoint(entry):
                    decode_checkpoint_entry(entry)
        except InvalidEntry as error:
            return without_code(error)
        reason = self._machine.fold(state, record.slot, [each for each in record.entries if not is_checkpoint(each)])
        return None if reason is None else without_code(reason)


_ATTEMPTS = 5
SLOTS_OF_A_COPY = 3
"""The number of slots with which the log of a copy begins."""


class LogVerification:
    """One verification of the log. Then ``state`` is the state after ``slot``; None if the log cannot be folded."""

    def __init__(self, log: Log[StoreState], copy_slot: int | None, progress: Progress) -> None:
        self.state: StoreState | None = None
        self.slot = -1
        self.checkpoint_objects: set[str] = set()
        self.lost: list[Run] = []
        """Slots that are missing or damaged, but that no process needs unless they have rows."""
        self._log = log
        self._copy_slot = copy_slot
        self._store = log.store
        self._unneeded_below = 0
        """No process needs the slots below, unless they have rows: a checkpoint above them can be read."""
        self._progress = progress
        self._records = Records(log.store)
        self._append_ids = AppendIds(log.store)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the existing slots and checkpoints.

        Raises:
            UnsupportedFormat: a newer version wrote a record or a checkpoint.
            StoreUnavailable, StoreAccessDenied
        """
        found = with_unlisted(self._store, runs(self._store))
        first = 0 if self._copy_slot is None else self._copy_slot
        yield from self._missing_of_copy(found[-1].last if found else first - 1)
        if not found:
            if self._copy_slot is None:
                yield finding(Kind.LOG_MISSING)
            return
        references = named_checkpoints(self._log, found)
        floor = min(each.slot for each in references) if len(references) == 2 else first
        if self._copy_slot is not None and references:
            floor = _floor_of_copy(min(each.slot for each in references), found)
        slots = without_adjoining_orphans(layout(found, floor, self._is_of_log), floor, self._store)
        for run in slots.orphans:
            yield of_slot(Kind.SLOT_STRAY, run.first, first=run.first, last=run.last)
        loaded = self._load(references)
        if any(checkpoint.state is not None for _, checkpoint in loaded):
            self._unneeded_below = floor
        for _, checkpoint in loaded:
            yield from checkpoint.findings
        self.lost += slots.lost
        for run in slots.lost:
            yield of_slot(Kind.SLOT_LOST, run.first, first=run.first, last=run.last)
        for run in slots.missing:
            yield from self._missing(run)
        if not slots.kept:
            # All listed slots have been deleted since.
            return
        fold = Fold(self._log.machine, loaded)
        total = sum(run.last - run.first + 1 for run in slots.kept)
        done = 0
        for run in slots.kept:
            if run.first == 0:
                fold.begin()
            else:
                fold.lose()
            yield from fold.pass_checkpoints(run.first - 1)
            if fold.slot != run.first - 1:
                fold.lose()
            for slot, body in self._bodies(run):
                yield from self._slot(fold, slot, body)
                done += 1
                self._progress("slots of the log", done, total)
        yield from self._append_ids.repeated(slots.kept)
        self.slot = found[-1].last
        self.state = fold.state if fold.slot == self.slot else None

    def _load(self, references: list[CheckpointReference]) -> list[tuple[CheckpointReference, LoadedCheckpoint]]:
        """Load checkpoints. Ignore a damaged one that the log no longer names: it was replaced meanwhile."""
        found = []
        for reference in sorted(references, key=lambda each: each.slot):
            loaded = load_checkpoint(self._store, self._log.machine, reference)
            if loaded.findings and reference not in named_checkpoints(self._log, runs(self._store)):
                continue
            found.append((reference, loaded))
            self.checkpoint_objects.add(reference.path)
            if loaded.root is not None:
                self.checkpoint_objects |= {part.path for part in loaded.root.parts if part.path is not None}
        return found

    def _is_of_log(self, run: Run) -> bool:
        """Return True if a run belongs to the log: its last two records continue each other, unlike orphan records.

        Return False if they have been deleted since.
        """
        if run.first == run.last:
            return False
        wanted = (run.last - 1, run.last)
        before, last = self._store.get_many([slot_path(slot) for slot in wanted])
        if before is None or last is None:
            return False
        try:
            records = [
                decode_line(first_line(each.body), slot) for slot, each in zip(wanted, (before, last), strict=True)
            ]
        except CorruptRecord:
            return run.first == 0
        return run.first == 0 or records[1].prev == records[0].append_id

    def _missing(self, run: Run) -> Iterator[Finding]:
        references = named_checkpoints(self._log, runs(self._store))
        if len(references) == 2 and run.last < references[-1].slot:
            return
        what = ("" if run.first == run.last else f"slots {run.first} to {run.last}: ") + f"slot {run.first}"
        yield of_slot(Kind.SLOT_MISSING, run.first, what=what, next=run.last + 1)

    def _missing_of_copy(self, newest: int) -> Iterator[Finding]:
        """Report that a copy lacks slots with which it was completed. A log never ends before them."""
        if self._copy_slot is None or newest >= (last := self._copy_slot + SLOTS_OF_A_COPY - 1):
            return
        what = f"slot {last}" if newest + 1 == last else f"each of the slots {newest + 1} to {last}"
        yield of_slot(Kind.COPY_SLOT_MISSING, newest + 1, what=what)

    def _bodies(self, run: Run) -> Iterator[tuple[int, bytes | None]]:
        for first in range(run.first, run.last + 1, SLOTS_AT_ONCE):
            wanted = range(first, min(first + SLOTS_AT_ONCE, run.last + 1))
            for slot, stored in zip(wanted, self._store.get_many([slot_path(each) for each in wanted]), strict=True):
                yield slot, None if stored is None else stored.body

    def _slot(self, fold: Fold, slot: int, body: bytes | None) -> Iterator[Finding]:
        if body is None:
            # The slot was listed, so a single answer "not found" does not prove that it is lost. Ask again.
            stored = self._store.get_many([slot_path(slot)])[0]
            body = None if stored is None else stored.body
        if body is None:
            record = None
            self._records.skip()
            yield from self._missing(Run(slot, slot))
        else:
            record, found = self._records.read(slot, body)
            if record is None and slot < self._unneeded_below:
                found = [replace(each, kind=Kind.OLD_SLOT_DAMAGED) for each in found]
                self.lost.append(Run(slot, slot))
            yield from found
        self._append_ids.add(record)
        if record is None:
            fold.lose()
        else:
            yield from fold.add(record)
        yield from fold.pass_checkpoints(slot)


def _floor_of_copy(checkpoint_slot: int, found: list[Run]) -> int:
    """Return the slot below which the log of a copy may lack slots.

    The log of a copy begins after its first checkpoint, whose own slot is one of the source.
    """
    begins_after = any(run.first == checkpoint_slot + 1 for run in found)
    return checkpoint_slot + 1 if begins_after else checkpoint_slot


def verify_log(
    log: Log[StoreState], copy_slot: int | None, progress: Progress
) -> tuple[LogVerification, list[Finding]]:
    """Verify the log and compute the state after its newest slot.

    Args:
        copy_slot: if the store is a copy, the first slot of its own log.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied
    """
    for _ in range(_ATTEMPTS):
        verification = LogVerification(log, copy_slot, progress)
        found = list(verification.findings())
        # Slots that were deleted during the verification are no fault, but the fold must start again without them.
        if found or verification.state is not None:
            break
    replica, problem = opened(log)
    if replica is None:
        # Nothing else can be read of a store whose log cannot be opened.
        verification.state = None
        if not any(each.log_in_doubt for each in found):
            found.append(finding(Kind.LOG_UNREADABLE, problem=problem))
        found = [replace(each, is_blocked=True) for each in found]
    elif verification.state is None:
        verification.state, verification.slot = replica.state, replica.slot
    return verification, found
