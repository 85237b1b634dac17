"""The console's web server: its socket, its link, and its shutdown."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import uvicorn

import eoslog
from eoslog.ui.access import LOOPBACK_NAMES, Access
from eoslog.ui.application import Console
from eoslog.ui.console_store import ConsoleStore

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


def serve(
    store: eoslog.Store,
    *,
    host: str,
    port: int,
    allow_admin: bool,
    allowed_hosts: Sequence[str],
    ready: Callable[[str], object],
) -> None:
    """Serve the console of a store until Ctrl-C or SIGTERM.

    Args:
        port: 0 takes a free one.
        allowed_hosts: further names under which browsers may ask.
        ready: called with the link, which has the one-time token, when the console answers.

    Raises:
        OSError: the address is in use, or it is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        bound = listening.getsockname()[1]
        access = Access(store.environment)
        # A cookie belongs to a host, not to a port: two consoles on one machine have cookies of two names.
        console = Console(ConsoleStore(store, allow_admin=allow_admin), access, f"eoslog_console_{bound}")
        names = {*LOOPBACK_NAMES, host.lower(), *(each.lower() for each in allowed_hosts)}
        config = uvicorn.Config(
            console.application(names),
            lifespan="off",
            log_level="warning",
            # The address of the first request contains the token.
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}/?token={access.token}")
        # uvicorn raises the signal again after its shutdown. This handler ignores it, so the command ends normally.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            with suppress(KeyboardInterrupt):
                _Server(config, console).run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)
