"""The log, slot by slot: each record is there, is the one that follows, and is valid where it stands.

All slots that there are are read, a few at a time. The fold begins at slot 0, or at the older checkpoint where earlier
slots were deleted, and what it comes to is compared with each checkpoint on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.errors import CorruptRecord
from eoslog.log.log import Log
from eoslog.log.paths import slot_path
from eoslog.log.record import CheckpointReference, decode_line, first_line
from eoslog.rules.state import StoreState
from eoslog.verification.checkpoints import LoadedCheckpoint, load_checkpoint
from eoslog.verification.finding import Finding
from eoslog.verification.fold import Fold
from eoslog.verification.kinds import Severity
from eoslog.verification.opened import named_checkpoints, opened
from eoslog.verification.progress import Progress
from eoslog.verification.records import Records
from eoslog.verification.slots import Run, layout, runs, with_unlisted, without_adjoining_strays
from eoslog.verification.tokens import Tokens

_SLOTS_AT_ONCE = 16
_ATTEMPTS = 5


class LogVerification:
    """Looks at the log once. Afterwards ``state`` is that after ``slot``, unless the log cannot be folded."""

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
        """What is wrong with the slots and checkpoints that there are.

        Raises:
            UnsupportedFormat: a newer version wrote something.
            StoreUnavailable, StoreAccessDenied
        """
        found = with_unlisted(self._store, runs(self._store))
        if not found:
            yield Finding(kind="log-missing", problem="there is a description, but no slot")
            return
        references = named_checkpoints(self._log, found)
        floor = min(each.slot for each in references) if len(references) == 2 else 0
        slots = without_adjoining_strays(layout(found, floor, self._is_of_log), floor, self._store)
        for run in slots.strays:
            problem = f"slots {run.first} to {run.last} lie below others that were deleted, or are lost"
            yield Finding(kind="slot-stray", problem=problem, slot=run.first, path=slot_path(run.first))
        loaded = self._load(references)
        for _, checkpoint in loaded:
            yield from checkpoint.findings
        for run in slots.lost:
            problem = (
                f"slots {run.first} to {run.last} are not there, and no deletion took them: it takes older ones first"
            )
            yield Finding(kind="slot-lost", problem=problem, slot=run.first, path=slot_path(run.first))
        for run in slots.missing:
            yield from self._missing(run)
        if not slots.kept:
            # All that was listed has been deleted since.
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
        """Load checkpoints. What the log no longer names when it is asked again was replaced meanwhile."""
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
        """Whether slots are no stray ones: these do not continue each other. False if they have been deleted since."""
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
            # It was listed: one answer that it is not there does not prove it lost.
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
        view, problem = opened(log)
        if view is None and is_sound:
            found.append(Finding(kind="log-unreadable", problem=problem))
        if view is not None and verification.state is None:
            verification.state, verification.slot = view.state, view.slot
    return verification, found
