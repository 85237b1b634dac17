"""A process dies at any of its requests: the next one finds a legal log and can finish the work, once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from eoslog.errors import EosLogError
from eoslog.log.log import Log
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.log.slots import SLOTS, slot_of
from tests.requests import Applying
from tests.unit.log.ledger import Ledger, add, add_once, move_horizon
from tests.unit.log.world import DAY_MS, Crashed, World, names, script


def create(log: Log[Ledger]) -> None:
    def propose(draft: object) -> None:
        if draft.slot == 0:  # type: ignore[attr-defined]
            add("created").apply(draft)

    log.create(Applying(propose))


def append(log: Log[Ledger]) -> None:
    log.append(add_once("mine"))


def append_and_checkpoint(log: Log[Ledger]) -> None:
    log.append(add_once("mine"))
    log.checkpoint()


def forget(log: Log[Ledger]) -> None:
    log.append(add_once("mine"))
    delete_old_slots(log)
    delete_old_checkpoints(log)


def resolve(log: Log[Ledger]) -> None:
    log.append(add_once("mine"))
    log.resolve(3, "0" * 32)


def prepared(world: World) -> None:
    log = world.created()
    for number in range(4):
        log.append(add(f"n{number}"))
        log.checkpoint()
    world.now_ms += 2 * DAY_MS
    log.append(move_horizon(world.now_ms - 1))


@pytest.mark.parametrize("landing", [False, True])
@pytest.mark.parametrize("operation", [create, append, append_and_checkpoint, forget, resolve])
def test_after_a_crash_at_any_request_another_process_goes_on(
    operation: Callable[[Log[Ledger]], None], landing: bool
) -> None:
    crashes = 0
    for request in range(60):
        world = World(tail_bytes=500)
        if operation is not create:
            prepared(world)
        dying = world.process()
        script(dying).requests_left = request
        script(dying).dies_after_landing = landing
        with contextlib.suppress(Crashed):
            operation(dying)
            break
        crashes += 1

        survivor = world.process()
        if operation is create:
            with contextlib.suppress(EosLogError):
                create(survivor)
        survivor.append(add_once("mine"))
        operation(survivor)

        seen = names(survivor)
        expected = ["created", "mine"] if operation is create else ["created", "n0", "n1", "n2", "n3", "mine"]
        assert seen == expected
        assert names(world.process()) == expected
        assert survivor.replica.invalid is None
        slots = sorted(slot for info in survivor.store.list(SLOTS) if (slot := slot_of(info.path)) is not None)
        assert slots == list(range(slots[0], survivor.replica.slot + 1))
    assert crashes > 0
    assert crashes < 60
