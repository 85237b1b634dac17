"""The append service: one process that appends the commits of writers on all hosts, so that they do not race.

A writer finds the service's address in the log, connects to it, and sends its requests (see ``append_client``). The
service puts the requests of all writers that wait into one record. Its answer hands over the newest records of the log,
and a writer takes its request for done only if one of them has it. Put-if-absent decides which record a slot gets, and
the state machine decides which requests are valid.

Several services may run for one store. Only one announces itself. The others take over when it no longer answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from pydantic import ValidationError

from eoslog.errors import EosLogError, InvalidOption, InvalidRequest
from eoslog.log.announcements import OwnService
from eoslog.log.append_client import (
    APPEND_KEY_BYTES,
    APPEND_KEY_PATH,
    LARGEST_ANSWER_BYTES,
    LARGEST_REQUEST_BYTES,
    AppendClient,
)
from eoslog.log.messages import Message, decode_message
from eoslog.log.slots import AppendServiceAnnouncement
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
from eoslog.storage.conditional_put import put_once
from eoslog.storage.host_addresses import is_unspecified

_logger = logging.getLogger(__name__)
_LEASE_MS = 600_000
"""An announcement expires after this time (ms). A service renews it in the second half."""
_CHECK_S = 10.0
"""The interval between two checks of the announcement (s)."""
_LONGEST_RECORD_MS = 1_000
"""The upper limit of ``_last_ms`` (ms). One slow put must not make later waits long."""
_LONGEST_WAIT_MS = 200
"""The service leaves a slot to a writer for this time plus twice the time of the last record (ms)."""
_PAUSE_MS = 10
"""The pause between two checks for the writer's record (ms)."""
_MOST_BYTES_AT_ONCE = 48 << 10
"""The largest total size of the messages for one record (bytes), unless one message is larger. The replica keeps 64 KiB
of records on S3, so it can hand over such a record."""
_MOST_CONNECTIONS = 4_000
"""The largest number of connections. It is lower if this process may open fewer than 8,000 files."""
_LONGEST_GREETING_S = 5.0
_BACKLOG = 1_024


@dataclass(frozen=True)
class _Waiting:
    """A writer that waits for the answer to its message."""

    message: Message
    size: int
    """The size of the message (bytes)."""
    answer: asyncio.Future[bytes]


class AppendService:
    """The append service of one process. It runs from the beginning of its context to the end."""

    def __init__(
        self,
        store: Session,
        listen: str,
        *,
        advertise: str | None = None,
        certificate: str | None = None,
        private_key: str | None = None,
    ) -> None:
        """
        Args:
            listen: the address to listen on, as ``host:port``. Port 0: any free port.
            advertise: the address at which writers reach it, if it is another one.
            certificate, private_key: files of a TLS certificate and its key (PEM). None: no TLS.

        Raises:
            InvalidOption: an address or a certificate cannot be used.
        """
        self._store = store
        self._host, self._port = _address("listen", listen)
        self._advertised = None if advertise is None else _address("advertise", advertise)
        if self._advertised is None and is_unspecified(self._host):
            raise InvalidOption(f"writers cannot connect to {listen}. Name the address that they can reach: advertise")
        _check_announceable(advertise or listen, *(self._advertised or (self._host, self._port)))
        if self._advertised is not None and self._advertised[1] == 0:
            raise InvalidOption(
                f"writers cannot connect to port 0. Name the port that they can reach, not {advertise!r}"
            )
        self._tls, self._certificate_sha256 = _tls(certificate, private_key)
        self._service_id = store.environment.new_id()
        self._name = service_name(self._service_id, store.object_store.location)
        self._key = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._threads: list[threading.Thread] = []
        self._connections = 0
        self._waiting: deque[_Waiting] = deque()
        self._condition = threading.Condition()
        """Guards ``_waiting`` and ``_is_ending``."""
        self._is_ending = False
        self._last_ms = 0
        """How long the last append took (ms), at most ``_LONGEST_RECORD_MS``."""
        self.address = ""
        """The address that the log announces, while the service runs."""

    def __enter__(self) -> AppendService:
        """Begin to listen, and announce the service.

        Raises:
            InvalidOption: the address cannot be used.
            NotAStore, StoreUnavailable, StoreAccessDenied
        """
        self._store.describe()
        self._key = _append_key(self._store)
        listening = self._listen()
        host, port = self._advertised or (self._host, listening.getsockname()[1])
        self.address = _joined(host, port)
        started = threading.Event()
        self._threads = [
            threading.Thread(target=lambda: asyncio.run(self._serve(listening, started)), daemon=True),
            threading.Thread(target=self._append, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Answer the writers that wait, withdraw the announcement, and end."""
        with self._condition:
            self._is_ending = True
            self._condition.notify()
        self._threads[1].join()
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._threads[0].join()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidOption(
                f"{self._host}:{self._port} cannot be used: {error}. Choose another address to listen on"
            ) from None

    async def _serve(self, listening: socket.socket, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._connected,
            sock=listening,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _LONGEST_GREETING_S,
        )
        started.set()
        await self._stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._connections += 1
        try:
            if self._connections > min(_MOST_CONNECTIONS, os.sysconf("SC_OPEN_MAX") // 2):
                return
            connected: socket.socket = writer.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            channel = await asyncio.wait_for(self._greeted(reader, writer), _LONGEST_GREETING_S)
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                body = await reader.readexactly(channel.length(header, LARGEST_REQUEST_BYTES))
                answer = await self._answered(channel.check(header, body))
                writer.write(channel.frame(answer))
                await writer.drain()
        except asyncio.CancelledError:
            # The service ends.
            return
        except (TimeoutError, OSError, EOFError, ChannelError, InvalidRequest) as error:
            _logger.debug("%s: a connection to the append service has ended: %s", self._store.url, error)
        finally:
            self._connections -= 1
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Channel:
        """Return the channel to a writer that has proved that it has the store's append key."""
        if await reader.readexactly(len(GREETING)) != GREETING:
            raise ChannelError("the other side is not a writer")
        writer_nonce = await reader.readexactly(NONCE_BYTES)
        service_nonce = self._store.environment.new_id().encode()
        channel = Channel(self._key, self._name, writer_nonce, service_nonce, own=SERVICE)
        writer.write(service_nonce + channel.proof)
        await writer.drain()
        channel.check_proof(await reader.readexactly(PROOF_BYTES))
        return channel

    async def _answered(self, body: bytes) -> bytes:
        """Return the records that answer a message; empty if the outcome of its requests is not known."""
        waiting = _Waiting(decode_message(body), len(body), asyncio.get_running_loop().create_future())
        with self._condition:
            if self._is_ending:
                return b""
            self._waiting.append(waiting)
            self._condition.notify()
        return await waiting.answer

    def _append(self) -> None:
        """Append for the writers that wait, and check from time to time that the log announces this service."""
        check_s = 0.0
        now_s = self._store.environment.monotonic_ms() / 1000
        while True:
            if now_s >= check_s:
                self._try_to("announce itself", self._check_announcement)
                check_s = now_s + _CHECK_S
            with self._condition:
                if not self._waiting and not self._is_ending:
                    self._condition.wait(check_s - now_s)
                taken = self._take_next()
                if self._is_ending and not taken:
                    break
            if taken:
                self._serve_writers(taken)
            now_s = self._store.environment.monotonic_ms() / 1000
        # If the withdrawal fails, writers find that nobody listens.
        self._try_to("withdraw", self._withdraw)

    def _try_to(self, what: str, step: Callable[[], object]) -> bool:
        """Run a step. Return False if it fails. Then writers append by themselves, and the service goes on.

        Args:
            what: what the service could not do, for the log.
        """
        try:
            step()
        except EosLogError as error:
            _logger.warning("%s: the append service could not %s: %s", self._store.url, what, error)
        except Exception:
            _logger.exception("%s: the append service could not %s", self._store.url, what)
        else:
            return True
        return False

    def _take_next(self) -> list[_Waiting]:
        """Remove the messages for one record from the queue, or one message whose sender puts a record itself."""
        if self._waiting and not self._waiting[0].message.requests:
            return [self._waiting.popleft()]
        taken: list[_Waiting] = []
        size = 0
        while self._waiting and self._waiting[0].message.requests:
            size += self._waiting[0].size
            if taken and size > _MOST_BYTES_AT_ONCE:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _serve_writers(self, taken: list[_Waiting]) -> None:
        if taken[0].message.requests:
            self._append_for(taken)
        else:
            self._try_to("let a writer in", lambda: self._leave_slot(taken[0]))

    def _leave_slot(self, waiting: _Waiting) -> None:
        """Leave the next slot to a writer, and wait for its record."""
        log, environment = self._store.log, self._store.environment
        slot = log.replica.slot
        self._tell(waiting, log.replica.newest_records(LARGEST_ANSWER_BYTES, waiting.message.slot))
        end_ms = environment.monotonic_ms() + _LONGEST_WAIT_MS + 2 * self._last_ms
        # The put of the writer takes about as long as a put of this service.
        environment.sleep_ms(self._last_ms / 2)
        while log.read(lambda state, newest: newest) <= slot and environment.monotonic_ms() < end_ms:
            environment.sleep_ms(_PAUSE_MS)

    def _append_for(self, taken: list[_Waiting]) -> None:
        log = self._store.log
        began_ms = self._store.environment.monotonic_ms()
        messages = [each.message for each in taken]
        is_known = self._try_to("append", lambda: log.append_for_others(messages))
        self._last_ms = min(_LONGEST_RECORD_MS, self._store.environment.monotonic_ms() - began_ms)
        self._store.environment.reached("service.appended")
        for each in taken:
            # Without records the writer looks into the log itself.
            records = log.replica.newest_records(LARGEST_ANSWER_BYTES, each.message.slot) if is_known else b""
            self._tell(each, records)

    def _tell(self, waiting: _Waiting, records: bytes) -> None:
        def tell() -> None:
            if not waiting.answer.done():
                waiting.answer.set_result(records)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(tell)

    def _check_announcement(self) -> None:
        """Announce this service, unless another one is announced and answers."""
        log = self._store.log
        found = log.read(lambda state, slot: log.replica.append_service)
        now_ms = self._store.object_store.clock.now_ms()
        replaced = None
        if found is not None and found.service_id == self._service_id:
            if found.expires_ms > now_ms + _LEASE_MS // 2:
                return
        elif found is not None and found.is_current(now_ms):
            log.appender.announcements.own_service = self._own_service()
            if self._answers(found):
                return
            replaced = found.service_id
        log.announce(replace(self._own_service(), replaces=replaced))
        # From now on this service replaces no other one without a check.
        log.appender.announcements.own_service = self._own_service()
        _logger.info("%s: the append service at %s is announced", self._store.url, self.address)

    def _answers(self, other: AppendServiceAnnouncement) -> bool:
        """Return True if another service lives: a connection alone would stay open while its process is stopped."""
        client = AppendClient(self._store.object_store, self._store.environment)
        try:
            return client.reach(other)
        finally:
            client.close()

    def _own_service(self) -> OwnService:
        return OwnService(self._service_id, self.address, self._certificate_sha256, _LEASE_MS)

    def _withdraw(self) -> None:
        log = self._store.log
        try:
            found = log.read(lambda state, slot: log.replica.append_service)
            if found is not None and found.service_id == self._service_id:
                log.announce(replace(self._own_service(), is_withdrawn=True))
        finally:
            log.appender.announcements.own_service = None


def _append_key(store: Session) -> bytes:
    """Return the store's append key. The first service of a store makes it."""
    key = store.environment.new_id() + store.environment.new_id()
    found = put_once(store.object_store, store.environment, APPEND_KEY_PATH, key.encode())
    if len(found) != APPEND_KEY_BYTES:
        raise InvalidOption(
            f"{store.url}: {APPEND_KEY_PATH} has {len(found)} bytes, not {APPEND_KEY_BYTES}. Delete it and start again"
        )
    return found


def _address(option: str, given: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    Raises:
        InvalidOption: it is not an address.
    """
    host, separator, port = given.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
        raise InvalidOption(f"{option} is host:port, such as 10.0.0.5:9300 or [::1]:9300, not {given!r}")
    return host.strip("[]"), int(port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_announceable(given: str, host: str, port: int) -> None:
    """Raises: InvalidOption: no record can have this address."""
    try:
        AppendServiceAnnouncement(service_id="0" * 32, address=_joined(host, port), expires_ms=0)
    except ValidationError:
        raise InvalidOption(
            f"the address {given!r} cannot be announced. Give a host name of ASCII letters or an IP address without "
            "a zone: advertise"
        ) from None


def _tls(certificate: str | None, private_key: str | None) -> tuple[ssl.SSLContext | None, str | None]:
    """Return the context of TLS, and the SHA-256 of the certificate."""
    if certificate is None and private_key is None:
        return None, None
    if certificate is None or private_key is None:
        raise InvalidOption("TLS needs both a certificate and its private key. Give both files")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, private_key)
        with open(certificate, encoding="ascii") as file:
            first = file.read().partition(ssl.PEM_FOOTER)[0] + ssl.PEM_FOOTER
        der = ssl.PEM_cert_to_DER_cert(first[first.index(ssl.PEM_HEADER) :])
    except (OSError, ValueError) as error:
        raise InvalidOption(f"{certificate} and {private_key} are not a TLS certificate and its key: {error}") from None
    return context, hashlib.sha256(der).hexdigest()
