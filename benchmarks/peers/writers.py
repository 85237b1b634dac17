"""Many writers of one table on S3, each in a loop of its own."""

from __future__ import annotations

import math
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import eoslog
from benchmarks.peers.batch_local import sqlite_catalog
from benchmarks.peers.data import values
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import S3, new_name, s3_server
from benchmarks.peers.sizes import DELAYS_MS, Sizes

TITLE = "Many writers of one table"
INTRO = """\
Each writer appends one row at a time to the same table for {seconds} s, over HTTP to a real S3 server that delays
each request. eoslog's writers have transactional ids of their own. deltalake puts its log with the store's
put-if-absent and repeats a commit that lost a race as often as it does by default. pyiceberg's catalog is an SQLite
file that its writers share. A commit that raises an error counts as failed, and the writer goes on with the next one;
p50 and p99 are of the commits that succeeded. Server, delay and writers share the cores of one machine."""

SYSTEMS = ("deltalake", "pyiceberg", "eoslog")
_FORK = multiprocessing.get_context("forkserver")
_PATIENCE_S = 240


@dataclass(frozen=True)
class Place:
    """Where the writers of a case find their table. It goes to their processes."""

    system: str
    url: str
    options: Mapping[str, str]
    directory: Path
    seconds: float

    def open(self) -> Callable[[str], Callable[[], object]]:
        """Open the table in this process. The answer makes the commit of a writer from its name."""
        rows = values(1)
        match self.system:
            case "deltalake":
                import deltalake

                def delta(_: str) -> Callable[[], object]:
                    table = deltalake.DeltaTable(self.url, storage_options=dict(self.options))
                    return lambda: deltalake.write_deltalake(table, rows, mode="append")

                return delta
            case "pyiceberg":

                def iceberg(_: str) -> Callable[[], object]:
                    table = self.catalog().load_table("n.t")

                    def append() -> None:
                        try:
                            table.append(rows)
                        except Exception:
                            table.refresh()
                            raise

                    return append

                return iceberg
        store = eoslog.connect(self.url, **self.options)  # type: ignore[arg-type]

        return lambda name: staged_commits(store, name, rows)

    def create(self) -> None:
        rows = values(1)
        match self.system:
            case "deltalake":
                import deltalake

                schema = deltalake.Schema.from_arrow(rows.schema)
                deltalake.DeltaTable.create(self.url, schema, storage_options=dict(self.options))
            case "pyiceberg":
                self.catalog().create_table("n.t", schema=rows.schema)
            case _:
                eoslog.connect(self.url, **self.options).admin.create_topic("t")  # type: ignore[arg-type]

    def catalog(self) -> Any:
        return sqlite_catalog(self.directory, self.url, **self.options)


def staged_commits(store: eoslog.Store, transactional_id: str, rows: pa.Table) -> Callable[[], object]:
    """Return a function that commits the same rows to the topic ``t`` in a transaction each time."""
    producer = store.producer(transactional_id, staged=True)
    producer.init_transactions()

    def commit() -> None:
        producer.begin_transaction()
        producer.send_table("t", rows)
        producer.commit_transaction()

    return commit


def place_on(s3: S3, system: str, directory: Path, seconds: float) -> Place:
    """A new table of a system on the server."""
    options = {
        "deltalake": s3.delta_options,
        "pyiceberg": s3.iceberg_options,
        "eoslog": s3.server.options,
    }[system]()
    name = new_name("t")
    return Place(system, f"s3://{s3.new_bucket()}/{name}", options, directory / name, seconds)


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"seconds": f"{sizes.writer_s:g}"}
    # Processes that have imported nothing would spend the time of the measurement on it.
    _FORK.set_forkserver_preload(["deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.fsspec", "s3fs", __name__])
    shapes = [(1, count) for count in sizes.threads] + [(count, 1) for count in sizes.processes]
    with s3_server() as s3:
        for delay_ms in DELAYS_MS:
            for processes, threads in shapes:
                kind = f"{processes} processes" if processes > 1 else f"{threads} thread{'s' if threads > 1 else ''}"
                works = {
                    system: partial(_measure, s3, delay_ms, system, directory, sizes.writer_s, processes, threads)
                    for system in SYSTEMS
                }
                results.rounds(f"{delay_ms} ms, {kind}", works, sizes.writer_rounds)


def _measure(
    s3: S3, delay_ms: float, system: str, directory: Path, seconds: float, processes: int, threads: int
) -> Mapping[str, float]:
    s3.delay.set(0)
    place = place_on(s3, system, directory, seconds)
    place.create()
    turn, ready, results = _FORK.Lock(), _FORK.Barrier(processes + 1), _FORK.SimpleQueue()
    workers = [
        _FORK.Process(target=_run_process, args=(place, number, threads, turn, ready, results), daemon=True)
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        ready.wait(_PATIENCE_S)
        s3.delay.set(delay_ms)
        before = s3.delay.total()
        ready.wait(_PATIENCE_S)
        found = [results.get() for _ in workers]
        requests = s3.delay.total() - before
        for worker in workers:
            worker.join(_PATIENCE_S)
    finally:
        for worker in workers:
            worker.kill()
    durations = sorted(duration for each, _, _ in found for duration in each)
    took = max(seconds, *(taken for _, _, taken in found))
    failed = sum(count for _, count, _ in found)
    numbers = {"commits/s": len(durations) / took, "failed commits": float(failed)}
    if durations:
        numbers["p50 (ms)"] = statistics.median(durations) * 1000
        numbers["p99 (ms)"] = durations[math.ceil(len(durations) * 0.99) - 1] * 1000
        numbers["requests a commit"] = requests / len(durations)
    return numbers


def _run_process(place: Place, number: int, threads: int, turn: Any, ready: Any, results: Any) -> None:
    """The writers of one process: they report how long commits took, how many failed, and how long all took (s)."""
    writer = place.open()
    durations: list[float] = []
    failed: list[str] = []
    gate = threading.Barrier(threads + 1)
    loops = [
        threading.Thread(target=_loop, args=(writer, f"w{number}-{each}", place.seconds, turn, gate, durations, failed))
        for each in range(threads)
    ]
    for loop in loops:
        loop.start()
    gate.wait()
    ready.wait()
    ready.wait()
    began = time.monotonic()
    gate.wait()
    for loop in loops:
        loop.join()
    results.put((durations, len(failed), time.monotonic() - began))


def _loop(
    writer: Callable[[str], Callable[[], object]],
    name: str,
    seconds: float,
    turn: Any,
    gate: threading.Barrier,
    durations: list[float],
    failed: list[str],
) -> None:
    try:
        # One after the other: a race of all writers for their beginning would take minutes.
        with turn:
            commit = writer(name)
    except Exception:
        gate.abort()
        raise
    gate.wait()
    gate.wait()
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        try:
            commit()
        except Exception as error:  # Each client has errors of its own for a lost race.
            failed.append(str(error))
        else:
            durations.append(time.monotonic() - began)
