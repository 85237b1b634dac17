"""How the gateway's clients prove who they are, and how their connections are encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eoslog.errors import InvalidOption
from eoslog.gateway.tls import Tls


@dataclass(frozen=True)
class Security:
    """The security of a gateway's connections."""

    tls: Tls | None = None
    """None: connections are not encrypted."""

    @property
    def protocol(self) -> str:
        """The setting ``security.protocol`` of clients."""
        return "PLAINTEXT" if self.tls is None else "SSL"


OPEN = Security()
"""Every client of this machine may do everything."""


def security(*, tls_certificate: Path | None = None, tls_key: Path | None = None) -> Security:
    """Return the security that these options ask for.

    Raises:
        InvalidOption: an option is missing, or a file cannot be used.
    """
    if (tls_certificate is None) != (tls_key is None):
        raise InvalidOption("TLS needs both a certificate and its private key. Give --tls-certificate and --tls-key")
    return Security(None if tls_certificate is None or tls_key is None else Tls(tls_certificate, tls_key))
