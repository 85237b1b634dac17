"""The log, slot by slot: each record is there, is the one that follows, and is valid where it stands.

All slots that there are are read, a few at a time. The fold begins at slot 0, or at the older checkpoint where earlier
slots were deleted, and what it comes to is compared with each checkpoint on the way.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from eoslog.errors import CorruptRecord, InvalidEntry, NotAStore, without_code
from eoslog.log.log import Log
from eoslog.log.paths import slot_path
from eoslog.log.record import (
    LARGEST_RECORD_BYTES,
    CheckpointReference,
    SlotRecord,
    decode_line,
    decode_tail,
    first_line,
)
from eoslog.log.view import CHECKPOINT_ENTRY, View, decode_checkpoint_entry
from eoslog.rules.state import StoreState
from eoslog.verification.checkpoints import LoadedCheckpoint, differences, load_checkpoint
from eoslog.verification.finding import READS_BEFORE_REPORT, Finding
from eoslog.verification.kinds import Severity
from eoslog.verification.progress import Progress
from eoslog.verification.slots import Run, layout, runs

_SLOTS_AT_ONCE = 16
_ATTEMPTS = 5


class LogVerification:
    """Looks at the log once. Afterwards ``state`` is that after ``slot``, unless the log cannot be folded."""

    def __init__(self, log: Log[StoreState], progress: Progress) -> None:
        self.state: StoreState | None = None
        self.slot = -1
        self.references: list[CheckpointReference] = []
        """The checkpoints that the log names, the newest first."""
        self.checkpoint_objects: set[str] = set()
        self._log = log
        self._store = log.store
        self._progress = progress
        self._token: str | None = None
        """That of the record before; None if it is not known."""
        self._after = -1
        """The slot after which ``state`` is the state."""
        self._tokens = array("Q")
        self._lines: deque[SlotRecord] = deque(maxlen=1000)
        self._loaded: dict[int, LoadedCheckpoint] = {}

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the slots and checkpoints that there are.

        Raises:
            UnsupportedFormat: a newer version wrote something.
            StoreUnavailable, StoreAccessDenied
        """
        found = runs(self._store)
        if not found:
            yield Finding(kind="log-missing", problem="there is a description, but no slot")
            return
        newest = found[-1].last
        self.references = self._named(found)
        floor = min((each.slot for each in self.references), default=0) if len(self.references) == 2 else 0
        slots = layout(found, floor)
        for run in slots.strays:
            problem = f"slots {run.first} to {run.last} lie below those that were deleted"
            yield Finding(kind="slot-stray", problem=problem, slot=run.first, path=slot_path(run.first))
        yield from self._checkpoints()
        for run in slots.missing:
            yield from self._missing(run)
        if not slots.kept:
            # All that was listed has been deleted since.
            return
        if slots.kept[0].first == 0:
            self.state, self._token, self._after = self._log.machine.initial(), "", -1
        total = sum(run.last - run.first + 1 for run in slots.kept)
        done = 0
        for run in slots.kept:
            yield from self._between(run.first - 1)
            if self._after != run.first - 1:
                self._lose()
            for slot, body in self._bodies(run):
                yield from self._slot(slot, body)
                done += 1
                self._progress("slots of the log", done, total)
        yield from self._repeated_tokens(slots.kept)
        self.slot = newest
        if self._after != newest:
            self.state = None

    def _named(self, found: list[Run]) -> list[CheckpointReference]:
        """The two checkpoints that the log names, the newest first: as it is opened, or by its newest record."""
        view, _ = _opened(self._log)
        if view is None:
            return self._named_by_records(found)
        named = (view.checkpoint, view.previous_checkpoint)
        return [each for each in named if each is not None]

    def _named_by_records(self, found: list[Run]) -> list[CheckpointReference]:
        for run in reversed(found):
            for slot in range(run.last, run.first - 1, -1):
                stored = self._store.get_many([slot_path(slot)])[0]
                try:
                    record = decode_line(first_line(stored.body if stored is not None else b""), slot)
                    own = [decode_checkpoint_entry(each).reference for each in record.entries if _is_checkpoint(each)]
                except (CorruptRecord, InvalidEntry):
                    continue
                named = {each for each in (*own, record.checkpoint, record.previous_checkpoint) if each is not None}
                return sorted(named, key=lambda each: -each.slot)[:2]
        return []

    def _checkpoints(self) -> Iterator[Finding]:
        """Load both checkpoints. What the log no longer names when it is asked again was replaced meanwhile."""
        for reference in sorted(self.references, key=lambda each: each.slot):
            loaded = load_checkpoint(self._store, self._log.machine, reference)
            if loaded.findings and reference not in self._named(runs(self._store)):
                continue
            yield from loaded.findings
            self._loaded[reference.slot] = loaded
            self.checkpoint_objects.add(reference.path)
            if loaded.root is not None:
                self.checkpoint_objects |= {part.path for part in loaded.root.parts if part.path is not None}

    def _missing(self, run: Run) -> Iterator[Finding]:
        last = run.last
        references = self._named(runs(self._store))
        if len(references) == 2 and last < references[-1].slot:
            return
        first = "slot" if run.first == last else f"slots {run.first} to {last}: slot"
        problem = f"{first} {run.first} is missing, though the log goes on to slot {last + 1}"
        yield Finding(kind="slot-missing", problem=problem, slot=run.first, path=slot_path(run.first))

    def _bodies(self, run: Run) -> Iterator[tuple[int, bytes | None]]:
        for first in range(run.first, run.last + 1, _SLOTS_AT_ONCE):
            wanted = range(first, min(first + _SLOTS_AT_ONCE, run.last + 1))
            for slot, stored in zip(wanted, self._store.get_many([slot_path(each) for each in wanted]), strict=True):
                yield slot, None if stored is None else stored.body

    def _slot(self, slot: int, body: bytes | None) -> Iterator[Finding]:
        record: SlotRecord | None = None
        repeated: list[SlotRecord] = []
        if body is None:
            yield from self._missing(Run(slot, slot))
        else:
            try:
                record, repeated = self._decoded_at_last(slot, body)
            except CorruptRecord as error:
                yield Finding(kind="slot-damaged", problem=without_code(error), slot=slot, path=slot_path(slot))
        self._tokens.append(0 if record is None else int(record.token[:16], 16))
        if record is None:
            self._lines.clear()
            self._lose()
        else:
            yield from self._tail(slot, repeated)
            yield from self._chain(record)
            yield from self._fold(record)
            self._lines.append(record)
            self._token = record.token
        yield from self._between(slot)

    def _decoded_at_last(self, slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
        """A record, and those that it repeats. What cannot be decoded is read again: an answer may be cut short."""
        for _ in range(READS_BEFORE_REPORT - 1):
            try:
                return self._decoded(slot, body)
            except CorruptRecord:
                stored = self._store.get_many([slot_path(slot)])[0]
                body = body if stored is None else stored.body
        return self._decoded(slot, body)

    def _decoded(self, slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
        if len(body) > LARGEST_RECORD_BYTES:
            raise CorruptRecord(f"the record of slot {slot} is larger than {LARGEST_RECORD_BYTES} bytes")
        record = decode_line(first_line(body), slot)
        if not body.endswith(b"\n"):
            raise CorruptRecord(f"the record of slot {slot} is cut short")
        return record, [each for _, each in decode_tail(body, slot)]

    def _tail(self, slot: int, repeated: list[SlotRecord]) -> Iterator[Finding]:
        """What a record repeats of those before it is what they say."""
        known = {record.slot: record for record in self._lines}
        for record in repeated:
            if record.slot in known and known[record.slot] != record:
                problem = f"the record repeats slot {record.slot}, and not as that stands there"
                yield Finding(kind="slot-tail-differs", problem=problem, slot=slot, path=slot_path(slot))
                return

    def _chain(self, record: SlotRecord) -> Iterator[Finding]:
        if self._token is not None and record.prev != self._token:
            before = record.slot - 1
            problem = (
                f"the record does not continue that of slot {before}: one of the two is not what was written, "
                f"this or {slot_path(before)}"
            )
            yield Finding(kind="slot-chain-broken", problem=problem, slot=record.slot, path=slot_path(record.slot))
            self._lose()

    def _fold(self, record: SlotRecord) -> Iterator[Finding]:
        if self.state is None or self._after != record.slot - 1:
            return
        entries = [entry for entry in record.entries if not _is_checkpoint(entry)]
        try:
            for entry in record.entries:
                if _is_checkpoint(entry):
                    decode_checkpoint_entry(entry)
            reason = self._log.machine.fold(self.state, record.slot, entries)
        except InvalidEntry as error:
            reason = without_code(error)
        self._after = record.slot
        if reason is not None:
            outside = next(_paths_outside(record.entries), None)
            yield Finding(
                kind="record-invalid" if outside is None else "reference-outside",
                problem=without_code(reason) if outside is None else f"it names {outside!r}",
                slot=record.slot,
                path=slot_path(record.slot),
            )

    def _between(self, slot: int) -> Iterator[Finding]:
        """At the slots of checkpoints: compare the fold with them, or go on from there if there is no fold."""
        for reference in sorted(self.references, key=lambda each: each.slot):
            loaded = self._loaded.get(reference.slot)
            if loaded is None or loaded.state is None or loaded.root is None or reference.slot > slot:
                continue
            del self._loaded[reference.slot]
            if self.state is not None and self._after == reference.slot:
                unlike = differences(self.state, loaded.state)
                if self._token is not None and loaded.root.token != self._token:
                    unlike.append("token")
                if unlike:
                    problem = f"the state that the slots lead to is another in {', '.join(unlike)}"
                    place = reference.slot
                    yield Finding(kind="checkpoint-differs", problem=problem, slot=place, path=reference.path)
            elif self._token is not None and reference.slot == slot and loaded.root.token != self._token:
                problem = "it is the state after another record than that of its slot"
                yield Finding(kind="checkpoint-differs", problem=problem, slot=slot, path=reference.path)
            # What readers begin with, whether the fold agrees or not.
            self.state, self._after, self._token = loaded.state, reference.slot, loaded.root.token

    def _lose(self) -> None:
        """The state is not known any more, until the next checkpoint."""
        self.state, self._token, self._after = None, None, -1

    def _repeated_tokens(self, kept: list[Run]) -> Iterator[Finding]:
        """A token lies in one slot. Eight bytes of each are kept; only where these are the same both are read again."""
        slots = np.concatenate([np.arange(run.first, run.last + 1, dtype=np.int64) for run in kept])
        tokens = np.frombuffer(self._tokens, dtype=np.uint64)
        order = np.argsort(tokens, kind="stable")
        same = np.flatnonzero((tokens[order][1:] == tokens[order][:-1]) & (tokens[order][1:] != 0))
        for index in same.tolist():
            first, second = int(slots[order[index]]), int(slots[order[index + 1]])
            if self._token_of(first) == self._token_of(second) is not None:
                problem = f"the record has the token of slot {first}"
                yield Finding(kind="slot-token-repeated", problem=problem, slot=second, path=slot_path(second))

    def _token_of(self, slot: int) -> str | None:
        stored = self._store.get_many([slot_path(slot)])[0]
        return None if stored is None else decode_line(first_line(stored.body), slot).token


def verify_log(log: Log[StoreState], progress: Progress) -> tuple[LogVerification, list[Finding]]:
    """Look at the log, and at what it is after its newest slot.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied
    """
    for _ in range(_ATTEMPTS):
        verification = LogVerification(log, progress)
        found = list(verification.findings())
        # What was deleted while it was looked at is no fault, but the fold must be begun again.
        if found or verification.state is not None:
            break
    is_sound = not any(each.severity is Severity.ERROR for each in found)
    if is_sound or verification.state is None:
        view, problem = _opened(log)
        if view is None and is_sound:
            found.append(Finding(kind="log-unreadable", problem=problem))
        if view is not None and verification.state is None:
            verification.state, verification.slot = view.state, view.slot
    return verification, found


def _opened(log: Log[StoreState]) -> tuple[View[StoreState] | None, str]:
    """The log as any process opens it, or why it cannot be opened."""
    problem = ""
    for _ in range(READS_BEFORE_REPORT):
        view = View(log.store, log.machine, log.environment, log.config)
        try:
            view.open()
        except (CorruptRecord, NotAStore) as error:
            problem = without_code(error)
        else:
            return view, ""
    return None, problem


def _is_checkpoint(entry: dict[str, Any]) -> bool:
    return entry.get("type") == CHECKPOINT_ENTRY


def _paths_outside(value: object) -> Iterator[str]:
    """References that leave the store: absolute ones, with another scheme, or with ``..`` parts."""
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
            yield from _paths_outside(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _paths_outside(each)
