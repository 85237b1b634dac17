"""One seed from its start to its verdict: services run among faults; then faults stop, and everything is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

import eoslog.storage.environment
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer import exit_flush
from eoslog.state import producer_ids
from eoslog.state.entries import TopicConfig
from eoslog.state.store_state import TransactionState
from eoslog.storage.object_store import StoredObject
from tests.simulation.checker import check_everything, check_orphans, check_verification
from tests.simulation.faults import Faults
from tests.simulation.ledger import Ledger, Outcome
from tests.simulation.line import Line
from tests.simulation.liveness import check_nothing_is_left
from tests.simulation.maintenance import take_steps
from tests.simulation.memoised import memoised
from tests.simulation.plan import Plan
from tests.simulation.publishers import small_tables
from tests.simulation.service import PARTITIONS, SLOT_RETENTION_MS, TABLE, open_store
from tests.simulation.situations import counted
from tests.simulation.world import Process, Violation, World
from tests.simulation.writers import TwoPhaseService

DEFAULT_STEPS = 2_000
_MOST_STEPS = 1_000_000
LONG_MS = 30 * 24 * 3600 * 1000
"""Longer than any age that the store keeps to."""
_FOR_EVER_MS = 10**12
_DELETING = ["write-checkpoint", "vacuum", "delete-old-slots"]
_VERIFIED_EVERY = 4


class Result(NamedTuple):
    """What a seed came to."""

    trace: str
    """A digest of everything that happened."""
    steps: int
    slots: int
    acknowledged_rows: int
    marks: Counter[str]


class Simulation:
    """One seed, or one plan."""

    def __init__(
        self, seed: int, *, steps: int = DEFAULT_STEPS, lines: list[str] | None = None, plan: Plan | None = None
    ) -> None:
        """
        Args:
            lines: receives the readable trace.
            plan: runs instead of what the seed plans.
        """
        self.plan = plan or Plan.of(seed, steps)
        self.world = _world(self.plan)
        self.world.lines = lines
        self.ledger = Ledger()
        self._services = self.plan.make_services(self.world, self.ledger)

    def run(self) -> Result:
        """Raises: Violation"""
        with memoised(), counted(self.world), small_tables(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer_ids, "LAST_USABLE_EPOCH", self.plan.last_epoch)
            # Only stores on the host itself may ask for its time of day; the protocol never does.
            patch.setattr(eoslog.storage.environment, "host_time_ms", self._host_time_ms)
            # Of its own, and gone with the history: its processes have no exit, and many die with rows.
            patch.setattr(exit_flush, "_holders", set())
            return self._run()

    def _host_time_ms(self) -> int:
        assert self.world.running is not None
        return self.world.running.process.host_time_ms()

    def _run(self) -> Result:
        world = self.world
        self.begin()
        world.faults = self.plan.faults
        for service in self._services:
            service.start()
        world.run(self.plan.steps)
        world.end_faults()
        world.stopping = True
        run_to_the_end(world)
        self._end()
        works = self.ledger.works.values()
        acknowledged = sum(len(work.rows) for work in works if work.outcome is Outcome.COMMITTED)
        return Result(world.trace(), world.steps, len(world.every_slot), acknowledged, world.marks)

    def begin(self) -> None:
        """Put what histories begin with into the world."""
        _start(self.plan.tail_bytes).put_into(self.world)

    def _end(self) -> None:
        """When nothing fails any more and everybody has stopped."""
        for name, work in (
            ("settling", self._settle),
            ("check", self._check),
            ("verification", self._verify),
            ("upkeep", self._tidy_up),
            ("second check", self._check),
        ):
            alone(self.world, name, work)

    def _settle(self, process: Process) -> None:
        """Every transaction becomes decided with nobody's help but a daemon's and the outside database's."""
        process.sleep(SLOT_RETENTION_MS)
        store = open_store(process)
        for service in self._services:
            if isinstance(service, TwoPhaseService):
                service.recover(store)
        take_steps(self._maintenance(process), ["abort-timed-out-transactions"])
        still_open = [
            each.transactional_id
            for each in store.read(lambda state, _: list(state.transactions.values()))
            if each.state is TransactionState.ONGOING
        ]
        if still_open:
            raise Violation(f"nobody ends the transactions of {still_open}")
        for service in dict.fromkeys(self._services):
            service.settle(process)

    def _check(self, process: Process) -> None:
        store = open_store(process)
        check_everything(self.world, self.ledger, store)
        for service in dict.fromkeys(self._services):
            service.check(store)

    def _verify(self, process: Process) -> None:
        """A part of the seeds: it reads every object there is."""
        if self.plan.seed % _VERIFIED_EVERY == 0:
            check_verification(open_store(process))

    def _tidy_up(self, process: Process) -> None:
        """Maintenance changes nothing that shows, and vacuum leaves nothing behind that no decision names."""
        for steps in (None, None, _DELETING, _DELETING):
            process.sleep(LONG_MS)
            if steps is _DELETING:
                # What arrives last of all is an orphan, too.
                process.sleep(max([write.due_ms for write in self.world.late], default=0) - self.world.time_ms)
            take_steps(self._maintenance(process), steps)
        check_orphans(self.world, open_store(process))
        check_nothing_is_left(self.world, open_store(process))

    def _maintenance(self, process: Process) -> Coordinator:
        store = open_store(process)
        return Coordinator(store, transactional_id_expiration_ms=_FOR_EVER_MS, offsets_retention_ms=-1)


def alone(world: World, name: str, work: Callable[[Process], None]) -> None:
    """Run one process to its end. Raises: Violation: it failed."""
    world.spawn(name, work)
    run_to_the_end(world)


def run_to_the_end(world: World) -> None:
    """Run until every process has ended. Raises: Violation: one failed, or does not end."""
    world.run(_MOST_STEPS)
    raise_failures(world)
    if world.threads:
        # What is compared with the store must not change meanwhile.
        names = ", ".join(sorted({thread.name for thread in world.threads}))
        raise Violation(f"still at work after {_MOST_STEPS} steps without faults: {names}")


def raise_failures(world: World) -> None:
    for name, error in world.failures:
        raise Violation(f"{name}: {type(error).__name__}: {error}") from error


class Start(NamedTuple):
    """A store with its topics, in which every history of its kind begins."""

    time_ms: int
    objects: dict[str, StoredObject]
    every_slot: dict[int, bytes]

    @classmethod
    def made_by(cls, work: Callable[[Process], None], tail_bytes: int) -> Start:
        """What a process makes of an empty world, where nothing fails."""
        world = _world(Plan(0, 0, (), Faults(), tail_bytes))
        alone(world, "setup", work)
        return cls(world.time_ms, world.objects, world.every_slot)

    def put_into(self, world: World) -> None:
        world.time_ms, world.objects, world.every_slot = self.time_ms, dict(self.objects), dict(self.every_slot)


@cache
def _start(tail_bytes: int) -> Start:
    return Start.made_by(_set_up, tail_bytes)


def _world(plan: Plan) -> World:
    world = World(plan.seed, Faults(), kept=plan.kept)
    world.faults = replace(world.faults, unordered_lists=plan.faults.unordered_lists)
    world.tail_bytes, world.date_grain_ms, world.switches = plan.tail_bytes, plan.date_grain_ms, plan.switches
    world.line = Line() if plan.has_queue else None
    world.embeds_files = plan.embeds_files
    return world


def _set_up(process: Process) -> None:
    store = open_store(process)
    for topic, partitions in PARTITIONS.items():
        config = TopicConfig(
            segment_batches=4,
            cleanup_policy="compact" if topic == TABLE else "delete",
            min_cleanable_dirty_ratio=0.1,
            delete_retention_ms=60_000,
        )
        store.admin.create_topic(topic, partitions=partitions, config=config)
