"""The connection of a writer to the append service, if the log announces one.

The service is a hint, and each failure has the same consequence: this process closes the connection, appends by itself,
and connects again after a pause. The system accepts connections for a stopped service, too, but nothing answers the
greeting. So a process waits at most once for an answer of a stopped service, and then only for its greeting.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import ssl
from contextlib import suppress

from eoslog.errors import EosLogError
from eoslog.log.slots import AppendServiceAnnouncement
from eoslog.storage.append_channel import (
    GREETING,
    HEADER_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    WRITER,
    Channel,
    ChannelError,
    service_name,
)
from eoslog.storage.environment import Backoff, Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore

_logger = logging.getLogger(__name__)
APPEND_KEY_PATH = "__append_service/key"
"""The object with the store's append key: 64 random hexadecimal digits. Readers should have no access to it."""
APPEND_KEY_BYTES = 64
LARGEST_REQUEST_BYTES = 256 << 10
"""The largest message to a service (bytes)."""
LARGEST_ANSWER_BYTES = 128 << 10
"""The largest answer of a service (bytes)."""
_LONGEST_GREETING_MS = 1_000
_PATIENCE_MS = 3_000
"""The longest wait for an answer (ms). A service answers after one or two records."""
_PAUSE = Backoff(first_ms=1_000, longest_ms=4_000)
"""The pauses before another attempt to connect."""


class AppendClient:
    """The connection of one process. Only the leader of its append queue uses it."""

    def __init__(self, store: ObjectStore, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._socket: socket.socket | None = None
        self._channel: Channel | None = None
        self._service_id = ""
        """The service of the connection, or of the last attempt to connect."""
        self._failures = 0
        """The number of failures since the last answer."""
        self._not_before_ms = 0
        self._key: bytes | None = None

    def reach(self, announced: AppendServiceAnnouncement) -> bool:
        """Return True if this process is connected to a service. Connect to it, unless that failed a short time ago."""
        if not announced.is_current(self._store.clock.now_ms()):
            return False
        if announced.service_id != self._service_id:
            self.close()
            self._service_id, self._failures = announced.service_id, 0
        elif self._socket is not None:
            return True
        elif self._failures and self._environment.monotonic_ms() < self._not_before_ms:
            return False
        try:
            self._connect(announced)
        except (OSError, ValueError, ObjectNotFound, ChannelError, EosLogError) as error:
            # Another service may have made another key, after somebody deleted this key.
            self._key = None
            self._fail(f"the append service at {announced.address} cannot be reached: {error}")
            return False
        return True

    def _connect(self, announced: AppendServiceAnnouncement) -> None:
        host, _, port = announced.address.rpartition(":")
        key = self._append_key()
        end_ms = self._environment.monotonic_ms() + _LONGEST_GREETING_MS
        connected = self._opened(host.strip("[]"), int(port))
        self._socket = connected
        if announced.certificate_sha256 is not None:
            self._socket = connected = _secured(connected, announced.certificate_sha256)
        name = service_name(announced.service_id, self._store.location)
        nonce = self._environment.new_id().encode()
        connected.sendall(GREETING + nonce)
        service_nonce = self._read(NONCE_BYTES, end_ms)
        channel = Channel(key, name, nonce, service_nonce, own=WRITER)
        channel.check_proof(self._read(PROOF_BYTES, end_ms))
        connected.sendall(channel.proof)
        self._channel = channel

    def _opened(self, host: str, port: int) -> socket.socket:
        """Return a connection to an address. The simulation replaces this method."""
        connected = socket.create_connection((host, port), _LONGEST_GREETING_MS / 1000)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _append_key(self) -> bytes:
        if self._key is None:
            found = self._store.get(APPEND_KEY_PATH).body
            if len(found) != APPEND_KEY_BYTES:
                raise ChannelError(f"{APPEND_KEY_PATH} has {len(found)} bytes, not {APPEND_KEY_BYTES}")
            self._key = found
        return self._key

    def ask(self, message: bytes, deadline_ms: int | None) -> bytes | None:
        """Send a message. Return the records that the service hands over; None if it does not answer in time.

        Args:
            deadline_ms: when the callers give up (elapsed time, ms).
        """
        channel, connected = self._channel, self._socket
        if channel is None or connected is None:
            return None
        now_ms = self._environment.monotonic_ms()
        end_ms = now_ms + _PATIENCE_MS
        if deadline_ms is not None:
            end_ms = min(end_ms, deadline_ms)
        try:
            connected.settimeout(max(1, end_ms - now_ms) / 1000)
            connected.sendall(channel.frame(message))
            header = self._read(HEADER_BYTES, end_ms)
            body = self._read(channel.length(header, LARGEST_ANSWER_BYTES), end_ms)
            answer = channel.check(header, body)
        except (OSError, ChannelError) as error:
            # A connection with half a message, or with an answer that comes late, cannot be used again.
            self._fail(f"the append service did not answer: {error}")
            return None
        self._failures = 0
        return answer

    def _read(self, count: int, end_ms: int) -> bytes:
        """Read exactly ``count`` bytes.

        Raises:
            TimeoutError: they do not come in time.
            OSError: the connection has ended.
        """
        assert self._socket is not None
        found = bytearray()
        while len(found) < count:
            left_ms = end_ms - self._environment.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError("the append service is silent")
            self._socket.settimeout(left_ms / 1000)
            part = self._socket.recv(count - len(found))
            if not part:
                raise ConnectionError("the append service has closed the connection")
            found += part
        return bytes(found)

    def _fail(self, why: str) -> None:
        """Close the connection, and open no other one for a while."""
        _logger.info("%s: %s. This process appends by itself", self._store.url, why)
        self.close()
        self._failures += 1
        self._not_before_ms = self._environment.monotonic_ms() + int(_PAUSE.pause_ms(self._failures))

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = self._channel = None


def _secured(connected: socket.socket, certificate_sha256: str) -> ssl.SSLSocket:
    """Begin TLS with the service that has this certificate. The log names the certificate, so no certificate
    authority is needed.

    Raises:
        ChannelError: the service has another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secured = context.wrap_socket(connected)
    certificate = secured.getpeercert(binary_form=True)
    if certificate is None or hashlib.sha256(certificate).hexdigest() != certificate_sha256:
        secured.close()
        raise ChannelError("the append service does not have the TLS certificate that it has announced")
    return secured
