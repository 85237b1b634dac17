"""The queue of one process's appends to a log: one thread, the leader, appends what all threads have queued.

This is a group commit. A proposal that is queued while a record is put goes into the next record. Each follower waits
for an event of its own. So it learns at once that its record was put, and does not wait for the record after it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from eoslog.log.proposals import Proposal
from eoslog.storage.environment import Environment


@dataclass(slots=True)
class AppendCounts:
    """Counts since this process opened the log. Only the leader of the append queue changes them."""

    records: int = 0
    """Records that this process put."""
    commits: int = 0
    """Appends of this process in these records."""
    conflicts: int = 0
    """Slots that were lost to another process."""
    for_others: int = 0
    """Requests of other processes in these records."""
    by_others: int = 0
    """Appends of this process in records of other processes."""
    waited_ms: int = 0
    """How long this process waited for its turn, or for records of other processes (ms)."""

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


_MOST_IN_A_RECORD = 1024


class AppendQueue:
    """Proposals of all threads, in the order of their arrival, and the proposal whose thread leads."""

    def __init__(self, environment: Environment, append_all: Callable[[list[Proposal]], None]) -> None:
        """
        Args:
            append_all: settles all the proposals that it is given. If it raises an error, some may not be settled.
        """
        self._environment = environment
        self._append_all = append_all
        self._mutex = threading.Lock()
        """Held for a moment only, never during a request."""
        self._waiting: deque[Proposal] = deque()
        self._present: set[Proposal] = set()
        """The proposals whose threads are still in ``settle``."""
        self._leader: Proposal | None = None

    def settle(self, proposal: Proposal) -> bool:
        """Queue a proposal and return when it is settled, by this thread or by another leader.

        Returns:
            False if its deadline passed before any thread took it into a record. Then no thread will.
        """
        try:
            with self._mutex:
                self._present.add(proposal)
                self._waiting.append(proposal)
                if self._leader is None:
                    self._leader = proposal
            while not proposal.done:
                if self._leader is proposal:
                    self._lead(proposal)
                elif not self._follow(proposal):
                    return False
            return True
        finally:
            self._leave(proposal)

    def _lead(self, own: Proposal) -> None:
        group: list[Proposal] = []
        try:
            with self._mutex:
                while self._waiting and len(group) < _MOST_IN_A_RECORD:
                    # In this order: an interrupt between the two lines leaves the proposal in both places, not in none.
                    group.append(self._waiting[0])
                    self._waiting.popleft()
            # The own proposal is missing from the queue if an interrupted leader had taken it.
            self._append_all(group or [own])
        finally:
            # An interrupt left them unsettled. The next leader settles them, or reports that their outcome is unknown.
            left = [proposal for proposal in group if not proposal.done]
            if left:
                with self._mutex:
                    # Leave out a proposal whose own thread was interrupted, too: that thread would never lead.
                    left = [each for each in left if each in self._present and each not in self._waiting]
                    self._waiting.extendleft(reversed(left))

    def _follow(self, proposal: Proposal) -> bool:
        """Wait until the proposal is settled or its thread leads. False if its deadline passed before that."""
        woken = self._environment.wait_for(proposal.woken, self._patience_s(proposal))
        with self._mutex:
            if woken or proposal.done or self._leader is proposal:
                return True
            if proposal in self._waiting:
                self._waiting.remove(proposal)
                return False
        # A leader has taken it into a record, and settles it when the outcome of the record is known.
        self._environment.wait_for(proposal.woken)
        return True

    def _patience_s(self, proposal: Proposal) -> float | None:
        if proposal.deadline_ms is None:
            return None
        return max(0, proposal.deadline_ms - self._environment.monotonic_ms()) / 1000

    def _leave(self, proposal: Proposal) -> None:
        """Drop a proposal whose thread leaves. If that thread was the leader, let the next waiting thread lead."""
        with self._mutex:
            self._present.discard(proposal)
            if not proposal.done and proposal in self._waiting:
                self._waiting.remove(proposal)
            if self._leader is proposal:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.woken.set()
