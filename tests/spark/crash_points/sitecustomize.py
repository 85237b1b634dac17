"""Python imports this in every process that has its directory on the path: Spark's workers crash where a test says.

The variable ``EOSLOG_TEST_CRASH`` names a file that may hold ``<crash point> <n> <act>``: when a worker of Spark comes
to the point for the n-th time it removes the file and acts, once. The acts: ``kill-jvm`` and itself, ``kill-worker``,
``raise``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from eoslog.store.environment import Environment

_FILE = os.environ.get("EOSLOG_TEST_CRASH")


def _jvm() -> int | None:
    """The process id of the JVM that this process works for; None in a driver's own Python."""
    process = os.getppid()
    while process > 1:
        status = Path(f"/proc/{process}/stat").read_text()
        name, rest = status[status.index("(") + 1 :].rsplit(")", 1)
        if name == "java":
            return process
        process = int(rest.split()[1])
    return None


def _reached(environment: Environment, crash_point: str) -> None:
    assert _FILE is not None
    order = Path(_FILE)
    if not order.exists():
        return
    point, count, act = order.read_text().split()
    jvm = _jvm()
    if point != crash_point or jvm is None:
        return
    if int(count) > 1:
        order.write_text(f"{point} {int(count) - 1} {act}")
        return
    order.unlink()
    if act == "raise":
        raise RuntimeError(f"told to fail at {crash_point}")
    if act == "kill-jvm":
        os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if _FILE is not None:
    Environment.reached = _reached  # type: ignore[method-assign]
