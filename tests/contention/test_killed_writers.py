"""Real processes that commit to one store as fast as they can, while some are killed and some are stopped for a while.

The store is a local directory, as it is or as slow as an object store, or it is on an S3 server. It does not always
answer. Where the processes queue up, they share records, and the process that dies or is stopped is at times the one
that appends for the others.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog.errors import EosLogError, RequestTimedOut, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectInfo, ObjectStore, PutOutcome, StoredObject
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from eoslog.store import Store
from tests.processes import PROCESSES
from tests.s3.servers import S3Server

WRITERS = 5
FAULTS_S = 3.0
LONGEST_S = 600.0
"""After so long the test hangs."""
PUT_S, GET_S = 0.04, 0.01
UNANSWERED = 0.02
PARTITIONS = 3


class Faulty(ObjectStore):
    """Some puts of slots fail before they have an effect, and some after it."""

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        if random.random() < UNANSWERED / 2:
            raise StoreUnavailable("503 SlowDown")
        outcome = super().put_if_absent(path, body)
        if random.random() < UNANSWERED / 2:
            raise StoreUnavailable("connection reset")
        return outcome


class FaultyLocalStore(Faulty, LocalStore):
    """The processes queue up."""


class FaultyS3Store(Faulty, S3Store):
    """The processes queue up."""


class FaultyObjectStore(Faulty, LocalStore):
    """The processes race, and each request takes as long as one to an object store."""

    def __init__(self, root: str, environment: Environment, fsync: bool = True) -> None:
        super().__init__(root, environment, fsync)
        self.host_queue = None

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        time.sleep(PUT_S)
        return super().put_if_absent(path, body)

    def put(self, path: str, body: bytes) -> None:
        time.sleep(PUT_S)
        super().put(path, body)

    def get(self, path: str) -> StoredObject:
        time.sleep(GET_S)
        return super().get(path)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        time.sleep(GET_S)
        return super().list(prefix, start_after=start_after, limit=limit)


@dataclass(frozen=True)
class Location:
    """Where the store is."""

    kind: str
    place: str
    """A directory, or a bucket."""
    options: Mapping[str, str]
    """The options of an S3 store."""

    def faulty(self) -> Store:
        """The store as a writer sees it."""
        environment = Environment()
        match self.kind:
            case "s3":
                options = S3Options.of(self.options)
                return Store(FaultyS3Store(self.place, "store", environment, options), environment)
            case "local":
                return Store(FaultyLocalStore(self.place, environment, fsync=False), environment)
        return Store(FaultyObjectStore(self.place, environment, fsync=False), environment)

    def sound(self) -> Store:
        """The store as it is."""
        if self.kind == "s3":
            return eoslog.connect(f"s3://{self.place}/store", **self.options)
        return eoslog.connect(self.place, fsync=False)


def write(location: Location, number: int, notes: Path) -> None:
    """Commit or abort one row after the other, and note what was tried and what was told, until killed."""
    store = location.faulty()
    with notes.open("a", buffering=1) as told:
        while True:
            with contextlib.suppress(EosLogError):
                _write(store, number, told)


def _write(store: Store, number: int, told: Any) -> None:
    producer = store.producer(f"writer-{number}", staged=number % 2 == 0)
    producer.init_transactions()
    for count in range(1_000_000):
        value = f"{number}:{os.getpid()}:{id(producer)}:{count}"
        producer.begin_transaction()
        producer.send("t", value.encode(), partition=count % PARTITIONS)
        if random.random() < 0.1:
            told.write(f"aborted {value}\n")
            producer.abort_transaction()
            continue
        told.write(f"tried {value}\n")
        while True:
            with contextlib.suppress(RequestTimedOut):
                producer.commit_transaction()
                break
        told.write(f"committed {value}\n")


class Processes:
    """Processes that are killed and started again, or stopped for a while."""

    def __init__(self, target: Callable[..., None], arguments: list[tuple[Any, ...]], chance: random.Random) -> None:
        self._target = target
        self._arguments = arguments
        self._chance = chance
        self._running = [self._start(number) for number in range(len(arguments))]
        self._resumes: list[threading.Timer] = []

    def _start(self, number: int) -> Any:
        process = PROCESSES.Process(target=self._target, args=self._arguments[number], daemon=True)
        process.start()
        return process

    def disturb(self, longest_stop_s: float) -> None:
        """Kill one of them, or stop it."""
        number = self._chance.randrange(len(self._running))
        victim = self._running[number]
        if self._chance.random() < 0.3:
            self._replace(number)
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            self._resumes.append(threading.Timer(self._chance.uniform(0.2, longest_stop_s), _resume, (victim,)))
            self._resumes[-1].start()

    def _replace(self, number: int) -> None:
        self._running[number].kill()
        self._running[number].join()
        self._running[number] = self._start(number)

    def replace(self) -> None:
        """Kill all of them, and start others."""
        for number in range(len(self._running)):
            self._replace(number)

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.join()
        for resume in self._resumes:
            resume.cancel()


def _resume(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)


class Rows:
    """A topic that a consumer reads while its writers die: what it was shown, and what is right in the end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.admin.create_topic("t", partitions=PARTITIONS)
        self._consumer = store.consumer(auto_offset_reset="earliest")
        self._consumer.assign([eoslog.TopicPartition("t", partition) for partition in range(PARTITIONS)])
        self.shown: list[str] = []
        self._hangs_s = time.monotonic() + LONGEST_S

    def poll(self) -> None:
        assert time.monotonic() < self._hangs_s, f"{len(self.shown)} rows were shown"
        self.shown.extend(bytes(record.value or b"").decode() for record in self._consumer.poll(0.2))

    def assert_none_was_lost_or_doubled(self, notes: Path) -> None:
        """Whatever was told as committed is there and was shown, once; nothing else is."""
        # Transactions of the dead hold readers back until somebody aborts them.
        for number in range(WRITERS):
            self._store.producer(f"writer-{number}").init_transactions()
        rows = Counter(bytes(value.as_py()).decode() for value in self._store.scan("t").to_table()["value"])
        while len(self.shown) < rows.total():
            self.poll()
        noted = [line.split() for path in notes.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
        of = {what: {line[1] for line in noted if line[0] == what} for what in ("tried", "committed", "aborted")}
        assert of["committed"] <= rows.keys() <= of["tried"]
        assert max(rows.values()) == 1
        assert sorted(self.shown) == sorted(rows)
        assert not of["aborted"] & rows.keys()
        assert self._store.metrics().prepared_transactions == 0


@pytest.fixture(
    params=[
        "local",
        # Writers that race have a test of append services, too, and a focus of the simulation.
        pytest.param("race", marks=pytest.mark.slow),
        pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow]),
    ]
)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param != "s3":
        return Location(request.param, str(tmp_path / "store"), {})
    server: S3Server = request.getfixturevalue("real_server")
    return Location("s3", server.new_bucket(), server.options())


def test_no_row_is_lost_doubled_or_shown_wrongly_while_writers_that_share_records_die_or_stop(
    tmp_path: Path, location: Location
) -> None:
    store = location.sound()
    rows = Rows(store)
    writers = Processes(
        write, [(location, number, tmp_path / f"{number}.txt") for number in range(WRITERS)], random.Random(1)
    )
    try:
        while len(rows.shown) < WRITERS:
            rows.poll()
        end_s = time.monotonic() + FAULTS_S
        # Until writers of one host have shared a record, too. On a loaded machine that may take longer.
        while time.monotonic() < end_s or not (location.kind == "race" or _have_shared(store)):
            rows.poll()
            writers.disturb(longest_stop_s=2)
    finally:
        writers.end()

    rows.assert_none_was_lost_or_doubled(tmp_path)


def _have_shared(store: Store) -> bool:
    """Whether a record has requests of another process."""
    slots = [info.path for info in store.object_store.list("__transaction_state/slot/")]
    return any(found is not None and b'"requests":' in found.body for found in store.object_store.get_many(slots))
