"""A wrong or dead append service costs a writer time, and never a row."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoslog.log import append_client
from eoslog.log.append_client import APPEND_KEY_PATH, LARGEST_REQUEST_BYTES, AppendClient
from eoslog.log.log import Log
from eoslog.log.messages import Message, PendingRequest
from eoslog.log.slots import AppendServiceAnnouncement
from eoslog.maintenance.append_service import AppendService, _Waiting
from eoslog.session.session import Session
from eoslog.storage.append_channel import (
    GREETING,
    HEADER_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    SERVICE,
    Channel,
    ChannelError,
    service_name,
)
from eoslog.storage.environment import Backoff, Environment, host_time_ms
from eoslog.storage.memory_store import MemoryStore
from tests.unit.log.ledger import Ledger
from tests.unit.log.world import HOUR_MS, World, environment, names, script

SERVICE_ID = "ab" * 16
KEY = b"k" * 64
NAME = service_name(SERVICE_ID, MemoryStore(Environment()).location)


class Connection:
    """The service's side of a connection, after the greeting."""

    def __init__(self, connected: socket.socket, channel: Channel) -> None:
        self.socket = connected
        self.channel = channel

    def message(self) -> bytes:
        header = read(self.socket, HEADER_BYTES)
        return self.channel.check(header, read(self.socket, self.channel.length(header, LARGEST_REQUEST_BYTES)))

    def answer(self, body: bytes) -> None:
        self.socket.sendall(self.channel.frame(body))


def read(connected: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connected.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


@contextmanager
def serving(serve: Callable[[Connection], None], *, key: bytes = KEY) -> Iterator[AppendServiceAnnouncement]:
    """Within it, a service greets each writer, and then calls ``serve``."""
    listening = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            with connected, suppress(OSError, EOFError, ChannelError):
                nonce = read(connected, len(GREETING) + NONCE_BYTES)[len(GREETING) :]
                channel = Channel(key, NAME, nonce, b"s" * NONCE_BYTES, own=SERVICE)
                connected.sendall(b"s" * NONCE_BYTES + channel.proof)
                channel.check_proof(read(connected, PROOF_BYTES))
                serve(Connection(connected, channel))

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    try:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        yield AppendServiceAnnouncement(service_id=SERVICE_ID, address=address, expires_ms=host_time_ms() + 600_000)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.fixture
def client(memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppendClient]:
    monkeypatch.setattr(append_client, "_PATIENCE_MS", 200)
    memory_store.put(APPEND_KEY_PATH, KEY)
    made = AppendClient(memory_store, Environment())
    yield made
    made.close()


def test_a_silent_service_is_reached_again_after_a_pause(client: AppendClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_client, "_PAUSE", Backoff(first_ms=300, longest_ms=300))
    is_awake = threading.Event()

    def serve(connection: Connection) -> None:
        connection.message()
        is_awake.wait()
        connection.answer(b"records")

    with serving(serve) as announced:
        assert client.reach(announced)
        assert client.ask(b"first", None) is None
        assert not client.reach(announced)
        is_awake.set()

        assert await_true(lambda: client.reach(announced))
        monkeypatch.setattr(append_client, "_PATIENCE_MS", 60_000)
        assert client.ask(b"second", None) == b"records"
        client.close()


def await_true(condition: Callable[[], bool]) -> bool:
    """Wait for what another thread brings about."""
    while not condition():
        Environment().sleep_ms(1)
    return True


def test_a_message_of_which_a_stopped_service_took_a_part_ends_the_connection(client: AppendClient) -> None:
    """The service would wait for the rest, and this process for an answer, for ever."""
    is_awake = threading.Event()
    received: list[bytes] = []

    def serve(connection: Connection) -> None:
        is_awake.wait()
        received.append(connection.message())
        connection.answer(b"records")

    with serving(serve) as announced:
        assert client.reach(announced)
        assert client.ask(b"x" * (32 << 20), None) is None
        is_awake.set()

        assert await_true(lambda: client.reach(announced))
        assert client.reach(announced)
        assert client.ask(b"second", None) == b"records"
        client.close()

    assert received == [b"second"]


def test_a_message_is_sent_no_longer_than_until_the_deadline(
    client: AppendClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_client, "_PATIENCE_MS", 600_000)
    is_over = threading.Event()

    with serving(lambda connection: is_over.wait()) as announced:
        assert client.reach(announced)
        deadline_ms = Environment().monotonic_ms() + 50

        assert client.ask(b"x" * (32 << 20), deadline_ms) is None
        is_over.set()


def test_a_new_key_is_read_after_the_proof_of_the_old_one_has_failed(
    client: AppendClient, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_client, "_PAUSE", Backoff(first_ms=1, longest_ms=1))
    with serving(lambda connection: connection.answer(b""), key=b"n" * 64) as announced:
        assert not client.reach(announced)
        memory_store.put(APPEND_KEY_PATH, b"n" * 64)

        assert await_true(lambda: client.reach(announced))
        client.close()


class ServiceOfALog(AppendService):
    """A service without sockets."""

    def __init__(self, log: Log[Ledger]) -> None:
        store = SimpleNamespace(log=log, environment=log.environment, object_store=log.store, url=log.store.url)
        super().__init__(cast(Session, store), "localhost:1")

    def _tell(self, waiting: _Waiting, records: bytes) -> None:
        pass


def asking(*requests: PendingRequest) -> list[_Waiting]:
    return [_Waiting(Message(name="ab" * 16, slot=0, requests=requests), 1, cast(Any, None))]


def test_a_service_that_was_stopped_waits_no_longer_for_a_writer_that_it_lets_in() -> None:
    world = World()
    log = world.created()
    service = ServiceOfALog(log)
    script(log).before.append(lambda: environment(log).sleep_ms(HOUR_MS // 60))
    service._serve_writers(asking(PendingRequest(entries=({"type": "add", "name": "x"},))))
    began_ms = world.now_ms

    service._serve_writers(asking())

    assert names(log) == ["created", "x"]
    assert world.now_ms - began_ms < 10_000
