"""One process's replica of the log: the state after the newest slot it knows, and the last freshness check.

A replica expires when its last freshness check is older than half the retention of slots. An expired replica is opened
again, because the next slots may have been deleted. Then a missing slot does not show that the log ends there.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from eoslog.errors import CorruptRecord, EosLogError, InvalidEntry, NotAStore, StoreUnavailable
from eoslog.log.checkpoint import CheckpointRoot, read_checkpoint
from eoslog.log.machine import Machine
from eoslog.log.slots import (
    GROUP_SIZE,
    LARGEST_RECORD_BYTES,
    SLOTS,
    AppendServiceAnnouncement,
    CheckpointEntry,
    CheckpointReference,
    SlotRecord,
    decode_line,
    decode_tail,
    entries_of,
    files_line,
    first_line,
    slot_of,
    slot_path,
)
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.wording import first_problem, without_code

S = TypeVar("S")
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_OPEN_ATTEMPTS = 5
_MOST_INCLUDED = 4096
_READ_AHEAD = (1, 1, 2, 1, 2, 4, 8, 16)
"""How many slots each round of a refresh reads.

Most refreshes find no new record, and most others find few. The third round also looks far ahead. If the log does not
reach so far, few records are left, and the fourth round is small again.
"""
_ROUND_OF_FIRST_PROBE = 2
_BYTES_A_SLOT = 2048
"""On S3, loading this many bytes of a checkpoint costs as much CPU as reading and folding one slot."""
_BYTES_A_CHEAP_SLOT = 256
"""The same on a local disk, where requests are cheap."""
_OPENED_AT_ONCE = 256
CHECKPOINT_ENTRY = "checkpoint"


@dataclass(frozen=True)
class LogConfig:
    """How the log behaves. The defaults suit every store."""

    slot_retention_ms: int = 24 * 3600 * 1000
    """Slots younger than this are never deleted (ms). A process trusts its replica for at most half of it."""
    checkpoint_slots: int = 64
    """A checkpoint is due after this many slots."""
    commit_timeout_ms: int = 60_000
    """How long an append tries to learn the outcome of its put (ms) before it raises ``CommitStateUnknown``."""
    inline_limit_bytes: int = 32 << 10
    """A data file up to this size travels in the record instead of an object of its own (bytes); 0: no file does."""
    shared_limit_bytes: int = 8 << 20
    """A larger data file of a producer, up to this size, shares an object with others of its flush (bytes); 0: no
    file does."""


class Moment(NamedTuple):
    """A time, by the store's clock (ms since the epoch, 0 before its first answer) and by elapsed time (ms)."""

    date_ms: int
    monotonic_ms: int


class _Replaced(NamedTuple):
    """The state and slot of a replica before a thread began to open it again."""

    state: Any
    slot: int


class Replica(Generic[S]):
    """The fold of the log up to ``slot``."""

    def __init__(self, store: ObjectStore, machine: Machine[S], environment: Environment, config: LogConfig) -> None:
        self.store = store
        self.machine = machine
        self.environment = environment
        self.config = config
        self.lock = threading.RLock()
        """Held while the state is changed or read, never during a request to the store."""
        self.state: S = machine.initial()
        self.slot = -1
        self.append_id = ""
        self.checkpoint: CheckpointReference | None = None
        self.previous_checkpoint: CheckpointReference | None = None
        self.checkpoint_root: CheckpointRoot | None = None
        self.checkpoint_bytes = 0
        """The size of the newest checkpoint that this process read or wrote, with all its parts."""
        self.append_service: AppendServiceAnnouncement | None = None
        """The service that appends for all hosts, as the newest record announces it; it may have expired."""
        self.opening = 0
        """How often this replica was opened. An opening may skip slots."""
        self.included: dict[str, None] = {}
        """The names of the messages whose requests are in the newest records, the oldest first."""
        self.awaited: dict[str, Callable[[Sequence[dict[str, Any]], int], None]] = {}
        """Callbacks by request id. The fold calls one with the request's entries and slot when a record has it."""
        self.on_record: Callable[[Sequence[dict[str, Any]]], None] | None = None
        """Called with the entries of each record after the first opening, once and in their order. A later opening may
        skip records."""
        self._told_slot: int | None = None
        """The newest slot that ``on_record`` need not be told of; None before the first opening."""
        self.invalid: str | None = None
        """The reason why the fold skipped an invalid record; None if it skipped none. Otherwise writers stop."""
        self.checked_ms = 0
        """The store's time at which ``slot`` was last known to be the newest (ms)."""
        self._checked_monotonic_ms = 0
        self._tail: deque[tuple[int, bytes]] = deque()
        self._tail_bytes = 0

    @property
    def is_open(self) -> bool:
        return self.slot >= 0

    def must_be_opened(self) -> bool:
        """Return True if this replica is closed or expired."""
        return not self.is_open or self.is_expired()

    def is_expired(self) -> bool:
        """Return True if the last freshness check is too old. Then this replica must be opened again."""
        return self.is_long_after(self.last_check())

    def last_check(self) -> Moment:
        """Return the time at which ``slot`` was last known to be the newest."""
        with self.lock:
            return Moment(self.checked_ms, self._checked_monotonic_ms)

    def is_long_after(self, moment: Moment) -> bool:
        """Return True if a slot that was put at this moment, or later, may have been deleted since."""
        half = self.config.slot_retention_ms // 2
        elapsed_ms = self.environment.monotonic_ms() - moment.monotonic_ms
        return elapsed_ms > half or self.store.clock.latest_claim_ms - moment.date_ms > half

    def moment(self) -> Moment:
        """Return the present time. Callers take it before a request, as a lower bound of the time of the answer."""
        return Moment(self.store.clock.last_date_ms, self.environment.monotonic_ms())

    def note_check(self, asked: Moment) -> None:
        """Note that ``slot`` was the newest at ``asked``. A request sent then found no later slot, or put this slot."""
        with self.lock:
            self.checked_ms, self._checked_monotonic_ms = self.dated(asked)

    def dated(self, asked: Moment) -> Moment:
        """Return ``asked`` with a date.

        If no answer had arrived by then, the moment gets the date of the first answer. No date is later than the newest
        date of an answer.
        """
        clock = self.store.clock
        return Moment(min(asked.date_ms or clock.first_date_ms, clock.last_date_ms), asked.monotonic_ms)

    def tail_lines(self) -> list[bytes]:
        """Return the lines that the next record repeats for processes that open the log."""
        return [line for _, line in self._tail]

    def slots_since_checkpoint(self) -> int:
        return self.slot - (self.checkpoint.slot if self.checkpoint is not None else -1)

    def tail_overflows(self) -> bool:
        """Return True if the repeated tail no longer reaches back to the checkpoint."""
        return self.store.tail_bytes > 0 and len(self._tail) < self.slots_since_checkpoint()

    def refresh(self) -> None:
        """Fold all records up to the newest slot. If there is no new slot, this sends one small request.

        Several threads may refresh in parallel, also while another thread puts a record. The first thread that has read
        a slot folds it, and the others skip it.
        """
        if self.must_be_opened():
            self.open()
            return
        may_be_far_behind = True
        for number in count():
            asked = self.moment()
            first = self.slot + 1
            ahead = _READ_AHEAD[min(number, len(_READ_AHEAD) - 1)]
            wanted = range(first, first + ahead)
            # After two new records there may be very many more. One request for a slot far ahead shows this. Do not
            # send it while this process awaits a sent request: an opening may skip the record that holds it.
            probes = may_be_far_behind and number >= _ROUND_OF_FIRST_PROBE and not self.awaited
            probed = [wanted[-1] + self._slots_worth_an_opening()] if probes else []
            found = self._read([*wanted, *probed])
            if self.is_expired():
                self.open()
                return
            if probed:
                body = found.pop()
                may_be_far_behind = body is not None
                if body is not None and self._leap(probed[0], body):
                    return
            for slot, body in zip(wanted, found, strict=True):
                if body is None:
                    with self.lock:
                        # If another thread has folded further, this read does not show that its slot is the newest.
                        if self.slot == slot - 1:
                            self.note_check(asked)
                    return
                if not self.fold_body(slot, body):
                    self.environment.reached("log.replica.slot_deleted_meanwhile")
                    self.open()
                    return

    def _slots_worth_an_opening(self) -> int:
        """Return the number of slots whose reading and folding costs about as much as opening the log."""
        checkpoint = self.checkpoint
        size = max(self.checkpoint_bytes, checkpoint.length if checkpoint is not None else 0)
        if self.store.tail_bytes > 0:
            return self.config.checkpoint_slots + size // _BYTES_A_SLOT
        # Without a repeated tail, an opening reads each slot since the checkpoint.
        return 2 * self.config.checkpoint_slots + size // _BYTES_A_CHEAP_SLOT

    def _leap(self, slot: int, body: bytes) -> bool:
        """Open the log again if a record far ahead names a checkpoint that is newer than this replica.

        Returns:
            True if this replica has reached that record. Otherwise the caller continues slot by slot.
        """
        try:
            record = decode_line(first_line(body), slot)
            if record.checkpoint is None or record.checkpoint.slot <= self.slot:
                return False
            self.environment.reached("log.replica.far_behind")
            # Pass None: this replica is sound, and another thread may have folded further. So only go forward.
            self._open_once(None)
        except EosLogError as error:
            _logger.info("%s: the log is followed slot by slot: %s", self.store.url, error)
            return False
        if self.is_expired():
            self.open()
        return self.slot >= slot

    def _read(self, slots: Iterable[int]) -> list[bytes | None]:
        """Read slots; None for a missing one. Returned records are durable: no reader shows rows that may be lost."""
        paths = [slot_path(slot) for slot in slots]
        found: list[bytes | None]
        if len(paths) == 1:
            try:
                found = [self.store.get(paths[0]).body]
            except ObjectNotFound:
                return [None]
        else:
            found = [None if each is None else each.body for each in self.store.get_many(paths)]
        newest = max((path for path, body in zip(paths, found, strict=True) if body is not None), default=None)
        if newest is not None:
            self.store.make_durable(newest)
        return found

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while the state is changed. An interrupt resets the replica: no thread reads half a change."""
        with self.lock:
            try:
                yield
            except BaseException as error:
                if not isinstance(error, EosLogError):
                    self.reset()
                raise

    def fold_body(self, slot: int, body: bytes) -> bool:
        """Fold the record of the next slot, unless another thread has done so.

        Returns:
            False if the record does not continue this replica. Then the caller must open the replica again.
        """
        line = first_line(body)
        record = decode_line(line, slot)
        with self.changing():
            if slot <= self.slot:
                return True
            if slot != self.slot + 1 or record.prev != self.append_id:
                return False
            self.fold(record, line)
            self.keep_files(slot, body)
            return True

    def keep_files(self, slot: int, body: bytes) -> None:
        """Keep the files of a record in memory for a while. Readers of the newest rows need no further request then."""
        line = files_line(body)
        if line:
            self.store.recent.keep(slot_path(slot), line)

    def newest_records(self, most_bytes: int, after_slot: int = -1) -> bytes:
        """Return the newest records for ``follow`` in another process.

        Args:
            most_bytes: the largest size of the answer (bytes).
            after_slot: the other process has the records up to this slot.

        Returns:
            The slot of the first record, and the records, each in a line. It has as many of the newest records as fit.
            It is empty if the newest record is too large, and in a local store, which repeats no records.
        """
        lines: list[bytes] = []
        first, size = 0, len(b"%d" % self.slot)
        with self.lock:
            for slot, line in reversed(self._tail):
                size += len(line) + 1
                if size > most_bytes or slot <= after_slot:
                    break
                lines.append(line)
                first = slot
        return b"\n".join([b"%d" % first, *reversed(lines)]) if lines else b""

    def follow(self, records: bytes) -> bool:
        """Fold the records that another process hands over. Skip records that this replica has folded.

        Args:
            records: the answer of ``newest_records`` there; may be empty.

        Returns:
            True if this replica has folded the newest of these records, now or before. False if it must read the log.
        """
        first, *lines = records.split(b"\n")
        try:
            return bool(lines) and all(
                slot <= self.slot or self.fold_body(slot, line) for slot, line in enumerate(lines, int(first))
            )
        except (EosLogError, ValueError) as error:
            _logger.warning("%s: records of another process cannot be used: %s", self.store.url, error)
            return False

    def fold(self, record: SlotRecord, line: bytes) -> None:
        """Apply a record that continues this replica. An invalid record changes no state, and an error is logged."""
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
            if self.awaited:
                self._tell_awaited(record)
            self.tell(record)
        else:
            self.invalid = f"slot {record.slot} holds an invalid record: {reason}"
            _logger.error("%s: %s", self.store.url, self.invalid)
        self.advance(record, line)

    def tell(self, record: SlotRecord) -> None:
        """Tell ``on_record`` of a record whose entries have been applied."""
        if self._told_slot is None or record.slot > self._told_slot:
            self._told_slot = record.slot
            if self.on_record is not None:
                self.on_record([entry for entry in record.entries if entry.get("type") != CHECKPOINT_ENTRY])

    def _tell_awaited(self, record: SlotRecord) -> None:
        for request in record.requests or ():
            told = self.awaited.get(request.request_id)
            if told is not None:
                told(entries_of(record, request), record.slot)

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
            self._tail.append((slot, line))
            self._tail_bytes += len(line)
            floor = self.checkpoint.slot if self.checkpoint is not None else -1
            while self._tail and (self._tail_bytes > self.store.tail_bytes or self._tail[0][0] <= floor):
                self._tail_bytes -= len(self._tail.popleft()[1])

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

    def newest_slot(self) -> int:
        """Find the newest slot. This sends one LIST if the object store lists in order.

        Raises:
            NotAStore: no slot exists.
        """
        if self.store.lists_in_order:
            listed = self.store.list(SLOTS, limit=GROUP_SIZE)
        else:
            groups = sorted(self.store.list_directories(SLOTS))
            listed = self.store.list(f"{SLOTS}{groups[0]}/") if groups else iter(())
        slots = [slot for slot in (slot_of(info.path) for info in listed) if slot is not None]
        if not slots:
            raise NotAStore(f"{self.store.url} holds no log. Create a store there first")
        return max(slots)

    def slots_from(self, first: int) -> list[int]:
        """Return the slots that exist at or after ``first``, ascending."""
        found = []
        for info in self.store.list(SLOTS):
            slot = slot_of(info.path)
            if slot is None:
                continue
            if self.store.lists_in_order and slot // GROUP_SIZE < first // GROUP_SIZE:
                break
            if slot >= first:
                found.append(slot)
        return sorted(found)

    def open(self) -> None:
        """Read the log from its newest record: that record, its checkpoint, and the slots between them.

        Raises:
            NotAStore, CorruptRecord, UnsupportedFormat
            StoreUnavailable: at each attempt the log changed while it was read, or reading took longer than half the
                retention of slots.
        """
        problem = ""
        with self.lock:
            replaced = _Replaced(self.state, self.slot)
        for _ in range(_OPEN_ATTEMPTS):
            try:
                self._open_once(replaced)
            except CorruptRecord as error:
                if str(error) == problem:
                    raise
                problem = str(error)
                continue
            if not self.is_expired():
                return
        if problem:
            raise StoreUnavailable(
                f"{self.store.url}: the log changes faster than it can be read: {problem}. Try again"
            )
        raise StoreUnavailable(
            f"{self.store.url}: reading the log took longer than half the retention of slots "
            f"({self.config.slot_retention_ms} ms); try again"
        )

    def _open_once(self, replaced: _Replaced | None) -> None:
        """Open the log once.

        Args:
            replaced: the state before the opening. While the replica still has this state, the opened state replaces
                it, even if its slot is earlier. In any other case, and if this is None, the opened state replaces the
                present state only if its slot is not earlier.
        """
        asked = self.moment()
        newest = self.newest_slot()
        body = self._read([newest])[0]
        if body is None:
            raise CorruptRecord(f"slot {newest} was listed but is not there")
        if len(body) > LARGEST_RECORD_BYTES:
            raise CorruptRecord(f"the record of slot {newest} is larger than {LARGEST_RECORD_BYTES} bytes")
        line = first_line(body)
        record = decode_line(line, newest)
        fresh: Replica[S] = Replica(self.store, self.machine, self.environment, self.config)
        problem = fresh._load_checkpoint(record)
        lines: dict[int, tuple[bytes, SlotRecord]] = {newest: (line, record)}
        for tail_line, tail_record in decode_tail(body, newest):
            lines[tail_record.slot] = (tail_line, tail_record)
        others = (slot for slot in range(fresh.slot + 1, newest) if slot not in lines)
        # Read block by block. A forged slot with a huge number would otherwise make this list as long as that number.
        while block := list(islice(others, _OPENED_AT_ONCE)):
            for slot, found in zip(block, self._read(block), strict=True):
                if found is None:
                    missing_slot = f"slot {slot} is missing, though the log goes on to slot {newest}"
                    if problem is not None:
                        raise CorruptRecord(f"no checkpoint can be read ({without_code(problem)}), and {missing_slot}")
                    raise CorruptRecord(missing_slot)
                lines[slot] = (first_line(found), decode_line(first_line(found), slot))
        for slot in range(fresh.slot + 1, newest + 1):
            slot_line, slot_record = lines[slot]
            if slot_record.prev != fresh.append_id:
                raise CorruptRecord(f"the record of slot {slot} does not continue that of slot {slot - 1}")
            fresh.fold(slot_record, slot_line)
        with self.lock:
            is_unchanged = replaced is not None and self.state is replaced.state and self.slot == replaced.slot
            if is_unchanged or fresh.slot >= self.slot:
                self._become(fresh)
                self.note_check(asked)
                if self._told_slot is None:
                    self._told_slot = self.slot
                for slot in sorted(lines):
                    self.tell(lines[slot][1])

    def read(self, function: Callable[[S, int], T], *, refresh: bool = True) -> T:
        """Call ``function`` with a state and its slot, and return its answer. By default the slot is the newest one.

        The state does not change while ``function`` runs, so it should be quick and send no requests.
        """
        while True:
            if refresh:
                try:
                    self.refresh()
                except BaseException as error:
                    self.reset_unless_sound(error)
                    raise
            with self.lock:
                # Another thread may have been interrupted since the refresh, and so have closed this replica.
                if self.is_open:
                    return function(self.state, self.slot)
            refresh = True

    def reset_unless_sound(self, error: BaseException) -> None:
        """Reset the replica unless eoslog raised ``error``. An interrupt (Ctrl-C) may have stopped a fold half-way."""
        if not isinstance(error, EosLogError):
            self.reset()

    def reset(self) -> None:
        """Close the replica and drop its state. Used when an interrupt may have stopped a fold half-way."""
        with self.lock:
            self._become(Replica(self.store, self.machine, self.environment, self.config))

    def _become(self, other: Replica[S]) -> None:
        self.state, self.slot, self.append_id, self.invalid = other.state, other.slot, other.append_id, other.invalid
        self.checkpoint, self.previous_checkpoint = other.checkpoint, other.previous_checkpoint
        self.checkpoint_root, self.checkpoint_bytes = other.checkpoint_root, other.checkpoint_bytes
        self.append_service, self.included = other.append_service, other.included
        self.opening += 1
        self._tail, self._tail_bytes = other._tail, other._tail_bytes

    def _load_checkpoint(self, newest: SlotRecord) -> CorruptRecord | None:
        """Load the newest checkpoint that can be read. Leave the initial state if there is none.

        A record names two checkpoints. If neither can be read, the record at the older one names earlier ones, whose
        objects are kept for a while.

        Returns:
            The problem of the newest checkpoint, if no checkpoint could be read; otherwise None.
        """
        newest_problem: CorruptRecord | None = None
        tried: set[CheckpointReference] = set()
        record: SlotRecord | None = newest
        while record is not None:
            named = [each for each in (record.checkpoint, record.previous_checkpoint) if each is not None]
            untried = [each for each in named if each not in tried]
            for reference in untried:
                tried.add(reference)
                try:
                    self.state, root = read_checkpoint(self.store, self.machine, reference)
                except CorruptRecord as error:
                    _logger.warning("%s: %s", self.store.url, error)
                    newest_problem = newest_problem or error
                    continue
                self.slot, self.append_id = root.slot, root.append_id
                self.checkpoint = reference
                self._know_parts_of(root)
                self.previous_checkpoint = record.previous_checkpoint if reference == record.checkpoint else None
                return None
            record = self.record_at(min(each.slot for each in untried)) if untried else None
        if newest_problem is not None:
            _logger.warning("%s: no checkpoint can be read, the whole log is folded", self.store.url)
        return newest_problem

    def record_at(self, slot: int) -> SlotRecord | None:
        """Read a record that the caller can do without. Return None if it is missing or damaged."""
        body = self._read([slot])[0]
        try:
            return None if body is None else decode_line(first_line(body), slot)
        except CorruptRecord:
            return None


def decode_checkpoint_entry(value: Any) -> CheckpointEntry:
    """Decode a checkpoint entry. Raises: InvalidEntry: the entry is malformed."""
    try:
        return CheckpointEntry.model_validate(value)
    except ValidationError as error:
        raise InvalidEntry(f"malformed checkpoint entry: {first_problem(error)}") from None
