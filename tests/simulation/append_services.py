"""Simulated append services: each takes the real steps, over the real channel, in a process that may die or pause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from eoslog.errors import EosLogError, InvalidOption, InvalidRequest
from eoslog.log.append_client import LARGEST_REQUEST_BYTES
from eoslog.log.messages import decode_message
from eoslog.log.slots import AppendServiceAnnouncement
from eoslog.maintenance.append_service import AppendService, _append_key, _Waiting
from eoslog.session.session import Session
from eoslog.storage.append_channel import GREETING, HEADER_BYTES, SERVICE, Channel, ChannelError
from tests.simulation.append_network import Connection, SimulatedClient
from tests.simulation.log_services import open_log
from tests.simulation.service import Service, open_store
from tests.simulation.world import Process

_CHECK_MS = 10_000
TAKEN_OVER = "append service: the announced one does not answer another one"


class SimulatedAppendService(AppendService):
    """The append service of one simulated process. A thread stands for its network, another one appends."""

    def __init__(self, process: Process, store: Session, *, must_end: Callable[[], bool]) -> None:
        super().__init__(store, f"{process.name}:1")
        self.process = process
        self._must_end = must_end
        self._has_bytes = threading.Event()
        self._has_messages = threading.Event()
        self._channels: list[tuple[Connection, list[Channel]]] = []
        self.address = f"{process.name}-{self._service_id[:8]}:1"

    def run(self) -> None:
        self._key = _append_key(self._store)
        listeners, host = self.process.world.listeners, self.address.partition(":")[0]
        listeners[host] = self
        self.process.start_thread(self._serve_connections)
        check_ms = 0
        while not self._must_end():
            now_ms = self._store.environment.monotonic_ms()
            if now_ms >= check_ms:
                self._try_to("be announced", self._check_announcement)
                check_ms = now_ms + _CHECK_MS
            self._store.environment.wait_for(self._has_messages, max(1, check_ms - now_ms) / 1000)
            self._has_messages.clear()
            while taken := self._take_next():
                self._serve_writers(taken)
        self._try_to("withdraw", self._withdraw)
        del listeners[host]
        for connection, _ in self._channels:
            connection.close()

    def accept(self, connection: Connection) -> None:
        self._channels.append((connection, []))

    def wake(self) -> None:
        self._has_bytes.set()

    def _serve_connections(self) -> None:
        while not self._must_end():
            self._store.environment.wait_for(self._has_bytes)
            self._has_bytes.clear()
            for connection, channels in list(self._channels):
                try:
                    while connection.to_service:
                        self._read(connection, channels, connection.to_service.popleft())
                except (ChannelError, InvalidRequest):
                    connection.close()
            self._channels = [each for each in self._channels if not each[0].is_closed or each[0].to_service]

    def _read(self, connection: Connection, channels: list[Channel], body: bytes) -> None:
        """Read what a writer has sent in one piece."""
        if not channels:
            assert body.startswith(GREETING)
            nonce = self._store.environment.new_id().encode()
            writer_nonce = body[len(GREETING) :]
            channels.append(Channel(self._key, self._name, writer_nonce, nonce, own=SERVICE))
            connection.answer(self.process, nonce + channels[0].proof)
        elif len(channels) == 1:
            channels[0].check_proof(body)
            channels.append(channels[0])
        else:
            header, rest = body[:HEADER_BYTES], body[HEADER_BYTES:]
            assert channels[0].length(header, LARGEST_REQUEST_BYTES) == len(rest)
            message = decode_message(channels[0].check(header, rest))
            self._waiting.append(_Waiting(message, len(rest), cast(Any, (connection, channels[0]))))
            self._has_messages.set()

    def _try_to(self, what: str, step: Callable[[], object]) -> bool:
        """As the real service, but an error that no fault explains ends the history."""
        try:
            step()
        except EosLogError:
            return False
        return True

    def _tell(self, waiting: _Waiting, records: bytes) -> None:
        connection, channel = cast(Any, waiting.answer)
        self.process.world.marks["append service: outcome known" if records else "append service: outcome unknown"] += 1
        connection.answer(self.process, channel.frame(records))

    def _answers(self, other: AppendServiceAnnouncement) -> bool:
        client = SimulatedClient(self.process, self._store.object_store, self._store.environment)
        try:
            answers = client.reach(other)
        finally:
            client.close()
        self.process.world.marks[TAKEN_OVER] += not answers
        return answers


class AppendServiceProcess(Service):
    """A coordinator that appends for others, until it dies or is stopped in order, and begins anew under another id."""

    def incarnation(self, process: Process) -> None:
        ends_ms = self.world.time_ms + self.random.choice((2_000, 60_000, 10**9))
        try:
            SimulatedAppendService(
                process, self._opened(process), must_end=lambda: self.world.stopping or self.world.time_ms > ends_ms
            ).run()
        except InvalidOption:
            # The store's append key was cut.
            if not process.cut_reads:
                raise

    def _opened(self, process: Process) -> Session:
        return open_store(process, has_threads=True)


class LogAppendServiceProcess(AppendServiceProcess):
    """The same for a log alone."""

    def _opened(self, process: Process) -> Session:
        log = open_log(process, has_threads=True)
        store = SimpleNamespace(log=log, environment=log.environment, object_store=log.store, url=log.store.url)
        return cast(Session, store)
