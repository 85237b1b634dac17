"""Commits of many writers in one store: how many a second, how long each takes, and what they cost.

``python -m benchmarks.object_store_writers [--full] [--seconds 20] [--warm-up 5]`` measures a list of cases.
``--processes 24 --put-ms 100 --other-ms 30`` measures one case. Each writer is a staged producer with a transactional
id of its own. It commits one row at a time, and begins the next commit when the last one is done.

The writers use a real S3 server of this machine over HTTP. In a case with a delay, a proxy waits before it passes on a
request. A case without a delay has no proxy. The clients count their requests. The proxy counts them too, and a line
below the table tells if the counts differ. ``--store local`` measures a local directory with fsync instead.

Processes of one host share the turns of its queue. The hosts of this benchmark are groups of processes with a queue
each, all on this machine. ``--no-turns`` takes the queue from all processes. ``--service`` starts a coordinator that
appends for all hosts. Its requests and its CPU are not in the numbers of the writers.

The server, the proxy and the writers share the cores of this machine. So the table shows how busy the cores were, and
how much of that is the work of this benchmark ("by us"). If the cores are busy, they are the limit, not the store.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TypeAlias

import psutil
from rich.console import Console
from rich.table import Table

import eoslog
from benchmarks.arguments import existing_directory, not_negative, positive
from benchmarks.delay import Delay, delayed
from benchmarks.writer_process import Job, Report, Window, sleep_until
from tests.s3.servers import ServerMissing, real_s3_server

BEGIN_LIMIT_S = 300.0
"""A case has failed if not all of its writers have made a commit after this time."""
END_LIMIT_S = 120.0
"""A case has failed if its last commits have not ended this time after the window."""
ANNOUNCEMENT_LIMIT_S = 60.0
"""A case has failed if its append service is not announced after this time."""
COLUMNS = (
    "writers",
    "PUT / other (ms)",
    "all begun (s)",
    "commits/s",
    "p50 (s)",
    "p99 (s)",
    "longest (s)",
    "fewest / most of a writer",
    "requests a commit",
    "CPU a commit (ms)",
    "cores busy / by us",
    "errors",
)


@dataclass(frozen=True)
class Case:
    """One measurement."""

    hosts: int = 1
    processes: int = 1
    """The processes of each host."""
    threads: int = 1
    """The writers of each process."""
    put_ms: float = 0.0
    """The delay of a PUT (ms)."""
    other_ms: float = 0.0
    """The delay of any other request (ms)."""
    service: bool = False
    """Whether a coordinator appends for all hosts."""

    @property
    def writers(self) -> str:
        """The writers, in words."""
        words = [f"{self.processes} process{'es' if self.processes > 1 else ''}"]
        if self.hosts > 1:
            words.insert(0, f"{self.hosts} hosts")
        if self.threads > 1:
            words.append(f"{self.threads} threads")
        return " of ".join(words) + (", append service" if self.service else "")

    @property
    def delays(self) -> str:
        """The delays of a PUT and of any other request (ms), in words."""
        return f"{self.put_ms:g} / {self.other_ms:g}"


S3_CASES = (
    Case(put_ms=100, other_ms=30),
    Case(processes=8, put_ms=100, other_ms=30),
    Case(processes=24, put_ms=100, other_ms=30),
    Case(processes=8),
    Case(hosts=8, put_ms=100, other_ms=100),
    Case(hosts=8, processes=3, put_ms=100, other_ms=30, service=True),
)
MORE_S3_CASES = (
    Case(processes=2, put_ms=100, other_ms=30),
    Case(processes=64, put_ms=100, other_ms=30),
    Case(threads=64, put_ms=100, other_ms=30),
    Case(hosts=8, processes=3, put_ms=100, other_ms=30),
    Case(),
    Case(processes=24),
    Case(processes=64),
    Case(threads=64),
    Case(hosts=8),
    Case(hosts=8, put_ms=10, other_ms=10),
)
LOCAL_CASES = (Case(), Case(processes=2), Case(processes=8))
MORE_LOCAL_CASES = (Case(processes=4), Case(processes=24), Case(threads=64))


@dataclass(frozen=True)
class Target:
    """A new store, and how its writers reach it."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables with which any program reaches the store."""
    proxy: Delay | None = None
    """The proxy between the writers and the store; None if there is no proxy."""


NewStore: TypeAlias = Callable[[Case], Target]
"""Creates a store with a topic ``t`` for a case."""


@contextmanager
def s3_stores() -> Iterator[NewStore]:
    """Start a real S3 server and a proxy. Raises ``ServerMissing``. Both end with the block."""
    with real_s3_server() as server, delayed(server.endpoint_url) as proxy:

        def new_store(case: Case) -> Target:
            url = f"s3://{server.new_bucket()}/writers"
            _create_topic(Target(url, server.options()))
            if case.put_ms == case.other_ms == 0:
                return Target(url, server.options(), server.variables())
            proxy.set(case.other_ms, put_ms=case.put_ms)
            behind = server.behind(proxy.url)
            return Target(url, behind.options(), behind.variables(), proxy)

        yield new_store


def local_stores(directory: str) -> NewStore:
    """Make local stores in a directory.

    Remove the directory only after the last case: after many deletions, ext4 creates files up to fifty times as slowly.
    """

    def new_store(case: Case) -> Target:
        target = Target(tempfile.mkdtemp(dir=directory) + "/store")
        _create_topic(target)
        return target

    return new_store


def _create_topic(target: Target) -> None:
    eoslog.connect(target.url, **target.options).admin.create_topic("t")  # type: ignore[arg-type]


class CaseFailed(Exception):
    """A process of a case ended early, or took too long."""


@dataclass(frozen=True)
class Measured:
    """The numbers of a case."""

    case: Case
    seconds: float
    begun_s: float
    """The time from the start of the processes until all writers had called ``init_transactions`` (s)."""
    reports: Sequence[Report]
    busy: float
    """The part of the time of all cores that any program used in the window (0 to 1)."""
    own: float
    """The part that the writers, the server and the proxy used (0 to 1)."""
    proxied: int | None
    """The requests that the proxy counted in the window; None without a proxy."""

    @property
    def commits(self) -> int:
        return sum(sum(report.commits) for report in self.reports)

    @property
    def requests(self) -> Counter[str]:
        """The requests that the clients counted in the window, by verb."""
        return sum((Counter(report.requests) for report in self.reports), Counter())

    @property
    def cpu_ms(self) -> float:
        """The CPU time of the writers' processes for each commit (ms)."""
        return sum(report.cpu_s for report in self.reports) * 1000 / max(1, self.commits)

    def row(self) -> Sequence[str]:
        """The row of the table."""
        durations = sorted(duration for report in self.reports for duration in report.durations_s)
        counts = [count for report in self.reports for count in report.commits]
        errors: Counter[str] = sum((Counter(report.errors) for report in self.reports), Counter())
        sent = [f"{count / max(1, self.commits):.2f} {verb}" for verb, count in self.requests.most_common()]
        return (
            self.case.writers,
            self.case.delays,
            f"{self.begun_s:.1f}",
            f"{self.commits / self.seconds:,.1f}",
            f"{statistics.median(durations):.3f}",
            f"{durations[math.ceil(len(durations) * 0.99) - 1]:.3f}",
            f"{durations[-1]:.3f}",
            f"{min(counts)} / {max(counts)}",
            f"{self.requests.total() / max(1, self.commits):.2f}: {', '.join(sent)}",
            f"{self.cpu_ms:.1f}",
            f"{self.busy:.0%} / {self.own:.0%}",
            ", ".join(f"{count} {name}" for name, count in errors.most_common()) or "none",
        )

    def notes(self) -> Iterator[str]:
        """Sentences about numbers that do not mean what they seem to mean."""
        if self.commits == 0:
            yield f"{self.case.writers}: no commit ended in the window. The numbers for each commit mean nothing."
        if self.case.hosts > 1 and self.case.processes > 1 and not all(report.has_queue for report in self.reports):
            yield f"{self.case.writers}: the processes took no turns, so they raced within a host as between hosts."
        counted = self.requests.total()
        # Both read their counts at the same time, but some requests are between them.
        tolerance = 2 * len(self.reports) * self.case.threads + counted // 50
        if self.proxied is not None and abs(self.proxied - counted) > tolerance:
            yield f"{self.case.writers}: the clients counted {counted} requests, but the proxy {self.proxied}."


def measure(case: Case, target: Target, *, seconds: float, warm_up: float, takes_turns: bool = True) -> Measured:
    """Run the writers of a case.

    Args:
        seconds: the length of the window that is measured (s).
        warm_up: how long the writers commit before the window begins (s), after the first commit of each.
        takes_turns: False takes the host queue from all processes.

    Raises:
        CaseFailed
    """
    with ExitStack() as stack:
        hosts = stack.enter_context(tempfile.TemporaryDirectory())
        directories = [tempfile.mkdtemp(dir=hosts) if case.hosts > 1 else None for _ in range(case.hosts)]
        if case.service:
            stack.enter_context(_append_service(target))
        started_s = time.monotonic()
        processes = []
        for number in range(case.hosts * case.processes):
            host = directories[number % case.hosts]
            job = Job(number, target.url, target.options, case.threads, host, takes_turns)
            processes.append(stack.enter_context(_started(job)))
        with _limit(processes, BEGIN_LIMIT_S):
            for process in processes:
                _answer(process, "begun")
            begun_s = time.monotonic() - started_s
            for process in processes:
                _answer(process, "committed")
        begin_s = time.monotonic() + warm_up
        window = Window(begin_s, begin_s + seconds)
        for process in processes:
            _send(process, asdict(window))
        sleep_until(window.begin_s)
        proxied, own_s = _proxied(target), _own_cpu_s()
        psutil.cpu_percent()
        sleep_until(window.end_s)
        proxied, own_s = _proxied(target) - proxied, _own_cpu_s() - own_s
        busy = psutil.cpu_percent() / 100
        with _limit(processes, END_LIMIT_S):
            reports = [Report(**json.loads(_answer(process, "ended"))) for process in processes]
    own = own_s / seconds / (os.cpu_count() or 1)
    return Measured(case, seconds, begun_s, reports, busy, own, proxied if target.proxy else None)


def _proxied(target: Target) -> int:
    """Return the requests that the proxy has counted so far; 0 without a proxy."""
    return target.proxy.total() if target.proxy else 0


@contextmanager
def _append_service(target: Target) -> Iterator[None]:
    """Start a coordinator that appends for all hosts. It ends with the block.

    Raises:
        CaseFailed: it was not announced.
    """
    command = [sys.executable, "-c", "from eoslog.main import main; main()", "--store", target.url]
    command += ["coordinator", "--step", "write-checkpoint", "--append-listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=os.environ | dict(target.variables)) as process:
        try:
            store = eoslog.connect(target.url, **target.options)  # type: ignore[arg-type]
            end_s = time.monotonic() + ANNOUNCEMENT_LIMIT_S
            while store.log.read(lambda state, slot: store.log.replica.append_service) is None:
                if time.monotonic() > end_s or process.poll() is not None:
                    raise CaseFailed("the append service was not announced. See its messages.")
                time.sleep(0.1)
            yield
        finally:
            process.kill()


@contextmanager
def _started(job: Job) -> Iterator[subprocess.Popen[str]]:
    """Start a process of writers. It ends with the block."""
    command = [sys.executable, "-m", "benchmarks.writer_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            _send(process, asdict(job))
            yield process
        finally:
            process.kill()


def _send(process: subprocess.Popen[str], message: object) -> None:
    assert process.stdin is not None
    # A process that has ended shows when its answer is read. Nothing stays in a buffer, which could not be closed then.
    with suppress(BrokenPipeError):
        os.write(process.stdin.fileno(), f"{json.dumps(message)}\n".encode())


def _answer(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise CaseFailed(f"not all writers have {what}. A process ended early or took too long; see its messages.")
    return line


@contextmanager
def _limit(processes: Sequence[subprocess.Popen[str]], limit_s: float) -> Iterator[None]:
    """End the processes if the block takes longer. Then their answers end, too."""

    def end() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _own_cpu_s() -> float:
    """Return the CPU time of this process and its descendants: the writers, the server and the proxy (s)."""
    spent_s = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("s3", "local"), default="s3", help="where the stores are")
    parser.add_argument("--full", action="store_true", help="all cases")
    parser.add_argument("--hosts", type=positive, help="groups of processes that share no turns (1)")
    parser.add_argument("--processes", type=positive, help="processes of each host (1)")
    parser.add_argument("--threads", type=positive, help="writers of each process (1)")
    parser.add_argument("--put-ms", type=not_negative, help="delay of a PUT (0)")
    parser.add_argument("--other-ms", type=not_negative, help="delay of any other request (0)")
    parser.add_argument("--service", action="store_true", default=None, help="a coordinator appends for all hosts")
    parser.add_argument("--no-turns", action="store_true", help="without the queue of a host")
    parser.add_argument("--seconds", type=positive, default=20, help="measured time of each case (20)")
    parser.add_argument("--warm-up", type=not_negative, default=5.0, help="seconds of commits before that (5)")
    parser.add_argument("--directory", type=existing_directory, help="for local stores (that for temporary files)")
    options = parser.parse_args(arguments)
    if options.store == "local" and (options.put_ms or options.other_ms):
        parser.error("A local store has no delay. Leave --put-ms and --other-ms out, or choose --store s3.")
    if options.store == "s3" and options.directory:
        parser.error("The S3 server has a directory of its own. Leave --directory out, or choose --store local.")
    return options


def _cases(options: argparse.Namespace) -> Sequence[Case]:
    """Return the case that the options describe, or the list of cases if they describe none."""
    names = [each.name for each in fields(Case)]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if given:
        return [Case(**given)]
    few, more = (LOCAL_CASES, MORE_LOCAL_CASES) if options.store == "local" else (S3_CASES, MORE_S3_CASES)
    return few + more if options.full else few


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    table = Table(*COLUMNS, title=f"{options.store}, {options.seconds} s each, {os.cpu_count()} cores")
    console = Console(width=150)
    notes: list[str] = []
    with ExitStack() as stack:
        if options.store == "local":
            new_store = local_stores(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        else:
            try:
                new_store = stack.enter_context(s3_stores())
            except ServerMissing as error:
                sys.exit(f"{error}\nOr measure a local directory with --store local.")
        # An interrupt shows the cases that were measured.
        stack.callback(console.print, table)
        for case in _cases(options):
            with console.status(f"{case.writers}, delays {case.delays} ms"):
                try:
                    found = measure(
                        case,
                        new_store(case),
                        seconds=options.seconds,
                        warm_up=options.warm_up,
                        takes_turns=not options.no_turns,
                    )
                except CaseFailed as error:
                    table.add_row(case.writers, case.delays, *["-"] * (len(COLUMNS) - 3), "failed")
                    notes.append(f"{case.writers}: {error}")
                else:
                    table.add_row(*found.row())
                    notes += found.notes()
    for note in notes:
        console.print(note, markup=False)


if __name__ == "__main__":
    main()
