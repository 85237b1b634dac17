"""Runs the program of a suite of tests, and ends it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def output_of(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], log: Path, *, timeout_s: float
) -> str:
    """Return what a program prints until it ends, or until the time is over. Then it is killed.

    Args:
        directory: the working directory of the program.
        log: a file that does not exist yet.
    """
    with log.open("w+b") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return output.read().decode(errors="replace")
