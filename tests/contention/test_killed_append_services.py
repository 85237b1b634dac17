"""Writers that share no host, and two append services, while each of them is killed or stopped and connections are cut.

The store is a directory that is as slow as an object store, or it is on an S3 server. It does not always answer. The
writers find the services in the log.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog.errors import EosLogError
from eoslog.log.append_client import AppendClient
from eoslog.log.slots import SlotRecord, decode_line, first_line, slot_of
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.contention.test_killed_writers import (
    FAULTS_S,
    LONGEST_S,
    PARTITIONS,
    SPAWN,
    WRITERS,
    FaultyObjectStore,
    Location,
    write,
)
from tests.s3.servers import S3Server

SERVICES = 2
LONGEST_CONNECTION_S = 2.0


class FaultyRemoteStore(FaultyObjectStore):
    """Each process is on a host of its own. Records repeat the log's tail, so a service can hand them over."""

    is_remote = True

    def __init__(self, root: str, environment: Environment, fsync: bool = True) -> None:
        super().__init__(root, environment, fsync)
        self.tail_bytes = 16 << 10


class HostsOfTheirOwn(Location):
    """An object store, or a directory that each process sees as one."""

    def faulty(self) -> Store:
        if self.kind == "s3":
            store = super().faulty()
            # A store knows its queue when it has read its description.
            store.describe()
            store.object_store.host_queue = None
            return store
        environment = Environment()
        return Store(FaultyRemoteStore(self.place, environment, fsync=False), environment)


def serve(location: Location) -> None:
    """Append for others until killed."""
    append_service._CHECK_S = 0.5
    while True:
        with contextlib.suppress(EosLogError), AppendService(location.faulty(), "127.0.0.1:0"):
            threading.Event().wait()


def write_with_cuts(location: Location, number: int, notes: Path) -> None:
    """Write until killed. Each connection to a service is cut after a while, whatever is on it."""
    opened = AppendClient._opened

    def opened_for_a_while(self: AppendClient, host: str, port: int) -> socket.socket:
        connected = opened(self, host, port)
        cut = threading.Timer(random.uniform(0, LONGEST_CONNECTION_S), _cut, (connected.dup(),))
        cut.daemon = True
        cut.start()
        return connected

    AppendClient._opened = opened_for_a_while  # type: ignore[method-assign]
    write(location, number, notes)


def _cut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError), connected:
        connected.shutdown(socket.SHUT_RDWR)


class Processes:
    """Processes that are killed and started again, or stopped for a while."""

    def __init__(self, target: Callable[..., None], arguments: list[tuple[Any, ...]], chance: random.Random) -> None:
        self._target = target
        self._arguments = arguments
        self._chance = chance
        self._running = [self._start(number) for number in range(len(arguments))]
        self._resumes: list[threading.Timer] = []

    def _start(self, number: int) -> Any:
        process = SPAWN.Process(target=self._target, args=self._arguments[number], daemon=True)
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


@pytest.fixture(params=["directory", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow])])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> HostsOfTheirOwn:
    if request.param != "s3":
        return HostsOfTheirOwn(request.param, str(tmp_path / "store"), {})
    server: S3Server = request.getfixturevalue("real_server")
    return HostsOfTheirOwn("s3", server.new_bucket(), server.options())


@pytest.fixture
def ends() -> Iterator[list[Callable[[], None]]]:
    """Called at the end of the test, the last one first."""
    called: list[Callable[[], None]] = []
    yield called
    while called:
        called.pop()()


def test_no_row_is_lost_or_doubled_while_append_services_die_stop_and_lose_their_connections(
    location: HostsOfTheirOwn, tmp_path: Path, ends: list[Callable[[], None]]
) -> None:
    store = location.sound()
    store.admin.create_topic("t", partitions=PARTITIONS)
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([eoslog.TopicPartition("t", partition) for partition in range(PARTITIONS)])
    shown: list[str] = []
    chance = random.Random(1)
    hangs_s = time.monotonic() + LONGEST_S

    def poll() -> None:
        assert time.monotonic() < hangs_s, f"{len(shown)} rows were shown"
        shown.extend(bytes(record.value or b"").decode() for record in consumer.poll(0.2))

    services = Processes(serve, [(location,)] * SERVICES, chance)
    ends.append(services.end)
    writers = Processes(
        write_with_cuts, [(location, number, tmp_path / f"{number}.txt") for number in range(WRITERS)], chance
    )
    ends.append(writers.end)
    while len(shown) < WRITERS or not services_that_appended_for_others(store):
        poll()
    end_s = time.monotonic() + FAULTS_S
    while time.monotonic() < end_s:
        poll()
        if chance.random() < 0.5:
            writers.disturb(longest_stop_s=2)
        if chance.random() < 0.3:
            # Some stops are longer than a writer waits for an answer.
            services.disturb(longest_stop_s=5)
    # A service that comes after the death of all others appends for the same writers.
    before = services_that_appended_for_others(store)
    services.replace()
    while services_that_appended_for_others(store) <= before:
        poll()
    while ends:
        ends.pop()()

    # Transactions of the dead hold readers back until somebody aborts them.
    for number in range(WRITERS):
        store.producer(f"writer-{number}").init_transactions()
    rows = Counter(bytes(value.as_py()).decode() for value in store.scan("t").to_table()["value"])
    while len(shown) < rows.total():
        poll()
    noted = [line.split() for path in tmp_path.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    of = {what: {line[1] for line in noted if line[0] == what} for what in ("tried", "committed", "aborted")}
    assert of["committed"] <= rows.keys() <= of["tried"]
    assert max(rows.values()) == 1
    assert sorted(shown) == sorted(rows)
    assert not of["aborted"] & rows.keys()
    assert store.metrics().prepared_transactions == 0


def services_that_appended_for_others(store: Store) -> set[str]:
    """The ids that services announced in records with requests of several writers.

    In a record that a writer puts by itself, all requests are its own.
    """
    found = set()
    for record in records(store):
        writers = {request.request_id.partition("-")[0] for request in record.requests or ()}
        if len(writers) > 1 and record.append_service is not None:
            found.add(record.append_service.service_id)
    return found


def records(store: Store) -> Iterator[SlotRecord]:
    paths = [info.path for info in store.object_store.list("__transaction_state/slot/")]
    for path, stored in zip(paths, store.object_store.get_many(paths), strict=True):
        slot = slot_of(path)
        if stored is not None and slot is not None:
            yield decode_line(first_line(stored.body), slot)
