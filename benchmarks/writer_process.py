"""One process of writers: ``benchmarks.object_store_writers`` starts it, and both exchange lines of JSON.

The process reads its job. It answers when all its writers have called ``init_transactions``, and when each has made its
first commit. Then it reads the window of the measurement, and at the end it answers with its report. This module
imports only what a writer needs, because the imports are a part of the time until the writers have begun.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import eoslog
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue, name_of_directory


@dataclass(frozen=True)
class Job:
    number: int
    """A number that no other process of the case has."""
    url: str
    options: Mapping[str, Any]
    """The options of ``eoslog.connect``."""
    threads: int
    host_directory: str | None
    """A directory that the processes of one host have in common; None: all processes run on the same host."""
    takes_turns: bool


@dataclass(frozen=True)
class Window:
    """The steady state, by the monotonic clock, which all processes of the machine share (s)."""

    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Report:
    """What the writers of one process did in the window."""

    commits: list[int]
    """By writer: the commits that ended in the window."""
    durations_s: list[float]
    """The durations of all commits that ran at some time in the window, also of those that ended after it."""
    errors: Mapping[str, int]
    """The errors since the start of the process, by class."""
    requests: Mapping[str, int]
    """The requests to the object store in the window, by verb."""
    cpu_s: float
    """The CPU time of the process in the window (s)."""
    has_queue: bool
    """True if the process took turns with others of its host."""


class Writer:
    """A staged producer that commits one row after the other, in a closed loop."""

    def __init__(self, store: eoslog.Store, transactional_id: str) -> None:
        self._store = store
        self._transactional_id = transactional_id
        self._producer: eoslog.Producer | None = None
        self.commits = 0
        self.durations_s: list[float] = []
        self.errors: Counter[str] = Counter()

    def begin(self) -> None:
        """Call ``init_transactions`` until it succeeds. The parent ends a process that takes too long."""
        while not self._succeeds(self._open):
            pass

    def commit_once(self) -> None:
        """Make the first commit, which imports modules and creates directories."""
        while not self._succeeds(self._commit):
            pass

    def write(self, window: Window) -> None:
        """Commit rows until the end of the window. A commit that fails lasts until the next one succeeds."""
        while (began_s := time.monotonic()) < window.end_s:
            is_done = self._succeeds(self._commit)
            while not is_done and time.monotonic() < window.end_s:
                is_done = self._succeeds(self._commit)
            ended_s = time.monotonic()
            if ended_s >= window.begin_s:
                # The last commit is in flight when the window ends. It counts here, because a writer that is never
                # served would otherwise have no slow commit.
                self.durations_s.append(ended_s - began_s)
                self.commits += is_done and ended_s < window.end_s

    def _succeeds(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:  # Each error is counted, and the benchmark goes on.
            name = type(error).__name__
            if name not in self.errors:
                print(f"{self._transactional_id}: {name}: {error}", file=sys.stderr)
            self.errors[name] += 1
            self._producer = None
            return False
        return True

    def _open(self) -> eoslog.Producer:
        producer = self._store.producer(self._transactional_id, staged=True)
        producer.init_transactions()
        self._producer = producer
        return producer

    def _commit(self) -> None:
        producer = self._producer or self._open()
        producer.begin_transaction()
        producer.send("t", b"value", partition=0)
        producer.commit_transaction()


def join_host(store: eoslog.Store, job: Job) -> bool:
    """Give the store the host queue of its job. Return False if the process takes no turns."""
    # A store knows its queue when it has read its description.
    store.describe()
    object_store = store.object_store
    if not job.takes_turns:
        object_store.host_queue = None
    elif object_store.host_queue is not None and job.host_directory is not None:
        # All processes run on one machine. Only those of one directory share turns.
        object_store.host_queue = HostQueue(
            partial(name_of_directory, job.host_directory),
            Environment(),
            patience_ms=object_store.host_queue.patience_ms,
        )
    return object_store.host_queue is not None


def main() -> None:
    job = Job(**json.loads(sys.stdin.readline()))
    store = eoslog.connect(job.url, **job.options)
    has_queue = join_host(store, job)
    writers = [Writer(store, f"writer-{job.number}-{thread}") for thread in range(job.threads)]
    in_parallel([writer.begin for writer in writers])()
    print("begun", flush=True)
    in_parallel([writer.commit_once for writer in writers])()
    print("committed", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        # The parent has ended.
        return
    window = Window(**json.loads(answer))
    wait = in_parallel([partial(writer.write, window) for writer in writers])
    sleep_until(window.begin_s)
    requests, cpu_s = Counter(store.requests), time.process_time()
    sleep_until(window.end_s)
    sent = Counter(store.requests)
    sent.subtract(requests)
    cpu_s = time.process_time() - cpu_s
    wait()
    report = Report(
        commits=[writer.commits for writer in writers],
        durations_s=[duration for writer in writers for duration in writer.durations_s],
        errors=dict(sum((writer.errors for writer in writers), Counter())),
        requests=dict(sent),
        cpu_s=cpu_s,
        has_queue=has_queue,
    )
    print(json.dumps(asdict(report)), flush=True)


def in_parallel(works: list[Callable[[], None]]) -> Callable[[], None]:
    """Start each function in a thread of its own. Return a function that waits for all."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()

    def wait() -> None:
        for thread in threads:
            thread.join()

    return wait


def sleep_until(moment_s: float) -> None:
    """Sleep until a time of the monotonic clock (s)."""
    time.sleep(max(0.0, moment_s - time.monotonic()))


if __name__ == "__main__":
    main()
