"""Python imports this in every process that has its directory on the path: Spark's workers fail where a test says.

The variable ``EOSLOG_TEST_CRASH`` names a file that may hold an order, ``<crash point> <n> <act>``: the worker that
comes to the point as the n-th removes the file and acts, once. The acts:

- ``kill-jvm``: SIGKILL the JVM that the worker works for (of a task on a cluster, its executor's), and the worker.
- ``kill-worker``: SIGKILL the worker.
- ``stop-jvm``: SIGSTOP both, until somebody lets them go on.
- ``raise``: fail with an error.

Two orders stand for all tasks of a job until they are taken back: ``<crash point> 1 raise-attempts-below-<k>`` fails
the first attempts of every task, ``<crash point> 1 hang-first-attempt`` lets that of the first task never end.

What is reached is added to the file that ``EOSLOG_TEST_REACHED`` names.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from eoslog.storage.environment import Environment

_ORDER = os.environ.get("EOSLOG_TEST_CRASH")
_REACHED = os.environ.get("EOSLOG_TEST_REACHED")


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


def _act_of(order: Path, crash_point: str) -> str | None:
    """What is to be done here and now. Of workers that come at the same time one is told."""
    with order.with_name(f"{order.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not order.exists():
            return None
        point, count, act = order.read_text().split()
        if point != crash_point:
            return None
        if act.startswith(("raise-attempts-below-", "hang-")):
            return act
        if int(count) > 1:
            order.write_text(f"{point} {int(count) - 1} {act}")
            return None
        order.unlink()
        return act


def _attempt() -> tuple[int, int]:
    """The number of the task that this worker runs, and which attempt it is."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def _hang(hangs: Path) -> None:
    """The first attempt of the first task hangs, and another one of it waits until that is so."""
    task, attempt = _attempt()
    if task == 0 and attempt == 0:
        hangs.touch()
        time.sleep(600)
    while task == 0 and not hangs.exists():
        time.sleep(0.1)


def _reached(environment: Environment, crash_point: str) -> None:
    jvm = _jvm()
    if jvm is None:
        return
    if _REACHED is not None:
        with Path(_REACHED).open("a") as reached:
            reached.write(f"{crash_point}\n")
    act = None if _ORDER is None else _act_of(Path(_ORDER), crash_point)
    if act is None:
        return
    if act == "raise":
        raise RuntimeError(f"told to fail at {crash_point}")
    if act.startswith("raise-attempts-below-"):
        if _attempt()[1] < int(act.rpartition("-")[2]):
            raise RuntimeError(f"told to fail at {crash_point}")
        return
    if act == "hang-first-attempt":
        _hang(Path(f"{_ORDER}.hangs"))
        return
    if act == "stop-jvm":
        os.kill(jvm, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if act == "kill-jvm":
        os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if _ORDER is not None or _REACHED is not None:
    Environment.reached = _reached  # type: ignore[method-assign]
