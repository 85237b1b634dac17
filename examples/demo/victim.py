"""Running a driver that may be killed, and waiting until none of its processes is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from examples.demo.sessions import REPOSITORY, spark_environment

_PATIENCE_S = 600
_ORPHANS_S = 10


class DriverFailed(Exception):
    """A driver that should have ended by itself did not."""


def run_driver(
    module: str, *arguments: str, log: Path, crash: tuple[str, int] | None = None, tick: Callable[[], None]
) -> bool:
    """Run a module as a driver to its end. Returns whether it was killed.

    Args:
        crash: the crash point at which its JVM is killed, and how many times it is passed first.
        tick: called a few times a second meanwhile.

    Raises:
        DriverFailed: it ended with an error, or not at all.
    """
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | spark_environment()
    order = log.with_suffix(".crash")
    if crash is not None:
        order.write_text(f"{crash[0]} {crash[1]}")
        environment["DEMO_CRASH"] = str(order)
        path.insert(0, str(REPOSITORY / "examples/demo/crash_point"))
    environment["PYTHONPATH"] = os.pathsep.join(path)
    with log.open("wb") as output:
        python = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _wait(python, tick)
        finally:
            _end_session(python)
    killed = crash is not None and not order.exists()
    if killed:
        return True
    if code != 0 or crash is not None:
        raise DriverFailed(f"{module} ended with code {code}, see {log}:\n{log.read_text(errors='replace')[-2000:]}")
    return False


def _wait(python: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            return python.wait(0.2)
        except subprocess.TimeoutExpired:
            tick()
    raise DriverFailed(f"the driver did not end within {_PATIENCE_S} s")


def _end_session(python: subprocess.Popen[bytes]) -> None:
    """Wait for the orphans of a killed driver; kill those that stay."""
    deadline = time.monotonic() + _ORPHANS_S
    while members := _members(python.pid):
        if python.poll() is None or time.monotonic() > deadline:
            for process in members:
                process.send_signal(signal.SIGKILL)
        time.sleep(0.1)
    python.wait()


def _members(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess, PermissionError):
            continue
    return found
