"""Run seeds of the simulation: ``python -m tests.simulation.run --from 7 --seeds 100 [--services spark]``."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.simulation.focus import FOCUSES
from tests.simulation.log_simulation import simulation_of
from tests.simulation.plan import SERVICES, Plan
from tests.simulation.reached import not_reached
from tests.simulation.shrinking import failure_of
from tests.simulation.shrinking import shrink as shrink_failure
from tests.simulation.simulation import DEFAULT_STEPS, Result, Simulation

__all__ = ["DEFAULT_STEPS", "Result", "Simulation"]

_PLANS = Path(".cache/simulation")
_BLOCK_STEPS = 5_000
"""About what a worker is given at once."""


@dataclass
class Tally:
    """What became of some seeds."""

    seeds: int = 0
    steps: int = 0
    slots: int = 0
    acknowledged_rows: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    """By the seed, what was broken."""

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.slots += other.slots
        self.acknowledged_rows += other.acknowledged_rows
        self.marks.update(other.marks)
        self.failed.update(other.failed)


def run_seeds(seeds: Iterable[int], steps: int, services: str) -> Tally:
    """Run seeds one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.seeds += 1
        try:
            result = simulation_of(Plan.of_services(services, seed, steps)).run()
        except Exception:
            tally.failed[seed] = traceback.format_exc()
        else:
            tally.steps += result.steps
            tally.slots += result.slots
            tally.acknowledged_rows += result.acknowledged_rows
            tally.marks.update(result.marks)
    return tally


def run_in_processes(seeds: Sequence[int], steps: int, services: str, jobs: int) -> Iterator[Tally]:
    """Run seeds on several cores, in blocks; yields what became of each block."""
    size = max(1, min(_BLOCK_STEPS // max(1, steps), -(-len(seeds) // jobs)))
    blocks = [(seeds[at : at + size], steps, services) for at in range(0, len(seeds), size)]
    if jobs == 1:
        yield from (run_seeds(*block) for block in blocks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        yield from workers.imap_unordered(_run_block, blocks)


def _run_block(block: tuple[Sequence[int], int, str]) -> Tally:
    return run_seeds(*block)


def replay_command(seed: int, steps: int, services: str) -> str:
    return f"python -m tests.simulation.run --services {services} --from {seed} --steps {steps} --trace"


@click.command()
@click.option("--from", "first", default=0, help="The first seed.")
@click.option("--seeds", default=1, help="How many.")
@click.option(
    "--steps",
    type=int,
    help=f"Requests, answers and sleeps among faults, for each seed; {DEFAULT_STEPS}, or what the focus needs.",
)
@click.option(
    "--services",
    type=click.Choice(SERVICES),
    default="clients",
    help=f"Who runs; mixed: Spark in every tenth seed; a focus on what these seldom reach: {', '.join(FOCUSES)}.",
)
@click.option("--jobs", default=os.cpu_count() or 1, help="How many processes share the seeds; all cores by default.")
@click.option("--trace", is_flag=True, help="Print every step of the first seed.")
@click.option("--shrink", is_flag=True, help="Find and print the shortest history in which the first seed fails.")
@click.option("--plan", type=click.Path(exists=True, path_type=Path), help="Print a history that --shrink wrote down.")
def main(
    first: int, seeds: int, steps: int | None, services: str, jobs: int, trace: bool, shrink: bool, plan: Path | None
) -> None:
    """Run seeds of the simulation and say which failed, and what so many should have reached and did not."""
    # What the code under test warns of is what the faults were meant to do.
    for name in ("eoslog", "pyspark_eoslog"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if plan is not None:
        sys.exit(_replayed(plan))
    if steps is None:
        steps = FOCUSES[services].steps if services in FOCUSES else DEFAULT_STEPS
    if shrink:
        sys.exit(_shrunk(Plan.of_services(services, first, steps), services))
    if trace:
        sys.exit(_traced(Plan.of_services(services, first, steps)))
    tally = Tally()
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("seeds", total=seeds)
        for block in run_in_processes(range(first, first + seeds), steps, services, min(jobs, seeds)):
            tally.add(block)
            progress.advance(bar, block.seeds)
            for seed, text in block.failed.items():
                print(f"seed {seed} failed; again: {replay_command(seed, steps, services)}\n{text}", flush=True)
    for mark, count in sorted(tally.marks.items()):
        print(f"{count:9d} {mark}")
    print(f"{tally.seeds} seeds, {tally.steps} steps, {tally.slots} slots, {tally.acknowledged_rows} acknowledged rows")
    for seed in sorted(tally.failed):
        print(f"failed: {replay_command(seed, steps, services)}   (or --shrink)")
    missing = list(not_reached(services, tally.seeds, steps, tally.marks, tally.acknowledged_rows))
    for each in missing:
        print(f"not reached: {each}")
    print(f"failed: {len(tally.failed)} of {tally.seeds}")
    sys.exit(bool(tally.failed or missing))


def _traced(plan: Plan) -> int:
    """Run one plan and print each of its steps. Returns the exit code."""
    lines: list[str] = []
    try:
        result = simulation_of(plan, lines=lines).run()
    except Exception:
        print("\n".join(lines))
        traceback.print_exc()
        return 1
    print("\n".join(lines))
    print(f"seed {plan.seed}: {result.steps} steps, {result.slots} slots, trace {result.trace}")
    return 0


def _shrunk(plan: Plan, services: str) -> int:
    """Shrink a failing seed, print what is left of it and write that down. Returns the exit code."""
    failure = failure_of(plan)
    if failure is None:
        print(f"seed {plan.seed} keeps every promise")
        return 0
    shortest = shrink_failure(failure, report=lambda text: print(text, file=sys.stderr, flush=True))
    _PLANS.mkdir(parents=True, exist_ok=True)
    path = _PLANS / f"{services}-seed-{plan.seed}-{plan.steps}.json"
    path.write_text(shortest.plan.to_json() + "\n")
    print(shortest.history())
    print(f"again: python -m tests.simulation.run --plan {path}")
    return 1


def _replayed(path: Path) -> int:
    """Run a plan that was written down. Returns the exit code."""
    failure = failure_of(Plan.from_json(path.read_text()))
    print("it keeps every promise" if failure is None else failure.history())
    return failure is not None


if __name__ == "__main__":
    main()
