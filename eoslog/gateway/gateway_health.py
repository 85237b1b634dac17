"""The health of a gateway, as other threads of its process see it."""

from __future__ import annotations

import asyncio
import threading

from eoslog.errors import EosLogError
from eoslog.gateway.server import Gateway, Phase
from eoslog.session.session import Session

_LOOP_PATIENCE_S = 5.0
_STORE_PATIENCE_S = 0.5
"""How long a probe waits for the store (s). Probes come again, and Kubernetes ends each after a second."""
_LONGEST_SILENCE_MS = 15_000
"""A store counts as unreachable if its last answer is older than this (ms). One slow request means nothing."""


class GatewayHealth:
    """Says whether a gateway is alive, and whether clients should connect to it."""

    def __init__(self, store: Session, gateway: Gateway) -> None:
        """Begin with a store that has just answered. Call it in the gateway's event loop."""
        self._store = store
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._answered_ms = store.environment.monotonic_ms()
        self._error = ""
        self._read: threading.Event | None = None
        """Set when the newest read of the store has ended."""

    @property
    def dead(self) -> str:
        """The reason why the gateway should be started again; empty if its event loop answers."""
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return "the event loop has ended"
        is_alive = self._store.environment.wait_for(answered, _LOOP_PATIENCE_S)
        return "" if is_alive else f"the event loop has not answered for {_LOOP_PATIENCE_S:.0f} s"

    @property
    def unready(self) -> str:
        """The reason why clients should not connect; empty if the gateway serves them."""
        if self._gateway.phase is not Phase.SERVING:
            return str(self._gateway.phase.value)
        return self.silence

    @property
    def silence(self) -> str:
        """The reason why the store counts as unreachable; empty if it has answered lately. To ask sends a request."""
        environment = self._store.environment
        with self._lock:
            if self._read is None or self._read.is_set():
                self._read = threading.Event()
                environment.background(self._look)
            read = self._read
        environment.wait_for(read, _STORE_PATIENCE_S)
        silent_ms = environment.monotonic_ms() - self._answered_ms
        if silent_ms <= _LONGEST_SILENCE_MS:
            return ""
        reason = f": {self._error}" if self._error else ""
        return f"the store has not answered for {silent_ms // 1000} s{reason}"

    def last_results(self) -> str:
        """Return no further lines: the reasons above say all."""
        return ""

    def _look(self) -> None:
        assert self._read is not None
        try:
            self._store.read(lambda state, slot: None)
        except Exception as error:
            # Anybody who can connect reads this. Only the errors of eoslog are known to name no credential.
            self._error = str(error) if isinstance(error, EosLogError) else type(error).__name__
        else:
            self._answered_ms, self._error = self._store.environment.monotonic_ms(), ""
        finally:
            self._read.set()
