"""When faults have stopped and maintenance was done, nothing is left over: no transaction, file, slot or checkpoint."""

from __future__ import annotations

from typing import Any

from eoslog.log.checkpoint import read_checkpoint
from eoslog.log.log import Log
from eoslog.log.slots import CHECKPOINTS, slot_of, slot_path
from eoslog.state.store_state import TransactionState
from eoslog.store import Store
from tests.simulation.world import Violation, World


def check_nothing_is_left(world: World, store: Store) -> None:
    """Raises: Violation: something was not cleaned up, and never would be."""
    state = store.read(lambda opened, _: opened.frozen_copy())
    if state.ongoing:
        raise Violation(f"still open: {sorted(state.ongoing)}")
    if state.pending_deletions:
        raise Violation(f"dropped, but not deleted: {state.pending_deletions[:3]}")
    world.marks["producer id rolled over"] += sum(
        each.previous_producer_id >= 0 and each.state is not TransactionState.DEAD
        for each in state.transactions.values()
    )
    check_slots_left(world, store.log)


def check_slots_left(world: World, log: Log[Any]) -> None:
    """Slots begin at the older checkpoint, and no object of another checkpoint is left."""
    replica = log.replica
    current, previous = replica.checkpoint, replica.previous_checkpoint
    if current is None or previous is None:
        return
    world.marks["slots were deleted"] += slot_path(0) not in world.objects
    slots = sorted(slot for path in world.objects if (slot := slot_of(path)) is not None)
    floor = min(current.slot, previous.slot)
    if slots != list(range(floor, replica.slot + 1)):
        raise Violation(f"slots {slots} are there, but needed are those from {floor} to {replica.slot}")
    named = {current.path, previous.path}
    for reference in (current, previous):
        _, root = read_checkpoint(log.store, log.machine, reference)
        named |= {part.path for part in root.parts if part.path is not None}
    left = {path for path in world.objects if path.startswith(CHECKPOINTS)} - named
    if left:
        raise Violation(f"objects of no checkpoint: {sorted(left)[:3]}")
