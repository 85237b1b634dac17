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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.object_store_writers import Case, NewStore

LOCAL_S = 1.5
S3_S = 4.0
WARM_UP_S = 0.5
COMMITS = 200
OPENINGS = 9
PLANNED_FILES = 5_000
HISTORY = 40
"""Transactions before requests are counted: fewer than a checkpoint waits for, which is written in the background."""
EXACT = "requests: "
"""The names of exact counts begin so: the same on every machine and in every run."""


class Missing(Exception):
    """A program that the benchmark needs is not installed."""


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


def local_writers(processes: int) -> Mapping[str, float]:
    from benchmarks.object_store_writers import Case, local_stores

    case = Case(processes=processes)
    return writers(f"local, {case.writers}", case, local_stores(tempfile.mkdtemp()), LOCAL_S)


def s3_writers(*, processes: int = 1, threads: int = 1, put_ms: float, other_ms: float) -> Mapping[str, float]:
    from benchmarks.object_store_writers import Case, s3_stores
    from tests.s3.servers import ServerMissing

    case = Case(processes=processes, threads=threads, put_ms=put_ms, other_ms=other_ms)
    try:
        with s3_stores() as new_store:
            return writers(f"S3, {case.writers}, {case.delays} ms", case, new_store, S3_S)
    except ServerMissing as error:
        raise Missing(str(error)) from error


def writers(name: str, case: Case, new_store: NewStore, seconds: float) -> Mapping[str, float]:
    from benchmarks.object_store_writers import measure

    found = measure(case, new_store(case), seconds=seconds, warm_up=WARM_UP_S)
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
    "local-1": lambda: local_writers(1),
    "threads-64": lambda: s3_writers(threads=64, put_ms=10, other_ms=3),
    "processes-8": lambda: s3_writers(processes=8, put_ms=100, other_ms=30),
    "send": send_and_poll,
    "plan": plan,
}
"""The measurements of ``make bench``."""
LONG: dict[str, Callable[[], Mapping[str, float]]] = {
    "local-2": lambda: local_writers(2),
    "local-8": lambda: local_writers(8),
}
"""Those that ``make bench-all`` adds."""


def main(name: str) -> None:
    try:
        print(json.dumps((MEASURES | LONG)[name]()))
    except (ImportError, AttributeError, TypeError, Missing) as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main(sys.argv[1])
