"""Simulated processes of a log alone, without topics and rows: they write names, read them, and tidy up.

Their histories are short and cheap, so that very many of them can look at who gets which slot.
"""

from __future__ import annotations

from eoslog.errors import CommitStateUnknown, OutcomeLost, RetriableError
from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from tests.requests import Applying
from tests.simulation.append_network import SimulatedClient
from tests.simulation.ledger import Ledger as Told
from tests.simulation.ledger import Outcome
from tests.simulation.service import PATIENCES_MS, SLOT_RETENTION_MS, Service, watch_locks
from tests.simulation.store import SimulatedEnvironment, SimulatedStore
from tests.simulation.world import Process, Violation
from tests.unit.log.ledger import Ledger, LedgerDraft, LedgerMachine, SharedAdd, move_horizon

_MOST_ATTEMPTS = 4


def open_log(process: Process, *, has_threads: bool = False) -> Log[Ledger]:
    """The log, as a process that was just started holds it."""
    environment = SimulatedEnvironment(process, has_threads=has_threads)
    patience_ms = process.world.choices.stream(f"{process.name} patience").choice(PATIENCES_MS)
    config = LogConfig(slot_retention_ms=SLOT_RETENTION_MS, checkpoint_slots=4, commit_timeout_ms=patience_ms)
    store = SimulatedStore(process, environment, tail_bytes=process.world.tail_bytes)
    log = Log(store, LedgerMachine(), environment, config)
    log.appender._contention._client = SimulatedClient(process, store, environment)
    watch_locks(process, log)
    return log


class LogWriter(Service):
    """Adds one name after the other, and writes down what it is told of each."""

    longest_pause_ms = 2_000

    def incarnation(self, process: Process) -> None:
        log = open_log(process)
        while not self.world.stopping:
            self._add_one(log)
            self.pause(process, self.longest_pause_ms)

    def _add_one(self, log: Log[Ledger]) -> None:
        name = f"{self.random.choice('abc')}{self.name}:{len(self.ledger.notes)}"
        self.ledger.notes[name] = Outcome.UNKNOWN
        if self.random.random() < 0.3:
            self._add_unrecognised(log, name)
        else:
            self._add(log, name)

    def _add(self, log: Log[Ledger], name: str) -> None:
        """Add a name, and repeat that, or ask for the slot, as long as nobody knows."""
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self.ledger.told_slots[name] = log.append(
                    SharedAdd((name,), _found_or_added(name), lambda entries, slot: slot),
                    timeout_ms=self._patience_ms(),
                )
                self.ledger.notes[name] = Outcome.COMMITTED
                return
            except CommitStateUnknown as error:
                if self.random.random() < 0.5:
                    self._resolve(log, name, error, is_first=attempt == 0)
                    return
            except RetriableError:
                if attempt == 0:
                    self.ledger.notes[name] = Outcome.ABORTED
                    return
            self.world.marks["append repeated"] += 1

    def _add_unrecognised(self, log: Log[Ledger], name: str) -> None:
        """Add what nobody would recognise: appended twice, it would be there twice."""
        try:
            self.ledger.told_slots[name] = log.append(_added(name), timeout_ms=self._patience_ms())
            self.ledger.notes[name] = Outcome.COMMITTED
        except CommitStateUnknown as error:
            self._resolve(log, name, error, is_first=True)
        except RetriableError:
            self.ledger.notes[name] = Outcome.ABORTED

    def _patience_ms(self) -> int | None:
        return self.random.choice((None, 1, 5_000))

    def _resolve(self, log: Log[Ledger], name: str, error: CommitStateUnknown, *, is_first: bool) -> None:
        if error.is_sent:
            return
        try:
            landed = log.resolve(error.slot, error.append_id, timeout_ms=self._patience_ms())
        except (CommitStateUnknown, OutcomeLost):
            return
        self.world.marks["unknown outcome resolved"] += 1
        if landed:
            self.ledger.told_slots[name] = error.slot
            self.ledger.notes[name] = Outcome.COMMITTED
        elif is_first:
            # Of several attempts only the last was asked for.
            self.ledger.notes[name] = Outcome.ABORTED


class SlowLogWriter(LogWriter):
    """Adds so few names that slots are deleted within a history."""

    longest_pause_ms = SLOT_RETENTION_MS // 4


class FastLogWriter(LogWriter):
    """Adds names without a pause, so that writers compete for slots or share records."""

    longest_pause_ms = 2


class LogThreads(LogWriter):
    """Several threads of one process add names to one log, and another thread reads it."""

    longest_pause_ms = 20

    def incarnation(self, process: Process) -> None:
        log = open_log(process, has_threads=True)
        writers = [
            process.start_thread(lambda: self._write(process, log), is_interruptible=True)
            for _ in range(self.random.choice((3, 4)))
        ]
        while not self.world.stopping:
            with self.giving_up(process):
                read_names(self.ledger, log)
            self.pause(process, self.random.choice((10, 1_000)))
        for writer in writers:
            process.wait_for(writer.ended)

    def _write(self, process: Process, log: Log[Ledger]) -> None:
        while not self.world.stopping:
            try:
                with self.giving_up(process):
                    self._add_one(log)
                self.pause(process, self.longest_pause_ms)
            except KeyboardInterrupt:
                self.world.marks["a thread was interrupted"] += 1


def _found_or_added(name: str) -> Applying[int]:
    """Add a name unless it is there. Returns its slot."""

    def added(draft: LedgerDraft) -> int:
        base = draft.base
        while isinstance(base, LedgerDraft):
            base = base.base
        if name in base.slots:
            return base.slots[name]
        if name in draft.names:
            # A request that this process sent before. Another attempt of it goes into the same record.
            return draft.slot
        draft.entries.append({"type": "add", "name": name})
        return draft.slot

    return Applying(added)


def _added(name: str) -> Applying[int]:
    """Add a name, under another one in each slot. Returns its slot."""

    def added(draft: LedgerDraft) -> int:
        draft.entries.append({"type": "add", "name": f"{name}@{draft.slot}"})
        return draft.slot

    return Applying(added)


def slots_of_names(state: Ledger) -> dict[str, int]:
    """Where each name is. Raises: Violation: one was added twice."""
    found: dict[str, int] = {}
    for name, slot in state.slots.items():
        if found.setdefault(name.partition("@")[0], slot) != slot:
            raise Violation(f"{name} was appended twice: {state}")
    return found


class LogReader(Service):
    """Reads again and again: what was acknowledged before is there, what failed is not, and nothing changes places."""

    def incarnation(self, process: Process) -> None:
        log = open_log(process)
        while not self.world.stopping:
            read_names(self.ledger, log)
            self.pause(process, self.random.choice((2_000, 2 * SLOT_RETENTION_MS)))


def read_names(told: Told, log: Log[Ledger]) -> None:
    """Read the log, and compare it with what was told and read before. Raises: Violation"""
    before = dict(told.notes)
    names = log.read(lambda state, slot: slots_of_names(state))
    # A checkpoint does not keep the order of those that share a slot.
    seen = sorted(names.items(), key=lambda each: (each[1], each[0]))
    check_seen(before, names)
    known = told.longest_read
    if seen[: len(known)] != known[: len(seen)]:
        raise Violation(f"names changed their places: {known} were read, then {seen}")
    if len(seen) > len(known):
        told.longest_read = seen


def check_seen(notes: dict[str, Outcome], seen: dict[str, int]) -> None:
    """Raises: Violation: a name that was acknowledged is not there, or one that failed is."""
    for name, outcome in notes.items():
        if outcome is not Outcome.UNKNOWN and (name in seen) != (outcome is Outcome.COMMITTED):
            raise Violation(f"{name} was told to be {outcome.value}; what is there: {seen}")


class LogMaintenance(Service):
    """Writes checkpoints, and deletes what no cold reader needs."""

    def incarnation(self, process: Process) -> None:
        log = open_log(process)
        while not self.world.stopping:
            step = self.random.choice((write_checkpoint, give_up_uploads, delete_old_slots, delete_old_checkpoints))
            step(log)
            self.pause(process, self.random.choice((2_000, 60_000, 2 * SLOT_RETENTION_MS)))


def write_checkpoint(log: Log[Ledger]) -> None:
    log.checkpoint()


def give_up_uploads(log: Log[Ledger]) -> None:
    """Checkpoints whose upload began before now, and that no record names, will never be named."""
    log.read(lambda state, slot: None)
    log.append(move_horizon(log.store.clock.last_date_ms - SLOT_RETENTION_MS))
