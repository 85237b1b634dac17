"""The queue of one process's appends to a log: one thread, the leader, appends what all threads have queued.

This is a group commit. A proposal is a request in the queue. A proposal that arrives while a record is put goes into
the next record. Each follower waits for an event of its own. So it continues as soon as its own record is settled, and
does not wait for the next record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

from eoslog.log.checkpoint import CheckpointRoot
from eoslog.log.machine import Request, is_shareable
from eoslog.log.messages import Message
from eoslog.log.slots import CheckpointEntry
from eoslog.storage.environment import Environment

_MOST_IN_A_RECORD = 1024


class InFlight(NamedTuple):
    """A record whose put was sent and whose outcome is not known yet."""

    slot: int
    append_id: str


class SentRequest(NamedTuple):
    """A request that was sent to another process, which may append it now or later."""

    slot: int
    """The newest slot that this process knew when it sent the request."""
    request_id: str
    opening: int
    """How often the replica had been opened when the request was sent. Another opening may skip slots."""


@dataclass(slots=True)
class AppendAttempts:
    """The attempts at a request that may have landed, or may land later. Repeated appends share one object."""

    puts: dict[InFlight, Any] = field(default_factory=dict)
    """By record whose put was sent, the answer to the request. The answer holds if the record is in the log."""
    sent: list[SentRequest] = field(default_factory=list)


class OwnCheckpoint(NamedTuple):
    """A checkpoint that this process has written. Its entry makes it part of the log."""

    entry: CheckpointEntry
    root: CheckpointRoot


class OthersMessages(NamedTuple):
    """Messages with requests of other processes. A record takes the valid requests."""

    messages: Sequence[Message]


class SlotFence(NamedTuple):
    """A record that takes a slot, even without entries, so that no late put can take it."""


Content: TypeAlias = Request[Any] | OwnCheckpoint | OthersMessages | SlotFence
"""The part of a record that a proposal adds."""


@dataclass(slots=True, eq=False)
class Proposal:
    """A request in the queue, with its attempts and its outcome."""

    content: Content
    creates_log: bool = False
    """True if it writes slot 0."""
    deadline_ms: int | None = None
    """When its caller gives up (elapsed time, ms). None: only ``LogConfig.commit_timeout_ms`` applies."""
    attempts: AppendAttempts = field(default_factory=AppendAttempts)
    """The attempts so far. Each is noted before it is sent, so an interrupt after the put loses none."""
    in_flight: InFlight | None = None
    """The record with this request whose outcome is not known yet; None if there is none."""
    answer: Any = None
    error: BaseException | None = None
    done: bool = False
    sent: SentRequest | None = None
    has_landed: bool = False
    """True if another process has appended it. Then its answer is known."""
    first_entry: int = 0
    """The index of its first entry in the record."""
    entry_count: int = 0
    slot: int | None = None
    """The slot whose record has the request, once it is in the log."""
    span: Any = None
    """The span of its caller (``storage.tracing``); None if nothing is traced."""
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when the proposal is done, or when its thread becomes the leader."""

    def finish(self) -> None:
        """Settle the proposal with its answer or its error, and wake its thread."""
        self.done = True
        self.woken.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

    def tell(self, entries: Sequence[Mapping[str, Any]], slot: int) -> None:
        """Take the answer from a record that names this request. The fold calls this, in any thread."""
        if self.has_landed or self.done or not is_shareable(self.content):
            return
        try:
            self.answer = self.content.shared_answer(entries, slot)
        except (LookupError, TypeError, ValueError):
            # eoslog writes no such record: it names this request for other entries. Ignore it.
            return
        self.slot = slot
        self.has_landed = True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


def earliest_deadline(proposals: Iterable[Proposal]) -> int | None:
    """Return the earliest deadline of the proposals (elapsed time, ms); None if none has a deadline."""
    return min((each.deadline_ms for each in proposals if each.deadline_ms is not None), default=None)


@dataclass(slots=True)
class AppendCounts:
    """Counts since this process created its ``Log``. Only the leader of the append queue changes them."""

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
        """Return the counts by name."""
        return asdict(self)


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
                    # Append before popleft: after an interrupt between the lines, the proposal is in both, never lost.
                    group.append(self._waiting[0])
                    self._waiting.popleft()
            # The queue does not hold this thread's proposal if an earlier leader took it and was interrupted.
            self._append_all(group or [own])
        finally:
            # After an interrupt, some are not settled. The next leader settles them, or reports an unknown outcome.
            left = [proposal for proposal in group if not proposal.done]
            if left:
                with self._mutex:
                    # Queue only proposals whose threads still wait. A thread that has left could never lead.
                    left = [each for each in left if each in self._present and each not in self._waiting]
                    self._waiting.extendleft(reversed(left))

    def _follow(self, proposal: Proposal) -> bool:
        """Wait until the proposal is settled or its thread leads. Return False if its deadline passed first."""
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
