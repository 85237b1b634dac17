"""Kills the Spark driver at a named crash point of eoslog, once.

Python imports this at the start of every process that has this directory on its path. The file named by ``DEMO_CRASH``
says where: ``<crash point> <how many times to pass it first>``. It is removed before the kill, so the next run goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from eoslog.storage.environment import Environment


class _Countdown:
    def __init__(self, order: Path) -> None:
        self._order = order
        self._passed = 0

    def reached(self, environment: Environment, crash_point: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            wanted, passes = self._order.read_text().split()
            if crash_point != wanted:
                return
            self._passed += 1
            if self._passed > int(passes):
                self._order.unlink()
                _kill_driver()


def _kill_driver() -> None:
    import psutil

    for parent in psutil.Process().parents():
        if parent.name() == "java":
            os.kill(parent.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if "DEMO_CRASH" in os.environ:
    _countdown = _Countdown(Path(os.environ["DEMO_CRASH"]))
    Environment.reached = lambda self, crash_point: _countdown.reached(self, crash_point)  # type: ignore[method-assign]
