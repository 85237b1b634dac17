"""Writers that share no host, and two append services, while each of them is killed or stopped and connections are cut.

The store is a directory that is as slow as an object store, or it is on an S3 server. It does not always answer. The
writers find the services in the log.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoslog.errors import EosLogError
from eoslog.log.append_client import AppendClient
from eoslog.log.slots import SlotRecord, decode_line, first_line, slot_of
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.contention.test_killed_writers import (
    FAULTS_S,
    WRITERS,
    FaultyObjectStore,
    Location,
    Processes,
    Rows,
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
    rows = Rows(store)
    chance = random.Random(1)
    services = Processes(serve, [(location,)] * SERVICES, chance)
    ends.append(services.end)
    writers = Processes(
        write_with_cuts, [(location, number, tmp_path / f"{number}.txt") for number in range(WRITERS)], chance
    )
    ends.append(writers.end)
    while len(rows.shown) < WRITERS or not services_that_appended_for_others(store):
        rows.poll()
    end_s = time.monotonic() + FAULTS_S
    while time.monotonic() < end_s:
        rows.poll()
        if chance.random() < 0.5:
            writers.disturb(longest_stop_s=2)
        if chance.random() < 0.3:
            # Some stops are longer than a writer waits for an answer.
            services.disturb(longest_stop_s=5)
    # A service that comes after the death of all others appends for the same writers.
    before = services_that_appended_for_others(store)
    services.replace()
    while services_that_appended_for_others(store) <= before:
        rows.poll()
    while ends:
        ends.pop()()

    rows.assert_none_was_lost_or_doubled(tmp_path)


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
