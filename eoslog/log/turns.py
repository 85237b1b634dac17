"""Whose turn it is: callers queue what they propose, and one thread at a time appends what has been queued by all."""

from __future__ import annotations

import threading
from collections.abc import Callable

from eoslog.log.proposals import Proposal
from eoslog.store.environment import Environment

_MOST_PROPOSALS_A_RECORD = 64


class Turns:
    """The queue of one process's appends to a log, and the lock of the view that they are validated against."""

    def __init__(self, environment: Environment) -> None:
        self.lock = threading.RLock()
        self.waiting: list[Proposal] = []
        self._waiting_lock = threading.Lock()
        self._environment = environment

    def take(self, proposal: Proposal, append_all: Callable[[list[Proposal]], None]) -> bool:
        """Queue a proposal and wait until it is done: by another thread, or by this one with what waits beside it.

        Returns:
            False if its caller had no time left, and nobody had taken it aboard; then nobody will.
        """
        with self._waiting_lock:
            self.waiting.append(proposal)
        if not self._await(proposal):
            return False
        try:
            while not proposal.done:
                with self._waiting_lock:
                    group = self.waiting[:_MOST_PROPOSALS_A_RECORD]
                    del self.waiting[:_MOST_PROPOSALS_A_RECORD]
                # Alone, if a thread took it that was interrupted before it began.
                append_all(group or [proposal])
        finally:
            self.lock.release()
        return True

    def acquire(self, deadline_ms: int | None) -> bool:
        """Take the lock; False if that was not possible before the deadline (elapsed time; None: there is none)."""
        if deadline_ms is None:
            return self.lock.acquire()
        patience_s = max(0, deadline_ms - self._environment.monotonic_ms()) / 1000
        return self.lock.acquire(timeout=min(patience_s, threading.TIMEOUT_MAX))

    def _await(self, proposal: Proposal) -> bool:
        """Take the lock. Who has no time left, or is interrupted, and is aboard of no record, goes away."""
        try:
            if self.acquire(proposal.deadline_ms):
                return True
        except BaseException:
            self._withdraw(proposal)
            raise
        if self._withdraw(proposal):
            return False
        return self.lock.acquire()

    def _withdraw(self, proposal: Proposal) -> bool:
        """Whether nobody had taken it aboard yet; then nobody will."""
        with self._waiting_lock:
            still_waiting = [other for other in self.waiting if other is not proposal]
            withdrawn = len(still_waiting) < len(self.waiting)
            self.waiting = still_waiting
        return withdrawn
