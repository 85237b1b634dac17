"""The connections of writers to append services in the simulated world: bytes that arrive late, in part, or never."""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from eoslog.log.append_client import AppendClient
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.simulation.world import Process

SILENT = "append service: it is silent"
NOBODY = "append service: nobody listens"
_LOOK_MS = 300
"""How often a process that waits for bytes looks whether the other one has died."""
CUT = 0.02
"""How often a connection is cut when bytes are sent. Only worlds with faults have cuts."""


class Listener(Protocol):
    """A service that listens."""

    process: Process

    def accept(self, connection: Connection) -> None: ...

    def wake(self) -> None: ...


class Connection:
    """What both ends of a connection share."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.to_service: deque[bytes] = deque()
        self.to_writer = bytearray()
        self.writer_waits_for = threading.Event()
        """Set when there are bytes for the writer, or the connection has ended."""
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self.writer_waits_for.set()

    @property
    def has_ended(self) -> bool:
        return self.is_closed or not self.listener.process.alive

    def answer(self, process: Process, body: bytes) -> None:
        """Send bytes of the service to the writer."""
        if process.happens("connection cut", _rate(process)):
            self.to_writer += body[: process.world.choices.stream("cuts").randrange(len(body) + 1)]
            self.close()
        else:
            self.to_writer += body
            self.writer_waits_for.set()


class SimulatedSocket:
    """The writer's end of a connection."""

    def __init__(self, process: Process, connection: Connection) -> None:
        self._process = process
        self._connection = connection
        self._patience_ms = 0.0

    def settimeout(self, patience_s: float) -> None:
        self._patience_ms = patience_s * 1000

    def sendall(self, body: bytes) -> None:
        self._process.stop("send", f"{len(body)} bytes")
        connection = self._connection
        if connection.has_ended:
            raise ConnectionResetError("the service has died")
        if self._process.happens("connection cut", _rate(self._process)):
            if self._process.world.choices.stream("cuts").random() < 0.5:
                connection.to_service.append(body)
                connection.listener.wake()
            connection.close()
            raise ConnectionResetError("the connection was cut")
        connection.to_service.append(body)
        connection.listener.wake()

    def recv(self, count: int) -> bytes:
        connection = self._connection
        left_ms = self._patience_ms
        while not connection.to_writer:
            if connection.has_ended:
                raise ConnectionResetError("the service has died")
            if left_ms <= 0:
                self._process.world.marks[SILENT] += 1
                raise TimeoutError
            self._process.wait_for(connection.writer_waits_for, min(left_ms, _LOOK_MS))
            left_ms -= _LOOK_MS
        found = bytes(connection.to_writer[:count])
        del connection.to_writer[:count]
        if not connection.to_writer and not connection.is_closed:
            connection.writer_waits_for.clear()
        return found

    def close(self) -> None:
        self._connection.close()


class SimulatedClient(AppendClient):
    """The client of a writer, without sockets of its host."""

    def __init__(self, process: Process, store: ObjectStore, environment: Environment) -> None:
        super().__init__(store, environment)
        self._process = process

    def _opened(self, host: str, port: int) -> socket.socket:
        self._process.stop("connect", host)
        listener = self._process.world.listeners.get(host)
        if listener is None or not listener.process.alive:
            self._process.world.marks[NOBODY] += 1
            raise ConnectionRefusedError(host)
        connection = Connection(listener)
        listener.accept(connection)
        # Not the whole of a socket, but all of it that a client uses.
        return cast(socket.socket, SimulatedSocket(self._process, connection))


def _rate(process: Process) -> float:
    return CUT if process.world.faults.death or process.world.faults.pause else 0.0
