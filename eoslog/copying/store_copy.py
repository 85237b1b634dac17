"""A consistent copy of a store: its state and files at one slot, in another place.

The copy works in this order, so that the target is no store until the last put:

1. It decides that a copy begins at the target, after a probe of put-if-absent.
2. It writes two checkpoints of the source's newest state, or of the state at the wanted slot or time, and decides that
   this slot is the plan.
3. It copies the files that the state names. If the source has deleted one since, it makes a new plan with the newest
   slot. If the user asked for a slot or a time, it refuses instead.
4. It decides that the copy is complete, puts the first slots of the target's log, and verifies the target.
5. It puts the description, ``eoslog.json``.

An update of a complete copy does the same from step 2 on. Files that the target has are not copied again. The put of
the first new slot replaces the old log. In step 5 the description gets the new slot. Then the update deletes what only
the old log needs.

A process may die after each step. The next run reads the decisions and continues. The target's log begins after the
slot of the plan, as if older slots had been deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from eoslog.copying.decisions import CopyBegun, CopyCompleted, CopyPlanned, Decisions
from eoslog.copying.file_copy import CopiedFiles, FileCopy, FileDropped, files_as_objects
from eoslog.copying.identity import with_new_identity
from eoslog.copying.past_state import PastState, past_state
from eoslog.errors import (
    CorruptRecord,
    InvalidRequest,
    NotAStore,
    OffsetOutOfRange,
    StoreAlreadyExists,
    StoreUnavailable,
)
from eoslog.log.checkpoint import read_checkpoint, write_checkpoint
from eoslog.log.slots import (
    CHECKPOINTS,
    SLOTS,
    CheckpointEntry,
    CheckpointReference,
    SlotRecord,
    checkpoint_path,
    encode_line,
    slot_body,
    slot_of,
    slot_path,
)
from eoslog.maintenance.vacuum import referenced_files
from eoslog.read.time_travel import AsOf, resolve, timestamp_ms
from eoslog.session.description import (
    COPY_DIRECTORY,
    DESCRIPTION_PATH,
    CopiedFrom,
    ProbeRecord,
    StoreDescription,
    decode_description,
    encode_description,
    find_description,
)
from eoslog.session.session import Session
from eoslog.session.store_machine import StoreMachine
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.partitions import shared_positions
from eoslog.storage.conditional_put import put_once
from eoslog.storage.probe import probe_put_if_absent
from eoslog.verification.findings import Finding, Kind, Progress, Severity
from eoslog.verification.log_checks import SLOTS_OF_A_COPY
from eoslog.verification.slot_checks import newest_slot
from eoslog.verification.store_checks import fresh_session, verify
from eoslog.wording import quoted, without_code

_logger = logging.getLogger(__name__)
_MOST_PLANS = 10
_OF_OUTDATED = frozenset({Kind.SLOT_LOST, Kind.SLOT_STRAY, Kind.FILES_UNREFERENCED})


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy."""

    url: str
    """The URL of the copy, without credentials."""
    store_id: str
    slot: int
    """The slot of the source whose state the copy has."""
    source_slot: int
    """The newest slot of the source at the beginning of this run. If it is larger than ``slot``, the copy is behind."""
    was_complete: bool = False
    """True if an earlier run had completed the copy. Then nothing was done, and the numbers below are 0."""
    files: int = 0
    """Files that this run copied or found at the target; 0 if an earlier run had copied all of them."""
    bytes: int = 0
    files_reused: int = 0
    """Files that an earlier run had copied."""
    findings: list[Finding] = field(default_factory=list)
    """The findings of the verification of the copy. None is an error."""


class StoreCopy:
    """One run of a copy."""

    def __init__(
        self,
        source: Session,
        target: Session,
        *,
        new_identity: bool,
        update: bool,
        slot: int | None,
        timestamp: datetime | int | str | None,
        progress: Progress,
    ) -> None:
        if not isinstance(target, Session):
            raise InvalidRequest(f"target is a store, as eoslog.connect(url) returns it, not {quoted(target)}")
        self._source = source
        self._target = target
        self._store = target.object_store
        self._environment = target.environment
        self._has_new_identity = new_identity
        self._is_update = update
        self._asked_slot = slot
        self._asked_ms = None if timestamp is None else timestamp_ms(timestamp)
        self._progress = progress
        self._decisions = Decisions(target)
        self._own_checkpoint: CheckpointReference | None = None
        """The checkpoint of the last plan that this run made."""
        self._may_have_files = True
        self._source_slot = NO_SLOT
        self._wanted_slot: int | None = None
        """The slot that the user asked for, by its number or by a time; None for the newest one."""
        self._past: PastState | None = None
        """The state at the wanted slot, if it has been computed."""

    def run(self) -> CopyReport:
        """Copy a slot of the source, by default the newest one, or continue the copy that an earlier run began.

        Raises:
            NotAStore: the source is no store, or the target holds other objects.
            StoreAlreadyExists: the target is another store, or a copy of a slot that the source's log does not have, or
                a copy that was written to since.
            InvalidRequest: the target lies in the source, or an unfinished copy of another kind is there, or a copy of
                another slot than the wanted one.
            InvalidOption: a slot and a timestamp are given, or the slot or the time is in the future.
            OffsetOutOfRange: the source no longer has the state, or the files, of the wanted slot.
            CorruptRecord: the source is damaged. The target is no store then, or as it was before the update. Damage
                above a wanted slot does not matter.
            PutIfAbsentUnsupported: the target cannot hold a store.
            RetriableError: run the copy again.
        """
        self._source.describe()
        if self._source.object_store.holds(self._store):
            raise InvalidRequest(
                f"the target {self._target.url} lies in the source {self._source.url}. Choose a place outside of it"
            )
        self._find_wanted_slot()
        complete = self._complete_copy()
        if complete is not None:
            return complete
        if self._wanted_slot is not None:
            # A slot that cannot be copied is refused before anything is put.
            self._decisions.refresh()
            if self._decisions.plan is None or self._decisions.plan.slot < self._wanted_slot:
                self._state_at(self._wanted_slot)
        begun = self._begin()
        copied = CopiedFiles()
        wants_update = self._is_update
        drops = 0
        while drops < _MOST_PLANS:
            plan = self._decisions.plan
            if plan is None:
                self._plan(begun)
                continue
            self._check_slot(plan.slot)
            is_behind = plan.slot < (self._source_slot if self._wanted_slot is None else self._wanted_slot)
            if self._decisions.is_complete:
                if not (is_behind and wants_update):
                    self._check_wanted(plan.slot)
                    report = self._finish(begun, plan, copied)
                    if report is not None:
                        return report
                    continue
                # Refuse the target before files are copied. An earlier run may have died before its last put.
                self._check_unwritten()
                if not self._is_put(begun, plan) and self._finish(begun, plan, copied) is None:
                    continue
            # A plan that is not complete is continued, unless the user asked for a newer slot.
            wants_plan = wants_update if self._decisions.completed else self._wanted_slot is not None
            if is_behind and wants_plan:
                wants_update = self._wanted_slot is not None
                self._plan(begun)
                continue
            self._check_wanted(plan.slot)
            try:
                copied = self._copy_files(plan)
            except FileDropped as dropped:
                drops += 1
                # Another process may have planned a newer slot meanwhile, and may have completed it.
                self._decisions.refresh()
                if self._decisions.plan is plan and self._wanted_slot is not None:
                    raise OffsetOutOfRange(self._without_files(plan.slot, dropped)) from None
                _logger.info("%s: a newer slot than %d is copied: %s", self._source.url, plan.slot, dropped)
                if drops < _MOST_PLANS and self._decisions.plan is plan:
                    self._plan(begun)
                continue
            self._environment.reached("store.copy.files_copied")
            self._decisions.decide(CopyCompleted())
            self._environment.reached("store.copy.completed")
        raise StoreUnavailable(
            f"{self._source.url}: {_MOST_PLANS} times the store dropped and deleted files of the copied slot before "
            "they were copied. Copy again: the copied files are kept. Or raise vacuum.deleted_file_retention_ms"
        )

    def _find_wanted_slot(self) -> None:
        """Find the newest slot of the source, and the slot that the user asked for.

        Raises:
            InvalidOption: a slot and a timestamp are given, or the slot or the time is in the future.
            OffsetOutOfRange: the source no longer has the state at the time.
            CorruptRecord: the newest slot or a time is wanted, and the log is damaged.
        """
        try:
            self._source_slot, log_time_ms = self._source.log.read(lambda state, slot: (slot, state.time_ms))
        except CorruptRecord:
            if self._asked_slot is None:
                raise
            # The damage may be above the wanted slot. The log's time does not matter for a slot.
            self._source_slot, log_time_ms = newest_slot(self._source.object_store), 0
        as_of = resolve(
            self._asked_slot,
            self._asked_ms,
            newest_slot=self._source_slot,
            log_time_ms=log_time_ms,
            now_ms=self._source.now_ms(),
        )
        if as_of is None:
            return
        if self._asked_ms is not None:
            self._past = past_state(self._source, self._source_slot, AsOf(None, self._asked_ms))
        self._wanted_slot = as_of.slot if self._past is None else self._past.slot

    def _state_at(self, slot: int) -> PastState:
        """Raises: OffsetOutOfRange: the source no longer has the state at this slot, the wanted one."""
        if self._past is None:
            self._past = past_state(self._source, self._source_slot, AsOf(slot, None))
        return self._past

    def _check_wanted(self, slot: int) -> None:
        """Check that the copy at the target, complete or not, is of the wanted slot.

        Raises:
            InvalidRequest
        """
        wanted = self._wanted_slot
        if wanted is None or slot == wanted:
            return
        if slot > wanted:
            raise InvalidRequest(
                f"{self._target.url} has a copy of slot {slot}, and a copy does not go back to slot {wanted}. Choose "
                "an empty URL for the copy"
            )
        raise InvalidRequest(
            f"{self._target.url} has a copy of slot {slot}, not of slot {wanted}. Update it to that slot (update=True, "
            "--update), or choose an empty URL for the copy"
        )

    def _without_files(self, slot: int, dropped: FileDropped) -> str:
        """Return the message that the files of a slot are gone, with the oldest slot whose files are surely there."""
        # Vacuum deletes dropped files in the order of their drops, and then removes the pending deletions. So the slot
        # before the oldest pending deletion has all its files.
        gone = f"{self._source.url}: slot {slot} can no longer be copied: {dropped}"
        try:
            newest = self._source.log.read(lambda state, newest: (newest, state.pending_deletions))
        except CorruptRecord as error:
            return f"{gone}. The log is damaged above: {without_code(error)}. Choose a later slot below the damage"
        oldest = newest[1][0].slot - 1 if newest[1] else newest[0]
        if oldest <= slot:
            oldest = newest[0]
        return (
            f"{gone}. Slot {oldest} and later ones have all their files: choose one of them. Or leave the slot or "
            "timestamp out to copy the newest one"
        )

    def _complete_copy(self) -> CopyReport | None:
        """Return the report of a copy of this source that is complete, and whose log is there.

        Returns:
            None if the target is no store, is to be updated, or has lost slots with which it was completed.

        Raises:
            StoreAlreadyExists: the target is another store, or a copy of a slot that the source's log does not have.
            InvalidRequest: the copy is of another slot than the wanted one.
        """
        found = find_description(self._store)
        if found is None:
            return None
        source_id = self._source.describe().store_id
        is_of_source = found.copied is not None and found.copied.store_id == source_id
        if found.copied is None or not is_of_source or (found.store_id != source_id) is not self._has_new_identity:
            raise StoreAlreadyExists(
                f"there is a store at {self._target.url} already, its id is {found.store_id}. Choose an empty URL for "
                "the copy"
            )
        self._check_slot(found.copied.slot)
        wanted = self._source_slot if self._wanted_slot is None else self._wanted_slot
        is_behind = found.copied.slot < wanted
        if self._is_update and is_behind:
            return None
        self._check_wanted(found.copied.slot)
        if newest_slot(self._store) < found.copied.first_slot + SLOTS_OF_A_COPY - 1:
            return None
        return CopyReport(self._target.url, found.store_id, found.copied.slot, self._source_slot, was_complete=True)

    def _check_slot(self, slot: int) -> None:
        """Check that the source's own log may have had a slot.

        The log of a source that is itself a copy begins after the copied slot. A target at an earlier slot is then the
        source itself under another URL, or an older copy of the same store.

        Raises:
            StoreAlreadyExists
        """
        origin = self._source.describe().copied
        if origin is not None and slot <= origin.slot:
            raise StoreAlreadyExists(
                f"{self._target.url} has slot {slot} of the store {origin.store_id}, so it is no copy of "
                f"{self._source.url}, which is itself a copy of slot {origin.slot}. Choose an empty URL for the copy"
            )

    def _begin(self) -> CopyBegun:
        """Return the decision that the copy begins, of this run or an earlier one.

        Raises:
            NotAStore: the target holds other objects.
            InvalidRequest: an unfinished copy of another store, or with another identity, is there.
        """
        decisions, source_id = self._decisions, self._source.describe().store_id
        decisions.refresh()
        if decisions.begun is None and find_description(self._store) is not None:
            raise StoreAlreadyExists(
                f"{self._target.url} lacks the decisions of its copy, {COPY_DIRECTORY}0000.json and the following. "
                "Choose an empty URL for the copy"
            )
        if decisions.begun is None and self._target.is_occupied():
            # Another process may have begun between the two requests.
            decisions.refresh()
            if decisions.begun is None:
                raise NotAStore(
                    f"{self._target.url} holds objects that belong to no store. Choose an empty URL for the copy"
                )
        if decisions.begun is None:
            probe_put_if_absent(self._store, self._environment)
            self._environment.reached("store.copy.probed")
            store_id = self._environment.new_id() if self._has_new_identity else source_id
            now_ms = self._store.clock.now_ms()
            decisions.decide(CopyBegun(source_store_id=source_id, store_id=store_id, time_ms=now_ms))
            self._environment.reached("store.copy.begun")
            # Another process may have begun first, and may copy at the same time. Then both put the same bytes.
            self._may_have_files = False
        begun = decisions.begun
        assert begun is not None
        if begun.source_store_id != source_id:
            raise InvalidRequest(
                f"{self._target.url} has an unfinished copy of the store {begun.source_store_id}, but this is "
                f"{source_id}. Choose an empty URL for the copy"
            )
        if (begun.store_id != source_id) is not self._has_new_identity:
            raise InvalidRequest(
                f"{self._target.url} has an unfinished copy with {'the same' if self._has_new_identity else 'a new'} "
                "identity. Continue it in the same way, or choose an empty URL for the copy"
            )
        return begun

    def _plan(self, begun: CopyBegun) -> None:
        """Write checkpoints of the source's state to the target, and decide that it is the plan.

        Raises:
            CorruptRecord: the log of the source has an invalid record.
        """
        wanted = self._wanted_slot
        state, slot, append_id = self._newest_state() if wanted is None else self._state_at(wanted)
        shared = shared_positions(state)
        state = files_as_objects(state)
        if self._has_new_identity:
            state = with_new_identity(state, begun.store_id)
        # The target's clock may be behind that of the source, whose vacuum set the horizon.
        upload_ms = max(self._store.clock.now_ms(), state.horizon_ms + 1)
        # An update puts its slots behind those of the copy before. A gap keeps processes that follow the old log from
        # reading a record that does not continue it.
        number = max([slot + 1, *(each.first_slot + SLOTS_OF_A_COPY + 1 for each in self._decisions.completed)])
        # Three records without a change of the state: one to which the first checkpoint belongs, and one for each
        # checkpoint's entry. So the log of the copy is like one whose older slots were deleted. The first record names
        # a checkpoint, too. As soon as it is put, a process that opens the log finds the state of the new copy.
        new_id = self._environment.new_id
        write = partial(write_checkpoint, self._store, self._environment, StoreMachine(), state=state)
        base, root = write(slot=number - 1, append_id=append_id, shared=None)
        first = SlotRecord(slot=number, append_id=new_id(), prev=append_id, checkpoint=base)
        older, root = write(slot=first.slot, append_id=first.append_id, shared=root)
        entries = (_entry(older, upload_ms),)
        second = SlotRecord(slot=number + 1, append_id=new_id(), prev=first.append_id, checkpoint=base, entries=entries)
        newer, _ = write(slot=second.slot, append_id=second.append_id, shared=root)
        third = SlotRecord(
            slot=number + 2,
            append_id=new_id(),
            prev=second.append_id,
            checkpoint=older,
            previous_checkpoint=base,
            entries=(_entry(newer, upload_ms, shares_with=older.slot),),
        )
        self._own_checkpoint = older
        self._environment.reached("store.copy.checkpoints_written")
        lines = [encode_line(record) for record in (first, second, third)]
        tail = lines[1:2] if self._store.tail_bytes > 0 else []
        bodies = [slot_body(lines[0]), slot_body(lines[1]), slot_body(lines[2], tail)]
        records = tuple(body.decode() for body in bodies)
        self._decisions.decide(
            CopyPlanned(
                slot=slot, first_slot=number, time_ms=upload_ms, checkpoint=older, records=records, shared=shared
            )
        )
        self._environment.reached("store.copy.planned")

    def _newest_state(self) -> PastState:
        """Raises: CorruptRecord: the log of the source has an invalid record."""
        log = self._source.log
        found, invalid = log.read(
            lambda state, slot: (PastState(state.frozen_copy(), slot, log.replica.append_id), log.replica.invalid)
        )
        if invalid is not None:
            raise CorruptRecord(f"{self._source.url}: {invalid}. Run eoslog verify on the source")
        return found

    def _copy_files(self, plan: CopyPlanned) -> CopiedFiles:
        """Raises: FileDropped, CorruptRecord"""
        try:
            state, _ = read_checkpoint(self._store, StoreMachine(), plan.checkpoint)
        except CorruptRecord as error:
            self._decisions.refresh()
            if plan.checkpoint == self._own_checkpoint and self._decisions.plan is plan:
                raise
            # The checkpoint of an earlier run was damaged at the target since. Or another process has completed a newer
            # plan, and has deleted what only this one needs.
            raise FileDropped(str(error)) from None
        may_have_files, self._may_have_files = self._may_have_files, True
        return FileCopy(
            self._source,
            self._target,
            state,
            shared=plan.shared,
            may_have_files=may_have_files,
            trusts_files=bool(self._decisions.completed),
            progress=self._progress,
        ).run()

    def _finish(self, begun: CopyBegun, plan: CopyPlanned, copied: CopiedFiles) -> CopyReport | None:
        """Make the target a store. Every process that finishes a copy puts the same bytes.

        Returns:
            None if another process has planned a newer slot meanwhile. It may have deleted the slots of this plan, so
            this process may have put them again. The end of the newer plan deletes them and mends the description.

        Raises:
            StoreAlreadyExists: another process created a store at the target. Its slots stay.
            CorruptRecord: the verification found an error. The target is no store then.
        """
        if self._is_overtaken(plan):
            return None
        description = self._description(begun, plan)
        # A store that another process created here meanwhile must not get these slots.
        found = find_description(self._store)
        if found is not None:
            self._check_own(found, description)
        # Another process may have completed the copy, and others may have written to it since.
        is_put = self._is_put(begun, plan)
        if not is_put:
            self._check_unwritten()
        for number, record in enumerate(() if is_put else plan.records):
            path, body = slot_path(plan.first_slot + number), record.encode()
            if put_once(self._store, self._environment, path, body) != body:
                raise StoreAlreadyExists(
                    f"{self._target.url} has another object at {path}. Another process created a store there during "
                    "the copy, or wrote to it. Choose an empty URL for the copy"
                )
            self._environment.reached("store.copy.slot_put")
        self._environment.reached("store.copy.slots_put")
        try:
            findings = self._verified(description)
        except CorruptRecord:
            if self._is_overtaken(plan):
                return None
            raise
        self._environment.reached("store.copy.verified")
        self._put_description(description)
        self._environment.reached("store.copy.described")
        if self._is_overtaken(plan):
            return None
        self._delete_outdated(plan)
        _logger.info("%s: copied slot %d to %s", self._source.url, plan.slot, self._target.url)
        return CopyReport(
            self._target.url,
            description.store_id,
            plan.slot,
            self._source_slot,
            files=copied.files,
            bytes=copied.bytes,
            files_reused=copied.reused,
            findings=findings,
        )

    def _is_overtaken(self, plan: CopyPlanned) -> bool:
        """Return True if another process has planned a newer slot."""
        self._decisions.refresh()
        return self._decisions.plan is not plan

    def _is_put(self, begun: CopyBegun, plan: CopyPlanned) -> bool:
        """Return True if the target is the copy of a plan, with all slots of it."""
        is_described = find_description(self._store) == self._description(begun, plan)
        return is_described and newest_slot(self._store) >= plan.first_slot + SLOTS_OF_A_COPY - 1

    def _check_unwritten(self) -> None:
        """Check that the log of the target ends with slots of this copy.

        Raises:
            StoreAlreadyExists: a process has written to the copy.
        """
        newest = newest_slot(self._store)
        # Another process may have put the slots of a newer plan, after its decisions.
        self._decisions.refresh()
        records = {
            plan.first_slot + number: record
            for plan in self._decisions.completed
            for number, record in enumerate(plan.records)
        }
        if newest == NO_SLOT or (
            newest in records and self._store.get(slot_path(newest)).body == records[newest].encode()
        ):
            return
        raise StoreAlreadyExists(
            f"{self._target.url} was written to: its slot {newest} is not of the copy. A process wrote to the copy, or "
            "created a store there. Choose an empty URL for the copy"
        )

    def _delete_outdated(self, plan: CopyPlanned) -> None:
        """Delete what only the earlier plans of this copy need: their files, checkpoints and slots.

        A file that the state of a later slot does not name is never named again. So no copy that runs meanwhile needs
        one of these files.
        """
        if len(self._decisions.plans) == 1:
            return
        machine, earlier = StoreMachine(), list[CopyPlanned]()
        for each in reversed(self._decisions.plans):
            if each is plan:
                continue
            (checkpoint,) = self._store.get_many([each.checkpoint.path])
            if checkpoint is not None:
                earlier.append(each)
            elif each in self._decisions.completed:
                # An earlier update has deleted everything of it, and of the plans before.
                break
        # List the slots: a process that was overtaken may have put some again, after they were deleted.
        slots = [(slot_of(info.path), info.path) for info in self._store.list(SLOTS)]
        outdated = [path for slot, path in slots if slot is not None and slot < plan.first_slot]
        if not earlier:
            self._store.delete_many(outdated)
            return
        kept = set(referenced_files(self._store, read_checkpoint(self._store, machine, plan.checkpoint)[0]))
        unneeded: set[str] = set()
        for each in earlier:
            try:
                unneeded |= set(
                    referenced_files(self._store, read_checkpoint(self._store, machine, each.checkpoint)[0])
                )
            except CorruptRecord as error:
                # Its files stay, and nothing names them.
                _logger.info("%s: files of slot %d are kept: %s", self._target.url, each.slot, error)
        self._store.delete_many(sorted(unneeded - kept))
        self._environment.reached("store.copy.outdated_files_deleted")
        self._store.delete_many(outdated)
        # The checkpoints come last. As long as one exists, the next run deletes the rest.
        below = checkpoint_path(plan.first_slot - 1, "")
        self._store.delete_many([info.path for info in self._store.list(CHECKPOINTS) if info.path < below])

    def _description(self, begun: CopyBegun, plan: CopyPlanned) -> StoreDescription:
        return self._source.describe().model_copy(
            update={
                "store_id": begun.store_id,
                "probe": ProbeRecord(put_if_absent=True, time_ms=begun.time_ms),
                "copied": CopiedFrom(
                    store_id=begun.source_store_id, slot=plan.slot, first_slot=plan.first_slot, time_ms=plan.time_ms
                ),
            }
        )

    def _verified(self, description: StoreDescription) -> list[Finding]:
        """Verify the target. The bytes of the files were checked when they were copied.

        Raises:
            CorruptRecord: there is an error.
        """
        session = fresh_session(self._target, description)
        findings = list(verify(session, description, topic=None, with_data=False, progress=self._progress))
        errors = [each for each in findings if each.severity is Severity.ERROR]
        if errors:
            raise CorruptRecord(
                f"{self._target.url}: the copy has {len(errors)} errors, so it is not made a store. The first, at "
                f"{errors[0].place}: {errors[0].problem}. Run eoslog verify on the source, then copy to an empty URL"
            )
        # The objects of the copy before are deleted later.
        return [each for each in findings if len(self._decisions.plans) == 1 or each.kind not in _OF_OUTDATED]

    def _put_description(self, description: StoreDescription) -> None:
        body = put_once(self._store, self._environment, DESCRIPTION_PATH, encode_description(description))
        found = decode_description(body, self._store.url)
        self._check_own(found, description)
        if found != description:
            self._store.put(DESCRIPTION_PATH, encode_description(description))

    def _check_own(self, found: StoreDescription, description: StoreDescription) -> None:
        """Check that the store at the target is the copy, of this slot or of an earlier plan.

        Raises:
            StoreAlreadyExists: it is another store.
        """
        self._decisions.refresh()
        of_plans = {(each.slot, each.first_slot) for each in self._decisions.completed}
        is_of_plan = found.copied is not None and (found.copied.slot, found.copied.first_slot) in of_plans
        if not is_of_plan or found.model_copy(update={"copied": description.copied}) != description:
            raise StoreAlreadyExists(
                f"there is a store at {self._target.url} already, its id is {found.store_id}. Another process created "
                "it during the copy"
            )


def _entry(reference: CheckpointReference, upload_ms: int, shares_with: int | None = None) -> dict[str, object]:
    entry = CheckpointEntry(reference=reference, upload_ms=upload_ms, shares_with=shares_with)
    return entry.model_dump(exclude_none=True)
