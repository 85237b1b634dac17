"""Commits of many writers in one store: how many a second, how long each takes, and how fair the writers share them.

``python -m benchmarks.contention [--seconds 5] [--full]``. Each writer is a staged producer with a transactional id of
its own, and commits one row at a time. In a closed loop a writer begins the next commit when the last one is done. In
an open loop commits are due at a fixed rate, and a commit's time counts from when it was due.

There are two kinds of stores. One is a local directory with fsync, whose processes queue for their turns. The other is
like an object store: a local directory without fsync and without that queue, and with a delay for each request. Other
work on the machine changes the numbers of the local directory most. So do files that were deleted in the last minutes:
on ext4 they make the creation of a file up to fifty times as expensive. So all stores stay until the last measurement.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, PutOutcome, StoredObject
from eoslog.store import Store

SPAWN = multiprocessing.get_context("spawn")


class DelayedStore(LocalStore):
    """A local directory whose requests take as long as those of an object store. Its writers do not queue."""

    def __init__(self, root: str, environment: Environment, put_ms: float, get_ms: float) -> None:
        super().__init__(root, environment, fsync=False)
        self.host_queue = None
        self._put_s, self._get_s = put_ms / 1000, get_ms / 1000

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        time.sleep(self._put_s)
        return super().put_if_absent(path, body)

    def put(self, path: str, body: bytes) -> None:
        time.sleep(self._put_s)
        super().put(path, body)

    def get(self, path: str) -> StoredObject:
        time.sleep(self._get_s)
        return super().get(path)

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        time.sleep(self._get_s)
        found: list[StoredObject | None] = []
        for path in paths:
            try:
                found.append(super().get(path))
            except ObjectNotFound:
                found.append(None)
        return found

    def delete(self, paths: Sequence[str]) -> None:
        time.sleep(self._get_s)
        super().delete(paths)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        time.sleep(self._get_s)
        return super().get_range(path, start, length)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        time.sleep(self._get_s)
        return super().list(prefix, start_after=start_after, limit=limit)


@dataclass(frozen=True)
class Case:
    """One measurement."""

    name: str
    processes: int
    threads: int
    put_ms: float = 0.0
    get_ms: float = 0.0
    rate: float | None = None
    """Commits a second that are due for each writer (an open loop); None: a closed loop."""

    def open(self, root: str) -> Store:
        environment = Environment()
        if self.put_ms == 0:
            return Store(LocalStore(root, environment), environment)
        return Store(DelayedStore(root, environment, self.put_ms, self.get_ms), environment)


@dataclass
class Result:
    """The commits of one writer."""

    durations: list[float]
    """How long each commit took (s)."""


def run_process(case: Case, root: str, number: int, seconds: float, ready: Any, results: Any) -> None:
    """The writers of one process."""
    store = case.open(root)
    gate = threading.Barrier(case.threads + 1)
    found: list[Result] = [Result([]) for _ in range(case.threads)]
    writers = [
        threading.Thread(target=_write, args=(case, store, f"{number}-{thread}", seconds, gate, found[thread]))
        for thread in range(case.threads)
    ]
    for writer in writers:
        writer.start()
    gate.wait()
    ready.wait()
    cpu = time.process_time()
    gate.wait()
    for writer in writers:
        writer.join()
    results.put((time.process_time() - cpu, [each.durations for each in found]))


def _write(case: Case, store: Store, name: str, seconds: float, gate: threading.Barrier, result: Result) -> None:
    producer = store.producer(f"writer-{name}", staged=True)
    producer.init_transactions()
    _commit(producer)
    gate.wait()
    gate.wait()
    began = time.monotonic()
    due = began
    while time.monotonic() < began + seconds:
        if case.rate is not None:
            due += 1 / case.rate
            time.sleep(max(0.0, due - time.monotonic()))
        else:
            due = time.monotonic()
        _commit(producer)
        result.durations.append(time.monotonic() - due)


def _commit(producer: Any) -> None:
    producer.begin_transaction()
    producer.send("t", b"value", partition=0)
    producer.commit_transaction()


@dataclass
class Measured:
    """The commits of all writers of a case."""

    seconds: float
    slots: int
    cpu_seconds: float
    writers: list[list[float]]
    """The durations of each writer's commits (s)."""

    @property
    def commits(self) -> int:
        return sum(len(each) for each in self.writers)

    @property
    def cpu_ms(self) -> float:
        """CPU time of all processes for each commit (ms)."""
        return self.cpu_seconds * 1000 / max(1, self.commits)

    def row(self) -> list[str]:
        """A row of the table."""
        durations = sorted(duration for each in self.writers for duration in each)
        counts = [len(each) for each in self.writers]
        return [
            f"{self.commits / self.seconds:,.0f}",
            f"{self.commits / max(1, self.slots):.1f}",
            f"{statistics.median(durations) * 1000:,.1f}",
            f"{durations[int(len(durations) * 0.99) - 1] * 1000:,.0f}",
            f"{durations[-1] * 1000:,.0f}",
            f"{min(counts)} / {max(counts)}",
            f"{self.cpu_ms:.1f}",
        ]


def measure(case: Case, seconds: float, root: str) -> Measured:
    """Run the writers of a case in a new store."""
    store = Store(LocalStore(root, Environment()), Environment())
    store.admin.create_topic("t")
    ready, results = SPAWN.Barrier(case.processes + 1), SPAWN.SimpleQueue()
    processes = [
        SPAWN.Process(target=run_process, args=(case, root, number, seconds, ready, results), daemon=True)
        for number in range(case.processes)
    ]
    for process in processes:
        process.start()
    ready.wait()
    before = store.read(lambda state, slot: slot)
    found = [results.get() for _ in processes]
    slots = store.read(lambda state, slot: slot) - before
    for process in processes:
        process.join()
    writers = [durations for _, each in found for durations in each]
    return Measured(seconds, slots, sum(cpu for cpu, _ in found), writers)


QUICK = (
    Case("local, 1 process", 1, 1),
    Case("local, 8 processes", 8, 1),
    Case("64 threads, PUT 10 ms", 1, 64, 10, 3),
    Case("8 processes, PUT 100 ms, GET 30 ms", 8, 1, 100, 30),
)
FULL = (
    Case("local, 1 process", 1, 1),
    *(Case(f"local, {count} processes", count, 1) for count in (2, 4, 8)),
    Case("local, 8 processes, 40/s offered by each", 8, 1, rate=40),
    Case("local, 64 threads", 1, 64),
    Case("64 threads, PUT 100 ms", 1, 64, 100, 30),
    Case("64 threads, PUT 10 ms", 1, 64, 10, 3),
    *(Case(f"{count} processes, PUT 100 ms, GET 30 ms", count, 1, 100, 30) for count in (1, 8, 24, 64)),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--full", action="store_true", help="all measurements")
    parser.add_argument("--directory", help="where to put the stores (default: the directory for temporary files)")
    parser.add_argument("--only", default="", help="measurements whose name has this in it")
    options = parser.parse_args(arguments)
    table = Table(
        "writers",
        "commits/s",
        "commits a slot",
        "p50 (ms)",
        "p99 (ms)",
        "slowest (ms)",
        "fewest / most of a writer",
        "CPU a commit (ms)",
    )
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for case in FULL if options.full or options.only else QUICK:
            if options.only in case.name:
                root = str(Path(directory) / case.name.replace(" ", "-").replace("/", "-"))
                table.add_row(case.name, *measure(case, options.seconds, root).row())
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
