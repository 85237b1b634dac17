"""The examples run with one command each, and what they show is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str) -> str:
    """What an example prints; it ends with 0 only if everything is exact."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_zombie_that_wakes_up_is_fenced_and_none_of_its_data_shows() -> None:
    told = run("examples.zombie")

    assert "[EOSLOG_PRODUCER_FENCED]" in told
    assert re.search(r"read_committed shows +\[b'1000, from the second instance'\]\n", told)
    assert "from the first instance" in told


@pytest.mark.slow
def test_a_pipeline_whose_workers_are_killed_at_random_is_exact_at_the_end() -> None:
    told = run("examples.consume_transform_produce", "--orders", "120", "--workers", "2", "--kills", "2")

    assert told.count("is killed and started again") == 2
    assert "invoices: 120; missing 0, surplus 0" in told
