"""Checks of the log, slot by slot: each record exists, continues the record before it, and is valid at its slot.

The verification reads all existing slots, a few at a time. It folds them from slot 0 on, or from the older checkpoint
if earlier slots were deleted. It compares the result with each checkpoint on the way.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from eoslog.errors import CorruptRecord, InvalidEntry, NotAStore, UnsupportedFormat, without_code
from eoslog.format.data_file import check_file
from eoslog.log.checkpoint import CheckpointRoot, decode_root, inline_body
from eoslog.log.log import Log
from eoslog.log.machine import Machine
from eoslog.log.replica import CHECKPOINT_ENTRY, Replica, decode_checkpoint_entry
from eoslog.log.slot_paths import SLOTS, slot_of, slot_path
from eoslog.log.slot_record import (
    LARGEST_RECORD_BYTES,
    CheckpointReference,
    SlotRecord,
    decode_line,
    decode_tail,
    first_line,
)
from eoslog.state.store_state import StoreState
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, StoredObject
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Progress, Severity


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


_MOST_ADJOINING_ORPHANS = 16
"""Look for orphan records only in this many slots above the oldest one. A broken chain further up is damage, because
only a few paused processes put orphan records."""

_SLOTS_AT_ONCE = 16


class Run(NamedTuple):
    """Consecutive slots without a gap."""

    first: int
    last: int


def runs(store: ObjectStore) -> list[Run]:
    """Return the existing slots, ascending. Slots that are put or deleted meanwhile may be missing or included."""
    found: list[Run] = []
    for slot in _ascending(store):
        if not found or slot > found[-1].last:
            _append(found, Run(slot, slot))
    return found


def with_unlisted(store: ObjectStore, found: list[Run]) -> list[Run]:
    """Return the runs, plus slots in the gaps between them that exist nevertheless.

    A LIST while slots are put may contain a slot but not the slot before it.
    """
    whole: list[Run] = []
    for run in found:
        if whole:
            for slot in _there(store, range(whole[-1].last + 1, run.first)):
                _append(whole, Run(slot, slot))
        _append(whole, run)
    return whole


def _append(found: list[Run], run: Run) -> None:
    if found and run.first == found[-1].last + 1:
        found[-1] = Run(found[-1].first, run.last)
    else:
        found.append(run)


def _there(store: ObjectStore, gap: range) -> Iterator[int]:
    """Yield the slots of a gap that can be read, from its beginning on.

    It stops after a group of missing slots, because a gap may be very wide.
    """
    for begin in range(0, len(gap), _SLOTS_AT_ONCE):
        wanted = gap[begin : begin + _SLOTS_AT_ONCE]
        stored = store.get_many([slot_path(each) for each in wanted])
        there = [slot for slot, each in zip(wanted, stored, strict=True) if each is not None]
        if not there:
            return
        yield from there


def _ascending(store: ObjectStore) -> Iterator[int]:
    # Numbers of groups descend, so the largest number has the oldest slots.
    for group in sorted(store.list_directories(SLOTS), reverse=True):
        listed = (slot_of(info.path) for info in store.list(f"{SLOTS}{group}/"))
        yield from sorted(slot for slot in listed if slot is not None)


class Layout(NamedTuple):
    """The runs by their meaning. Slots below ``floor`` may have been deleted."""

    orphans: list[Run]
    """Orphan records, which paused processes put into slots that had been deleted."""
    lost: list[Run]
    """Gaps below ``floor`` that no deletion can have made."""
    missing: list[Run]
    """Gaps that reach ``floor`` or slots above it."""
    kept: list[Run]
    """The slots of the log."""


def layout(found: list[Run], floor: int, is_of_log: Callable[[Run], bool]) -> Layout:
    """Separate the log's slots from orphan records below them, and find the gaps.

    Args:
        found: the existing slots, ascending.
        floor: slots below it may have been deleted, in ascending order.
        is_of_log: returns True if a run below ``floor`` certainly belongs to the log. Then none above it was deleted.
    """
    needed = next((index for index, run in enumerate(found) if run.last >= floor), len(found))
    begin = needed
    if needed < len(found):
        begin = next((index for index, run in enumerate(found[:needed]) if is_of_log(run)), needed)
    kept = found[begin:]
    gaps = [Run(before.last + 1, after.first - 1) for before, after in itertools.pairwise(kept)]
    if kept and kept[0].first > floor:
        gaps.insert(0, Run(floor, kept[0].first - 1))
    lost = [gap for gap in gaps if gap.last < floor]
    return Layout(found[:begin], lost, gaps[len(lost) :], kept)


def without_adjoining_orphans(slots: Layout, floor: int, store: ObjectStore) -> Layout:
    """Also separate orphan records directly below the oldest slot of the log. The log does not continue them.

    Slots are deleted in ascending order. So while slot 0 exists, no slot was deleted and there are no orphan records.
    """
    if not slots.kept or slots.kept[0].first == 0:
        return slots
    first, last = slots.kept[0]
    lowest = range(first, min(first + _MOST_ADJOINING_ORPHANS, floor, last) + 1)
    bodies = store.get_many([slot_path(slot) for slot in lowest])
    records = [_record(slot, stored) for slot, stored in zip(lowest, bodies, strict=True)]
    broken = [
        below.slot
        for below, above in itertools.pairwise(records)
        if below is not None and above is not None and above.prev != below.token
    ]
    if not broken:
        return slots
    orphans = Run(first, broken[-1])
    return slots._replace(orphans=[*slots.orphans, orphans], kept=[Run(orphans.last + 1, last), *slots.kept[1:]])


def _record(slot: int, stored: StoredObject | None) -> SlotRecord | None:
    """Return a slot's record; None if it is missing or damaged. A later pass over all slots reports that."""
    try:
        return None if stored is None else decode_line(first_line(stored.body), slot)
    except (CorruptRecord, UnsupportedFormat):
        return None


_RECORDS_KEPT = 1000


class Records:
    """Reads records in the order of their slots."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._before: deque[SlotRecord] = deque(maxlen=_RECORDS_KEPT)

    def read(self, slot: int, body: bytes) -> tuple[SlotRecord | None, list[Finding]]:
        """Return a record, or None if it cannot be decoded, and the findings about its bytes.

        Raises:
            UnsupportedFormat: a newer version wrote the record.
        """
        try:
            record, repeated = _decoded_at_last(self._store, slot, body)
        except CorruptRecord as error:
            self.skip()
            problem = without_code(error)
            return None, [Finding(kind="slot-damaged", problem=problem, slot=slot, path=slot_path(slot))]
        found = list(self._unlike(slot, repeated))
        self._before.append(record)
        return record, found

    def skip(self) -> None:
        """Skip a missing slot. The tails of later records can then be compared only with records after it."""
        self._before.clear()

    def _unlike(self, slot: int, repeated: list[SlotRecord]) -> Iterator[Finding]:
        known = {record.slot: record for record in self._before}
        for record in repeated:
            if record.slot in known and known[record.slot] != record:
                problem = f"the record repeats slot {record.slot}, but with other content than that slot has"
                yield Finding(kind="slot-tail-differs", problem=problem, slot=slot, path=slot_path(slot))
                return


def token_of(store: ObjectStore, slot: int) -> str | None:
    """Return the append id (token) of a slot's record now; None if there is no record."""
    stored = store.get_many([slot_path(slot)])[0]
    try:
        return None if stored is None else _decoded_at_last(store, slot, stored.body)[0].token
    except CorruptRecord:
        return None


def _decoded_at_last(store: ObjectStore, slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    """Return a record and the records that it repeats. On an error read it again, as an answer may be cut short."""
    for _ in range(READS_BEFORE_REPORT - 1):
        try:
            return _decoded(slot, body)
        except CorruptRecord:
            stored = store.get_many([slot_path(slot)])[0]
            body = body if stored is None else stored.body
    return _decoded(slot, body)


def _decoded(slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    if len(body) > LARGEST_RECORD_BYTES:
        raise CorruptRecord(f"the record of slot {slot} is larger than {LARGEST_RECORD_BYTES} bytes")
    record = decode_line(first_line(body), slot)
    if not body.endswith(b"\n"):
        raise CorruptRecord(f"the record of slot {slot} is cut short")
    return record, [each for _, each in decode_tail(body, slot)]


_BYTES_KEPT = 8
_NO_TOKEN = 0


class Tokens:
    """The append ids (tokens) of slots, in the order of the slots. Eight bytes of each are kept."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept = array("Q")

    def add(self, record: SlotRecord | None) -> None:
        """Add the record of the next slot; None if it cannot be read."""
        self._kept.append(_NO_TOKEN if record is None else int(record.token[: 2 * _BYTES_KEPT], 16))

    def repeated(self, runs: list[Run]) -> Iterator[Finding]:
        """Yield a finding for each record with the append id of another record.

        Args:
            runs: the slots whose records were added.
        """
        slots = np.concatenate([np.arange(run.first, run.last + 1, dtype=np.int64) for run in runs])
        tokens = np.frombuffer(self._kept, dtype=np.uint64)
        order = np.argsort(tokens, kind="stable")
        same = np.flatnonzero((tokens[order][1:] == tokens[order][:-1]) & (tokens[order][1:] != _NO_TOKEN))
        for index in same.tolist():
            first, second = int(slots[order[index]]), int(slots[order[index + 1]])
            if token_of(self._store, first) == token_of(self._store, second) is not None:
                problem = f"the record has the same append id (token) as slot {first}"
                yield Finding(kind="slot-token-repeated", problem=problem, slot=second, path=slot_path(second))


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

    def read(path: str, length: int, crc32c: int) -> bytes | None:
        for attempt in range(READS_BEFORE_REPORT):
            try:
                body = store.get(path).body
                check_file(body, length, crc32c, path)
                return body
            except ObjectNotFound:
                _add(loaded, reference, "checkpoint-missing", "the object is missing", path)
                return None
            except CorruptRecord as error:
                if attempt == READS_BEFORE_REPORT - 1:
                    _add(loaded, reference, "checkpoint-damaged", str(error), path)
        return None

    body = read(reference.path, reference.length, reference.crc32c)
    if body is None:
        return loaded
    try:
        loaded.root = root = decode_root(body, reference.path)
    except CorruptRecord as error:
        _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
        return loaded
    if root.slot != reference.slot:
        problem = f"the root is of slot {root.slot}, but the log names it for slot {reference.slot}"
        _add(loaded, reference, "checkpoint-damaged", problem, reference.path)
        return loaded
    bodies: dict[str, bytes] = {}
    for part in root.parts:
        if part.path is not None:
            found = read(part.path, part.length, part.crc32c)
        else:
            try:
                found = inline_body(part)
            except CorruptRecord as error:
                _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
                found = None
        if found is not None:
            bodies[part.name] = found
    if loaded.findings:
        return loaded
    try:
        loaded.state = machine.restore(bodies)
    except CorruptRecord as error:
        _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
    return loaded


def differences(folded: StoreState, stored: StoreState) -> list[str]:
    """Return the names of the fields in which two states differ."""
    return [each.name for each in fields(folded) if getattr(folded, each.name) != getattr(stored, each.name)]


def _add(loaded: LoadedCheckpoint, reference: CheckpointReference, kind: str, problem: str, path: str) -> None:
    # The finding has the path already, and findings have no error code.
    problem = without_code(problem).removeprefix(f"{path}: ")
    loaded.findings.append(Finding(kind=kind, problem=problem, path=path, slot=reference.slot))


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
        self._token: str | None = None
        """The append id of the record before; None if it is unknown."""
        self._ahead = sorted(checkpoints, key=lambda each: each[0].slot)
        """The checkpoints that the fold has not reached."""
        self._since: int | None = None
        """The first slot since the last gap."""
        self._written: set[CheckpointReference] = set()
        """The checkpoints that entries have named."""

    def begin(self) -> None:
        """Start with the empty state before slot 0."""
        self.state, self._token, self.slot = self._machine.initial(), "", _BEFORE_ALL

    def lose(self) -> None:
        """Forget the state. It is unknown until the next checkpoint."""
        self.state, self._token, self.slot = None, None, _BEFORE_ALL
        self._since = None

    def add(self, record: SlotRecord) -> Iterator[Finding]:
        """Fold the record of the next slot, and yield what is wrong with it."""
        slot, path = record.slot, slot_path(record.slot)
        if self._token is not None and record.prev != self._token:
            problem = (
                f"the record does not continue that of slot {slot - 1}: this record or {slot_path(slot - 1)} "
                "is not what was written"
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
        """Compare the fold with the checkpoints up to a slot, and continue from their states.

        It continues from a checkpoint even if the fold differs, because readers that open the checkpoint do so too.
        """
        while self._ahead and self._ahead[0][0].slot <= slot:
            reference, loaded = self._ahead.pop(0)
            if loaded.state is None or loaded.root is None:
                continue
            checkpoint_slot = reference.slot
            if self.state is not None and self.slot == checkpoint_slot:
                unlike = differences(self.state, loaded.state)
                if self._token is not None and loaded.root.token != self._token:
                    unlike.append("token")
                if unlike:
                    problem = f"the state that the slots lead to differs in {', '.join(unlike)}"
                    yield Finding(kind="checkpoint-differs", problem=problem, slot=checkpoint_slot, path=reference.path)
            elif self._token is not None and checkpoint_slot == slot and loaded.root.token != self._token:
                problem = "it is the state after another record than the record of its slot"
                yield Finding(kind="checkpoint-differs", problem=problem, slot=checkpoint_slot, path=reference.path)
            self.state, self.slot, self._token = loaded.state, checkpoint_slot, loaded.root.token

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
            yield Finding(kind="checkpoint-differs", problem=problem, slot=record.slot, path=slot_path(record.slot))
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


class LogVerification:
    """One verification of the log. Then ``state`` is the state after ``slot``; None if the log cannot be folded."""

    def __init__(self, log: Log[StoreState], progress: Progress) -> None:
        self.state: StoreState | None = None
        self.slot = -1
        self.checkpoint_objects: set[str] = set()
        self._log = log
        self._store = log.store
        self._progress = progress
        self._records = Records(log.store)
        self._tokens = Tokens(log.store)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the existing slots and checkpoints.

        Raises:
            UnsupportedFormat: a newer version wrote a record or a checkpoint.
            StoreUnavailable, StoreAccessDenied
        """
        found = with_unlisted(self._store, runs(self._store))
        if not found:
            yield Finding(kind="log-missing", problem="the store has a description, but no slot")
            return
        references = named_checkpoints(self._log, found)
        floor = min(each.slot for each in references) if len(references) == 2 else 0
        slots = without_adjoining_orphans(layout(found, floor, self._is_of_log), floor, self._store)
        for run in slots.orphans:
            problem = f"slots {run.first} to {run.last} are below slots that were deleted or lost"
            yield Finding(kind="slot-stray", problem=problem, slot=run.first, path=slot_path(run.first))
        loaded = self._load(references)
        for _, checkpoint in loaded:
            yield from checkpoint.findings
        for run in slots.lost:
            problem = f"slots {run.first} to {run.last} are missing, but older slots exist, and those are deleted first"
            yield Finding(kind="slot-lost", problem=problem, slot=run.first, path=slot_path(run.first))
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
        yield from self._tokens.repeated(slots.kept)
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
        return run.first == 0 or records[1].prev == records[0].token

    def _missing(self, run: Run) -> Iterator[Finding]:
        last = run.last
        references = named_checkpoints(self._log, runs(self._store))
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
            yield from found
        self._tokens.add(record)
        if record is None:
            fold.lose()
        else:
            yield from fold.add(record)
        yield from fold.pass_checkpoints(slot)


def verify_log(log: Log[StoreState], progress: Progress) -> tuple[LogVerification, list[Finding]]:
    """Verify the log and compute the state after its newest slot.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied
    """
    for _ in range(_ATTEMPTS):
        verification = LogVerification(log, progress)
        found = list(verification.findings())
        # Slots that were deleted during the verification are no fault, but the fold must start again without them.
        if found or verification.state is not None:
            break
    is_sound = not any(each.severity is Severity.ERROR for each in found)
    if is_sound or verification.state is None:
        replica, problem = opened(log)
        if replica is None and is_sound:
            found.append(Finding(kind="log-unreadable", problem=problem))
        if replica is not None and verification.state is None:
            verification.state, verification.slot = replica.state, replica.slot
    return verification, found
