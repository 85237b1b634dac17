"""The simulation of Spark's readers and sinks: they copy each row once among all faults, and reach every rare event."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import pytest

from tests.simulation.faults import LONG_PAUSES_MS, Faults
from tests.simulation.plan import SPARK_HISTORIES, Plan
from tests.simulation.simulation import Result, Simulation
from tests.simulation.spark_engine import Call
from tests.simulation.world import Process, World

STEPS = 300
SEEDS = range(4 * len(SPARK_HISTORIES))
FIRST_SEEDS = len(SPARK_HISTORIES)
"""So many of them run in ``make test``, too: each history once."""
RARE = (
    "spark: micro-batch planned before run again",
    "spark: task tried again",
    "spark: attempt went on after the commit",
    "spark: attempt went on after the abort",
    "spark: abort after a failed commit",
    "spark: abort after a commit that landed",
    "spark: job aborted",
    "spark.job.replay_found",
    "spark: another beginning told than was planned from",
    "spark: run fenced",
    "spark: sink changed",
    "spark: checkpoint copied",
    "spark: checkpoint lost its newest entry",
    "spark: checkpoint deleted",
    "spark: mismatch told",
    "spark: fresh start asked for",
    "spark: transaction in a consistent micro-batch",
    "spark: versions of two applications under one id",
)


@cache
def result_of(seed: int) -> Result:
    return Simulation(seed, plan=Plan.of_spark(seed, STEPS)).run()


@pytest.mark.parametrize(
    "seed", [*SEEDS[:FIRST_SEEDS], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[FIRST_SEEDS:])]
)
def test_spark_writes_the_rows_that_it_read_among_all_faults(seed: int) -> None:
    assert result_of(seed).slots > 0


def test_of_mixed_seeds_every_tenth_is_one_of_sparks() -> None:
    plans = [Plan.of_services("mixed", seed, STEPS) for seed in range(20)]

    assert [plan.seed for plan in plans if plan.services in SPARK_HISTORIES] == [9, 19]


@pytest.mark.slow
def test_the_seeds_of_spark_reach_every_rare_event() -> None:
    marks: Counter[str] = Counter()
    for seed in SEEDS:
        marks += result_of(seed).marks

    assert not [name for name in RARE if not marks[name]]


def test_a_driver_waits_a_day_for_a_call_in_few_steps() -> None:
    world = World(0, Faults())
    answers: list[str] = []

    def call(process: Process) -> str:
        process.sleep(max(LONG_PAUSES_MS))
        return "done"

    def drive(process: Process) -> None:
        answers.append(Call(process, "call", call).wait(Random(0)))

    world.spawn("driver", drive)
    world.run(1_000)

    assert answers == ["done"]
