"""A history of the log alone: who gets which slot, among all the faults that a whole history has."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.log.slots import CHECKPOINT_ENTRY, decode_line, first_line
from tests.requests import Applying
from tests.simulation.liveness import check_slots_left
from tests.simulation.log_services import (
    check_seen,
    give_up_uploads,
    open_log,
    slots_of_names,
    write_checkpoint,
)
from tests.simulation.plan import TAIL_BYTES, Plan
from tests.simulation.simulation import LONG_MS, Simulation, Start, alone
from tests.simulation.world import Process, Violation, World
from tests.unit.log.ledger import Ledger, LedgerMachine


class LogSimulation(Simulation):
    """One plan of a log's processes."""

    def begin(self) -> None:
        _begun(self.plan.tail_bytes).put_into(self.world)

    def _end(self) -> None:
        for name, work in (("check", self._check), ("upkeep", self._tidy_up), ("second check", self._check)):
            alone(self.world, name, work)

    def _check(self, process: Process) -> None:
        """The state of whoever opens the log is that of all its records, and what everybody was told is true of it."""
        state = fold_every_slot(self.world)
        log = open_log(process)
        opened = log.read(lambda found, slot: found)
        if opened != state:
            raise Violation(f"all records make {state}, who opens the log finds {opened}")
        names = slots_of_names(state)
        check_seen(self.ledger.notes, names)
        for name, slot in self.ledger.told_slots.items():
            if names.get(name) != slot:
                raise Violation(f"{name} was told to be in slot {slot}, and is in {names.get(name)}")

    def _tidy_up(self, process: Process) -> None:
        for _ in range(2):
            process.sleep(LONG_MS)
            process.sleep(max([write.due_ms for write in self.world.late], default=0) - self.world.time_ms)
            log = open_log(process)
            for step in (give_up_uploads, write_checkpoint, write_checkpoint):
                step(log)
            for delete in (delete_old_slots, delete_old_checkpoints):
                delete(log)
        check_slots_left(self.world, log)


def fold_every_slot(world: World) -> Ledger:
    """The state of all records that ever took their slots. Raises: Violation: they are no log."""
    machine = LedgerMachine()
    state = machine.initial()
    append_ids = [""]
    for number in range(len(world.every_slot)):
        record = decode_line(first_line(world.every_slot[number]), number)
        if record.prev != append_ids[-1] or record.append_id in append_ids:
            raise Violation(f"slot {number} does not follow the one before it, or is another's again")
        append_ids.append(record.append_id)
        reason = machine.fold(state, number, [each for each in record.entries if each["type"] != CHECKPOINT_ENTRY])
        if reason is not None:
            raise Violation(f"slot {number} is invalid: {reason}")
    return state


@cache
def _begun(tail_bytes: int) -> Start:
    return Start.made_by(_set_up, tail_bytes)


def _set_up(process: Process) -> None:
    open_log(process).create(Applying(lambda draft: draft.entries.append({"type": "add", "name": "created"})))


def make_starts() -> None:
    """Make the store, and the log, in which histories begin, before somebody changes the code under test."""
    for services in (("writer0",), ("log-writer0",)):
        for tail_bytes in TAIL_BYTES:
            simulation_of(replace(Plan.of(0, 0), services=services, tail_bytes=tail_bytes)).begin()


def simulation_of(plan: Plan, *, lines: list[str] | None = None) -> Simulation:
    """The simulation in which a plan's services live."""
    kind = LogSimulation if plan.of_a_log_alone else Simulation
    return kind(plan.seed, plan=plan, lines=lines)
