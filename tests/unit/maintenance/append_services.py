"""Append services that tests start, and writers that use them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from eoslog.log.announcements import OwnService
from eoslog.log.slots import AppendServiceAnnouncement, SlotRecord, records_backwards
from eoslog.maintenance import append_service
from eoslog.maintenance.append_service import AppendService
from eoslog.producer.producer import Producer
from eoslog.store import Store

ANYWHERE = "127.0.0.1:0"
EVERYWHERE = pytest.mark.parametrize("connected", ["local", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)


@contextlib.contextmanager
def running(connected: Callable[[], Store], **options: str) -> Iterator[AppendService]:
    store = connected()
    with AppendService(store, ANYWHERE, **options) as found:
        await_announcement(store)
        yield found


def await_announcement(store: Store) -> None:
    """Wait until the log announces a service."""
    while announced(store) is None:
        threading.Event().wait(0.005)


def announced(store: Store) -> AppendServiceAnnouncement | None:
    return store.log.read(lambda state, slot: store.log.replica.append_service)


def writer(store: Store, transactional_id: str = "tx") -> Producer:
    producer = store.producer(transactional_id, staged=True)
    producer.init_transactions()
    return producer


def commit(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", value, partition=0)
    producer.commit_transaction()


def values(store: Store) -> list[bytes]:
    return [value.as_py() for value in store.scan("t").to_table().column("value")]


def records(store: Store) -> list[SlotRecord]:
    """All records, the oldest first."""
    newest = store.log.read(lambda state, slot: slot)
    return list(records_backwards(store.object_store, newest))[::-1]


def announce(store: Store, address: str, lease_ms: int = 600_000, certificate: str | None = None) -> None:
    """Let the log announce a service that this process is not."""
    store.log.announce(OwnService("a" * 32, address, certificate, lease_ms))
    store.log.appender.announcements.own_service = None


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket that accepts connections into its backlog, and nobody answers them."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def append_key(store: Store) -> bytes:
    return append_service._append_key(store)


def greeted(service: AppendService, first: bytes) -> socket.socket:
    host, _, port = service.address.rpartition(":")
    found = socket.create_connection((host, int(port)), 10)
    found.sendall(first)
    return found
