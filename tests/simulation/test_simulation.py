"""The simulation: seeds among faults keep every promise, repeat themselves exactly, and reach every rare event."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.depth import sweep
from tests.simulation import simulation
from tests.simulation.faults import Faults
from tests.simulation.simulation import Result, Simulation, run_to_the_end
from tests.simulation.world import Process, Violation, World

SEEDS = (*range(24), 52)
FIRST_SEEDS = 6
"""So many of them run in ``make test``, too."""
SHORT = 200
RARE = (
    "aborted below an open transaction",
    "fault: answer lost",
    "late put landed",
    "late put found its place taken",
    "fault: own success told as another's",
    "fault: put copied",
    "a deleted slot's name was taken",
    "cut read detected",
    "slots were deleted",
    "log.slot.lost",
    "log.slot.own_record_found",
    "log.checkpoint.overtaken",
    "producer id rolled over",
    "told: ProducerFenced",
    "micro-batch replayed",
    "prepared transaction found after a restart",
    "consistent read",
    "list: txn ok",
    "list: txn fail",
    "list: txn info",
    "list: snapshot ok",
    "snapshot read",
    "segment.compact_files.replaced",
    "segment.compact_keys.cleaned",
    "segment.vacuum.files_deleted",
)


@cache
def result_of(seed: int) -> Result:
    return Simulation(seed).run()


@pytest.mark.parametrize(
    "seed", [*SEEDS[:FIRST_SEEDS], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[FIRST_SEEDS:])]
)
def test_faults_break_no_promise(seed: int) -> None:
    assert result_of(seed).acknowledged_rows > 0


@pytest.mark.parametrize("seed", [3, 17, 40])
def test_a_seed_repeats_itself_exactly(seed: int) -> None:
    assert Simulation(seed, steps=SHORT).run().trace == Simulation(seed, steps=SHORT).run().trace


@pytest.mark.parametrize("seed", sweep([5, 8], quick=[5]))
def test_a_seed_is_the_same_in_every_process_whatever_its_hashes(seed: int) -> None:
    traces = set()
    for hash_seed in ("1", "2"):
        code = (
            f"from tests.simulation.simulation import Simulation; print(Simulation({seed}, steps={SHORT}).run().trace)"
        )
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        traces.add(done.stdout)

    assert traces == {Simulation(seed, steps=SHORT).run().trace + "\n"}


@pytest.mark.slow
def test_the_seeds_reach_every_rare_event() -> None:
    marks: Counter[str] = Counter()
    for seed in SEEDS:
        marks += result_of(seed).marks

    assert not [name for name in RARE if not marks[name]]


def test_a_history_is_not_checked_before_every_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep_for_ever(process: Process) -> None:
        while True:
            process.sleep(1)

    monkeypatch.setattr(simulation, "_MOST_STEPS", 100)
    world = World(0, Faults())
    world.spawn("sleeper", sleep_for_ever)

    with pytest.raises(Violation, match="still at work after 100 steps without faults: sleeper"):
        run_to_the_end(world)
