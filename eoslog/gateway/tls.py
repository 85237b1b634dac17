"""TLS of the gateway's connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from eoslog.errors import InvalidOption
from eoslog.gateway.reloaded import Reloaded

_logger = logging.getLogger(__name__)
_RECORD = b"\x16\x03"
"""The first bytes of a client that speaks TLS: a record of its handshake."""


class Tls:
    """The gateway's certificate. A renewed one is used for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """
        Args:
            certificate: the file of the certificate and the certificates of its issuers (PEM).
            key: the file of its private key (PEM), without a password.

        Raises:
            InvalidOption: they are no certificate and its key.
        """
        self._context = Reloaded((certificate, key), lambda: _context(certificate, key))

    async def begin(self, writer: asyncio.StreamWriter, timeout_ms: int) -> bool:
        """Begin TLS on a new connection, before a byte of it is read. Return False if the client does not go along."""
        try:
            await writer.start_tls(self._context.value(), ssl_handshake_timeout=timeout_ms / 1000)
        except OSError as error:
            _logger.warning("%s is disconnected: %s", writer.get_extra_info("peername"), _reason(error))
            return False
        return True


def speaks_tls(begin: bytes) -> bool:
    """Return True if these first bytes of a connection begin a handshake of TLS."""
    return begin.startswith(_RECORD)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"its handshake of TLS failed ({error.reason}). Clients need security.protocol=SSL or SASL_SSL, and a CA"
    if isinstance(error, ConnectionAbortedError):
        return "it did not end the handshake of TLS in time"
    return f"its handshake of TLS failed ({type(error).__name__})"


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could ask for one handshake after the other.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Every client of TLS 1.3 knows this group. OpenSSL's defaults have ffdhe8192, for which a stranger that computes
    # nothing would keep the event loop busy for more than 100 ms.
    context.set_ecdh_curve("prime256v1")
    try:
        # Without a password OpenSSL would ask for one at the terminal, and wait.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise InvalidOption(
            f"{certificate} and {key} are not a TLS certificate and its key without a password (PEM): {reason}"
        ) from None
    return context
