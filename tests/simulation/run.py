"""Run seeds of the simulation: ``python -m tests.simulation.run --from 7 --seeds 100 [--trace]``."""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import click
from rich.progress import track

from eoslog.client.coordinator import Coordinator
from eoslog.rules.state import TransactionState
from eoslog.rules.topic_entries import TopicConfig
from tests.simulation.checker import check_everything, check_orphans
from tests.simulation.faults import Faults
from tests.simulation.ledger import Ledger, Outcome
from tests.simulation.pipelines import Job, Pipeline
from tests.simulation.service import GRACE_MS, PARTITIONS, TABLE, Service, open_store
from tests.simulation.upkeep import Daemon, Reader, take_steps
from tests.simulation.world import Process, Violation, World
from tests.simulation.writers import IdempotentWriter, TableWriter, TransactionalWriter, TwoPhaseService, TwoPhaseWriter

DEFAULT_STEPS = 2_000
_MOST_STEPS = 1_000_000
_LONG_MS = 30 * 24 * 3600 * 1000
"""Longer than any age that the store keeps to."""
_FOR_EVER_MS = 10**12


class Result(NamedTuple):
    """What a seed came to."""

    trace: str
    """A digest of everything that happened."""
    steps: int
    slots: int
    acknowledged_rows: int
    marks: Counter[str]


class Simulation:
    """One seed: services run among faults; then faults stop, everything must become decided, and is checked."""

    def __init__(self, seed: int, *, steps: int = DEFAULT_STEPS, lines: list[str] | None = None) -> None:
        chooser = random.Random(f"swarm {seed}")
        self.world = World(seed, Faults.swarm(chooser))
        self.world.tail_bytes = chooser.choice((0, 4_000))
        self.world.lines = lines
        self.ledger = Ledger()
        self._steps = steps
        self._services = self._choose_services(chooser)

    def _choose_services(self, chooser: random.Random) -> list[Service]:
        def some(kind: type[Service], name: str, most: int) -> list[Service]:
            return [kind(self.world, self.ledger, f"{name}{number}") for number in range(chooser.randint(1, most))]

        services = [
            *some(TransactionalWriter, "writer", 3),
            *some(IdempotentWriter, "idempotent", 2),
            *some(TableWriter, "table", 1),
            *some(TwoPhaseWriter, "two-phase", 1),
            *some(Pipeline, "pipeline", 2),
            *some(Job, "job", 1),
            *some(Daemon, "daemon", 2),
            *some(Reader, "reader", 2),
        ]
        # Two processes under one transactional id, two drivers of one job.
        twins = [each for each in services if each.name in ("writer0", "job0") and chooser.random() < 0.4]
        return services + twins

    def run(self) -> Result:
        """Raises: Violation"""
        world = self.world
        world.faults.on = False
        self._alone("setup", self._set_up)
        world.faults.on = True
        for service in self._services:
            service.start()
        world.run(self._steps)
        world.faults.on = False
        world.stopping = True
        world.run(_MOST_STEPS)
        self._raise_failures()
        for name, work in (
            ("settling", self._settle),
            ("check", lambda process: check_everything(world, self.ledger, open_store(process))),
            ("upkeep", self._tidy_up),
            ("second check", lambda process: check_everything(world, self.ledger, open_store(process))),
        ):
            self._alone(name, work)
        works = self.ledger.works.values()
        acknowledged = sum(len(work.rows) for work in works if work.outcome is Outcome.COMMITTED)
        return Result(world.trace(), world.steps, len(world.every_slot), acknowledged, world.marks)

    def _alone(self, name: str, work: Callable[[Process], None]) -> None:
        self.world.spawn(name, work)
        self.world.run(_MOST_STEPS)
        self._raise_failures()

    def _raise_failures(self) -> None:
        for name, error in self.world.failures:
            raise Violation(f"{name}: {type(error).__name__}: {error}") from error

    def _set_up(self, process: Process) -> None:
        store = open_store(process)
        for topic, partitions in PARTITIONS.items():
            config = TopicConfig(
                segment_batches=4,
                cleanup_policy="compact" if topic == TABLE else "delete",
                min_cleanable_dirty_ratio=0.1,
                delete_retention_ms=60_000,
            )
            store.admin.create_topic(topic, partitions=partitions, config=config)

    def _settle(self, process: Process) -> None:
        """Every transaction becomes decided with nobody's help but a daemon's and the outside database's."""
        process.sleep(GRACE_MS)
        store = open_store(process)
        for service in self._services:
            if isinstance(service, TwoPhaseService):
                service.recover(store)
        take_steps(self._upkeep(process), ["abort-timed-out-transactions"])
        still_open = [
            each.transactional_id
            for each in store.read(lambda state, _: list(state.transactions.values()))
            if each.state is TransactionState.ONGOING
        ]
        if still_open:
            raise Violation(f"nobody ends the transactions of {still_open}")

    def _tidy_up(self, process: Process) -> None:
        """Upkeep changes nothing that shows, and vacuum leaves nothing behind that no decision names."""
        for _ in range(3):
            process.sleep(_LONG_MS)
            take_steps(self._upkeep(process))
        for _ in range(2):
            process.sleep(_LONG_MS)
            take_steps(self._upkeep(process), ["vacuum"])
        check_orphans(self.world, open_store(process))

    def _upkeep(self, process: Process) -> Coordinator:
        store = open_store(process)
        return Coordinator(store, transactional_id_expiration_ms=_FOR_EVER_MS, offsets_retention_ms=-1)


@click.command()
@click.option("--from", "first", default=0, help="The first seed.")
@click.option("--seeds", default=1, help="How many.")
@click.option("--steps", default=DEFAULT_STEPS, help="Requests and sleeps among faults, for each seed.")
@click.option("--trace", is_flag=True, help="Print every step.")
def main(first: int, seeds: int, steps: int, trace: bool) -> None:
    """Run seeds of the simulation and say which failed."""
    marks: Counter[str] = Counter()
    failed = []
    for seed in track(range(first, first + seeds), description="seeds"):
        lines: list[str] | None = [] if trace else None
        try:
            result = Simulation(seed, steps=steps, lines=lines).run()
        except Exception:
            failed.append(seed)
            print(f"seed {seed} failed; again: python -m tests.simulation.run --from {seed} --steps {steps} --trace")
            traceback.print_exc()
        else:
            marks += result.marks
            if trace or seeds == 1:
                print(f"seed {seed}: {result.steps} steps, {result.slots} slots, trace {result.trace}")
        if lines is not None:
            print("\n".join(lines))
    for mark, count in sorted(marks.items()):
        print(f"{count:9d} {mark}")
    print(f"{seeds} seeds, failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
