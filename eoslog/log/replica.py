"""One process's replica of the log: the state after the newest slot it knows, and the last freshness check.

A replica expires when its last freshness check is older than half the retention of slots. An expired replica is opened
again, because the next slots may have been deleted. Then a missing slot does not show that the log ends there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeVar

from eoslog.errors import CorruptRecord, EosLogError, StoreUnavailable
from eoslog.log.log_reader import LogReader
from eoslog.log.log_state import LogState
from eoslog.log.machine import Machine
from eoslog.log.slots import (
    CHECKPOINT_ENTRY,
    SlotRecord,
    decode_line,
    entries_of,
    files_line,
    first_line,
    slot_path,
)
from eoslog.storage.clock import Moment
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_OPEN_ATTEMPTS = 5
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


class _Replaced(NamedTuple):
    """The state and slot of a replica before a thread began to open it again."""

    state: Any
    slot: int


class Replica(LogState[S]):
    """The state of the log as one process follows it."""

    def __init__(self, store: ObjectStore, machine: Machine[S], environment: Environment, config: LogConfig) -> None:
        super().__init__(store, machine)
        self.environment = environment
        self.config = config
        self.reader = LogReader(store, machine)
        self.lock = threading.RLock()
        """Held while the state is changed or read, never during a request to the store."""
        self.opening = 0
        """How often this replica was opened. An opening may skip slots."""
        self.awaited: dict[str, Callable[[Sequence[dict[str, Any]], int], None]] = {}
        """Callbacks by request id. The fold calls one with the request's entries and slot when a record has it."""
        self.on_record: Callable[[Sequence[dict[str, Any]]], None] | None = None
        """Called with the entries of each record after the first opening, once and in their order. A later opening may
        skip records."""
        self._told_slot: int | None = None
        """The newest slot that ``on_record`` need not be told of; None before the first opening."""
        self.last_check = Moment(0, 0)
        """When ``slot`` was last known to be the newest. Threads read it without the lock, so it is replaced as a
        whole."""

    @property
    def is_open(self) -> bool:
        return self.slot >= 0

    def must_be_opened(self) -> bool:
        """Return True if this replica is closed or expired."""
        return self.slot < 0 or self.is_expired()

    def is_expired(self) -> bool:
        """Return True if the last freshness check is too old. Then this replica must be opened again."""
        return self.is_long_after(self.last_check)

    def is_long_after(self, moment: Moment) -> bool:
        """Return True if a slot that was put at this moment, or later, may have been deleted since."""
        return self.store.clock.may_be_past(moment, self.config.slot_retention_ms // 2)

    def note_check(self, asked: Moment) -> None:
        """Note that ``slot`` was the newest at ``asked``. A request sent then found no later slot, or put this slot."""
        self.last_check = self.store.clock.dated(asked)

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
            asked = self.store.clock.moment()
            first = self.slot + 1
            ahead = _READ_AHEAD[min(number, len(_READ_AHEAD) - 1)]
            wanted = range(first, first + ahead)
            # After two new records there may be very many more. One request for a slot far ahead shows this. Do not
            # send it while this process awaits a sent request: an opening may skip the record that holds it.
            probes = may_be_far_behind and number >= _ROUND_OF_FIRST_PROBE and not self.awaited
            probed = [wanted[-1] + self._slots_worth_an_opening()] if probes else []
            found = self.reader.read([*wanted, *probed])
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
            self._keep_files(slot, body)
            return True

    def fold(self, record: SlotRecord, line: bytes) -> bool:
        """Apply a record that continues this replica, and call the callbacks of its requests and entries."""
        is_valid = super().fold(record, line)
        if is_valid:
            self._tell_awaited(record)
            self._tell(record)
        return is_valid

    def adopt(self, record: SlotRecord, body: bytes, asked: Moment) -> None:
        """Move to a record of this process whose draft was merged. Call it within ``changing``.

        Args:
            body: the bytes of its slot.
            asked: the time before the record was put.
        """
        self.advance(record, first_line(body))
        self._tell(record)
        self._keep_files(record.slot, body)
        self.note_check(asked)

    def _keep_files(self, slot: int, body: bytes) -> None:
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
            for slot, line in reversed(self.tail):
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

    def _tell(self, record: SlotRecord) -> None:
        """Tell ``on_record`` of a record whose entries have been applied."""
        if self._told_slot is None or record.slot > self._told_slot:
            self._told_slot = record.slot
            if self.on_record is not None:
                self.on_record([entry for entry in record.entries if entry.get("type") != CHECKPOINT_ENTRY])

    def _tell_awaited(self, record: SlotRecord) -> None:
        if not self.awaited:
            return
        for request in record.requests or ():
            told = self.awaited.get(request.request_id)
            if told is not None:
                told(entries_of(record, request), record.slot)

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
            f"({self.config.slot_retention_ms} ms). Try again"
        )

    def _open_once(self, replaced: _Replaced | None) -> None:
        """Open the log once.

        Args:
            replaced: the state before the opening. While the replica still has this state, the opened state replaces
                it, even if its slot is earlier. In any other case, and if this is None, the opened state replaces the
                present state only if its slot is not earlier.
        """
        asked = self.store.clock.moment()
        fresh, records = self.reader.open()
        with self.lock:
            is_unchanged = replaced is not None and self.state is replaced.state and self.slot == replaced.slot
            if is_unchanged or fresh.slot >= self.slot:
                self._become(fresh)
                self.note_check(asked)
                if self._told_slot is None:
                    self._told_slot = self.slot
                for record in records:
                    self._tell(record)

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
            self._become(LogState(self.store, self.machine))

    def _become(self, other: LogState[S]) -> None:
        self.become(other)
        self.opening += 1
