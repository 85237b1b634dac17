"""The console's web server: its socket, its link, and its shutdown."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import uvicorn

import eoslog
from eoslog.ui.access import LOOPBACK_NAMES, Access, LinkAccess
from eoslog.ui.application import Console
from eoslog.ui.console_store import ConsoleStore

_ALL_ADDRESSES = ("0.0.0.0", "::", "")
_GRACE_S = 2
"""The time that requests have to finish after Ctrl-C (s)."""


class _Server(uvicorn.Server):
    """A server that ends the console's streams when it stops. They never end on their own."""

    def __init__(self, config: uvicorn.Config, console: Console) -> None:
        super().__init__(config)
        self._console = console

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.is_stopped = True
        await super().shutdown(sockets)


class Address(NamedTuple):
    """The address of a console."""

    host: str
    """The address to listen on."""
    port: int
    """The port; 0 takes a free one."""
    names: Collection[str]
    """Further host names under which browsers may ask."""
    public_url: str | None
    """The URL by which browsers reach the console through a proxy; None without a proxy."""

    def url(self, port: int) -> str:
        """Return the URL for browsers, of a console that listens on this port."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = reachable_address(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def host_names(self) -> set[str]:
        """Return the host names under which the console answers."""
        found = {*LOOPBACK_NAMES, self.host, reachable_address(self.host), *self.names}
        if self.host in _ALL_ADDRESSES:
            found |= {socket.gethostname(), socket.getfqdn()}
        if self.public_url is not None:
            found.add(urlsplit(self.public_url).hostname or "")
        return {each.lower() for each in found if each}


def reachable_address(host: str) -> str:
    """Return the address at which other machines reach this one; ``host`` itself unless it means all addresses."""
    if host not in _ALL_ADDRESSES:
        return host
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # No packet is sent. The system only chooses the address from which it would reach others.
        probe.connect((elsewhere, 9))
        return str(probe.getsockname()[0])
    return "::1" if ":" in host else "127.0.0.1"


def serve(
    stores: Mapping[str, eoslog.Store],
    access: Access,
    address: Address,
    *,
    allow_admin: bool,
    ready: Callable[[str], object],
) -> None:
    """Serve the console of one store, or of several, until Ctrl-C or SIGTERM.

    Args:
        stores: the stores by their names. The name of a single store is empty.
        ready: called with the link for browsers when the console answers. If ``access`` has a one-time token, the link
            has it.

    Raises:
        OSError: the address is in use, or it is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.create_server((address.host, address.port), family=family) as listening:
        bound = listening.getsockname()[1]
        url = address.url(bound)
        console = Console(
            {name: ConsoleStore(store, allow_admin=allow_admin) for name, store in stores.items()},
            access,
            # A cookie belongs to a host, not to a port: two consoles on one machine have cookies of two names.
            f"eoslog_console_{bound}",
            is_secure=url.startswith("https:"),
        )
        config = uvicorn.Config(
            console.application(address.host_names(), address.public_url),
            lifespan="off",
            log_level="warning",
            # The address of the first request contains the token.
            access_log=False,
            server_header=False,
            # The address of the client must be that of the connection: ``ProxyAccess`` compares it.
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        ready(f"{url}/?token={access.token}" if isinstance(access, LinkAccess) else f"{url}/")
        # uvicorn raises the signal again after its shutdown. This handler ignores it, so the command ends normally.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            with suppress(KeyboardInterrupt):
                _Server(config, console).run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)
