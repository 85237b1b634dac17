"""Addresses of the gateway: where it listens, and where clients reach it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from eoslog.errors import InvalidOption
from eoslog.wording import quoted

_LAST_PORT = 65_535
_HOST = re.compile(r"[0-9A-Za-z._-]{1,255}|(?=.*:)[0-9A-Za-z:.%_-]{1,255}")


@dataclass(frozen=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parsed_address(text: str) -> Address:
    """Return the address that ``HOST:PORT`` names. The host of an IPv6 address is in brackets.

    Raises:
        ValueError: it is no address.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    # The log has the address of a gateway that coordinates a group.
    if not _HOST.fullmatch(host) or not colon or not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        raise ValueError(text)
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Return whether only processes of the host itself reach an address of this host name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(address: Address, *, has_tls: bool, has_sasl: bool) -> None:
    """Refuse an address at which other machines could connect, unless their connections are secured.

    The gateway has the store's credentials. Without SASL everyone could use them, and without TLS everyone could read
    along.

    Raises:
        InvalidOption
    """
    missing = {
        "TLS (--tls-certificate and --tls-key)": has_tls,
        "SASL (--users, or --oauth-jwks-url, --oauth-issuer and --oauth-audience)": has_sasl,
    }
    if not is_loopback(address.host) and not all(missing.values()):
        lacks = " and ".join(option for option, is_there in missing.items() if not is_there)
        raise InvalidOption(
            f"the gateway cannot listen on {quoted(address.host)} without TLS and SASL: each machine that reaches it "
            f"could use its credentials for the store. Add {lacks}; or listen on 127.0.0.1, ::1 or localhost"
        )
