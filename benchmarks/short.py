"""Short benchmarks, each in a process of its own: ``python -m benchmarks.short NAME`` prints its numbers as JSON.

``benchmarks.compare`` runs them on two commits, with the benchmarks of the newer commit. A benchmark that needs
something that the older commit lacks prints ``{"missing": "..."}``.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SECONDS = 1.5
COMMITS = 200
OPENINGS = 9
PLANNED_FILES = 5_000
HISTORY = 40
"""Transactions before requests are counted: fewer than a checkpoint waits for, which is written in the background."""
EXACT = "requests: "
"""The names of exact counts begin so: the same on every machine and in every run."""


def new_root() -> str:
    """A place for a store. It stays until all runs are over: after many deletions, ext4 creates files slowly."""
    return str(Path(tempfile.mkdtemp()) / "store")


def staged_commit() -> Mapping[str, float]:
    """CPU time of the commits of one process, without fsync; then of opening the store and planning a scan anew."""
    from eoslog.storage.environment import Environment
    from eoslog.storage.local_store import LocalStore
    from eoslog.store import Store

    root = new_root()
    environment = Environment()
    store = Store(LocalStore(root, environment, fsync=False), environment)
    store.admin.create_topic("t")
    producer = store.producer("benchmark", staged=True)
    producer.init_transactions()
    spent = []
    for _ in range(COMMITS):
        started = time.process_time()
        producer.begin_transaction()
        producer.send("t", b"value", partition=0)
        producer.commit_transaction()
        spent.append((time.process_time() - started) * 1000)
    opened, planned = [], []
    for _ in range(OPENINGS):
        cold = Store(LocalStore(root, environment, fsync=False), environment)
        started = time.process_time()
        cold.read(lambda state, slot: None)
        opened.append((time.process_time() - started) * 1000)
        started = time.process_time()
        cold.scan("t")
        planned.append((time.process_time() - started) * 1000)
    return {
        "staged commit (CPU ms)": statistics.median(spent),
        f"open after {COMMITS} commits (CPU ms)": statistics.median(opened),
        f"plan of {COMMITS} files (CPU ms)": statistics.median(planned),
    }


def contention(name: str, processes: int, threads: int, put_ms: float, get_ms: float) -> Mapping[str, float]:
    from benchmarks.contention import Case, measure

    found = measure(Case(name, processes, threads, put_ms, get_ms), SECONDS, new_root())
    return {f"{name}: commits/s": found.commits / found.seconds, f"{name}: CPU a commit (ms)": found.cpu_ms}


def send_and_poll() -> Mapping[str, float]:
    from benchmarks.send import POLL_RECORDS, measure

    costs = measure(1)
    return {
        "send() (CPU µs a record)": costs.cpu("send"),
        "poll() (CPU µs a record)": costs.cpu(f"poll, {POLL_RECORDS:,} records each"),
    }


def plan() -> Mapping[str, float]:
    from benchmarks.planning import measure

    cold, again, _ = measure(PLANNED_FILES)
    return {"cold plan (µs a file)": cold / PLANNED_FILES * 1e6, "next plan (µs a file)": again / PLANNED_FILES * 1e6}


def requests() -> Mapping[str, float]:
    """Exact counts of requests, on a store in memory."""
    import eoslog
    from benchmarks.requests import count

    found = count(lambda: eoslog.connect("memory://short"), HISTORY)
    return {f"{EXACT}{name}": float(sent.total()) for name, sent in found.items()}


MEASURES: dict[str, Callable[[], Mapping[str, float]]] = {
    "requests": requests,
    "commit": staged_commit,
    "local-1": lambda: contention("local, 1 process", 1, 1, 0, 0),
    "threads-64": lambda: contention("64 threads, PUT 10 ms", 1, 64, 10, 3),
    "processes-8": lambda: contention("8 processes, PUT 100 ms, GET 30 ms", 8, 1, 100, 30),
    "send": send_and_poll,
    "plan": plan,
}
"""The measurements of ``make bench``."""
LONG: dict[str, Callable[[], Mapping[str, float]]] = {
    "local-2": lambda: contention("local, 2 processes", 2, 1, 0, 0),
    "local-8": lambda: contention("local, 8 processes", 8, 1, 0, 0),
}
"""Those that ``make bench-all`` adds."""


def main(name: str) -> None:
    try:
        print(json.dumps((MEASURES | LONG)[name]()))
    except (ImportError, AttributeError, TypeError) as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main(sys.argv[1])
