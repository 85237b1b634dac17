"""Spoil input of every kind for some minutes: ``python -m tests.fuzz.run --minutes 10 [--kind "segment index"]``.

Each seed runs in a process of its own family, with bounded memory, so that one that ends the process is found, too.
"""

from __future__ import annotations

import logging
import random
import resource
import sys
import time
import traceback
from collections import Counter
from multiprocessing import get_context
from multiprocessing.queues import Queue
from typing import Any

import click
import psutil

from eoslog.errors import EosLogError
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import PARSERS
from tests.fuzz.samples import samples

_SEEDS_A_PROCESS = 100
_MEMORY_BYTES = 1 << 30
"""What spoilt input may make a process take beside what it has."""
_SLOW_S = 20.0


def spoilt(kind: str, seed: int) -> bytes:
    chance = random.Random(f"{kind} {seed}")
    bodies = samples()[kind]
    return mutate(chance, chance.choice(bodies), bodies)


def _outcome(kind: str, seed: int) -> str:
    """What a seed came to: ``valid``, the code of an error, or what went wrong."""
    began = time.monotonic()
    try:
        PARSERS[kind](spoilt(kind, seed))
        outcome = "valid"
    except EosLogError as error:
        outcome = error.code
    except Exception as error:
        outcome = f"FAULT {''.join(traceback.format_exception_only(error)).strip()[:200]}"
    return f"FAULT took {time.monotonic() - began:.0f} s" if time.monotonic() - began > _SLOW_S else outcome


def _run(kind: str, seeds: range, found: Queue[tuple[int, str]]) -> None:
    size = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY_BYTES, resource.RLIM_INFINITY))
    for seed in seeds:
        found.put((seed, "FAULT ended the process"))
        found.put((seed, _outcome(kind, seed)))


def _outcomes(kind: str, seeds: range) -> dict[int, str]:
    """The outcome of each seed that was reached; the last one of a process that ended is a fault."""
    context: Any = get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=_run, args=(kind, seeds, found))
    process.start()
    outcomes: dict[int, str] = {}
    while process.is_alive() or not found.empty():
        if found.empty():
            process.join(0.02)
            continue
        seed, outcome = found.get()
        outcomes[seed] = outcome
    process.join()
    return outcomes


@click.command()
@click.option("--minutes", type=float, default=1.0, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(PARSERS)), help="All kinds, if none is given.")
@click.option("--seed", "first", type=int, default=0, show_default=True, help="Where to begin.")
def main(minutes: float, kinds: tuple[str, ...], first: int) -> None:
    """Spoil input, and tell what did not end as it should."""
    logging.disable(logging.WARNING)
    samples()
    deadline = time.monotonic() + minutes * 60
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds or PARSERS}
    faults = 0
    while time.monotonic() < deadline:
        for kind in counts:
            if time.monotonic() >= deadline:
                break
            for seed, outcome in _outcomes(kind, range(first, first + _SEEDS_A_PROCESS)).items():
                counts[kind][outcome.partition(" ")[0]] += 1
                if outcome.startswith("FAULT"):
                    faults += 1
                    click.echo(f"{kind}, seed {seed}: {outcome}", err=True)
        first += _SEEDS_A_PROCESS
    for kind, outcomes in counts.items():
        told = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
        click.echo(f"{kind:28} {outcomes.total():8}  {told}")
    click.echo(f"{sum(each.total() for each in counts.values())} inputs, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
