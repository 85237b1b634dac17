"""What the processes were told about their work: the one side of every comparison that the checker makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.checker import Operation
from tests.simulation.world import Violation


class Outcome(Enum):
    COMMITTED = "committed"
    """Acknowledged: all of it must show, for ever, once."""
    ABORTED = "aborted"
    """Refused, or aborted before any commit was asked for: none of it may ever show."""
    UNKNOWN = "unknown"
    """Nobody was told: all of it or none of it."""


@dataclass(slots=True)
class Work:
    """Rows that belong together: they show all or not at all."""

    name: str
    rows: list[tuple[str, int, bytes]] = field(default_factory=list)
    """Topic, partition and value, in the order in which they were handed over."""
    alternatives: list[list[tuple[str, int, bytes]]] = field(default_factory=list)
    """Other rows that were handed over as the same work, by who did not know of these: one of all shows, or none."""
    keys: dict[bytes, bytes] = field(default_factory=dict)
    """The last value of each key."""
    outcome: Outcome = Outcome.UNKNOWN

    def versions(self) -> list[list[tuple[str, int, bytes]]]:
        return [self.rows, *self.alternatives]

    def row(self, topic: str, partition: int, key: bytes | None = None) -> bytes:
        value = f"{self.name}#{len(self.rows)}".encode()
        self.rows.append((topic, partition, value))
        if key is not None:
            self.keys[key] = value
        return value


@dataclass(slots=True)
class Sent:
    """A row of a topic that is deleted and created again."""

    work: Work
    partition: int
    sent_slot: int
    """The newest slot when it was handed over."""
    ended_slot: int | None = None
    """The newest slot when it was acknowledged."""
    shown_in: str | None = None
    """The id that its topic had when anybody was shown it."""


@dataclass
class Ledger:
    """All work of a run, and every row that any reader was ever shown."""

    works: dict[str, Work] = field(default_factory=dict)
    seen: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    shown: dict[bytes, tuple[str, int, int]] = field(default_factory=dict)
    """Topic, partition and offset of each row that a reader was shown as committed, by its value."""
    passed_over: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of what a committed read left out before its last row: it was decided by then."""
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    sent: dict[bytes, Sent] = field(default_factory=dict)
    """Rows of the topic that is deleted and created again, by their values."""
    published: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The slot of each version of a table that a publisher was told, by format, topic and version."""
    history: list[Operation] = field(default_factory=list)
    """What the clients of the list-append workload did and were told."""
    moments: int = 0

    def tick(self) -> int:
        """A moment of the history, after all before."""
        self.moments += 1
        return self.moments

    notes: dict[str, Outcome] = field(default_factory=dict)
    """Entries that have no identity but their slot."""
    told_slots: dict[str, int] = field(default_factory=dict)
    """Of those that were acknowledged, if they were told their slots."""
    longest_read: list[tuple[str, int]] = field(default_factory=list)
    """Of a log alone: the names that were read, with their slots."""

    def begin(self, service: str) -> Work:
        work = Work(f"{service}:{len(self.works)}")
        self.works[work.name] = work
        return work

    @property
    def written(self) -> set[str]:
        """The topics to which anybody wrote."""
        return {topic for work in self.works.values() for topic, _, _ in work.rows}

    def work_of(self, value: bytes | None) -> Work:
        """Whose row has this value; raises ``Violation`` if nobody wrote one."""
        work = self.works.get((value or b"").partition(b"#")[0].decode(errors="replace"))
        if work is None:
            raise Violation(f"a row with the value {value!r} shows, which nobody wrote")
        return work

    def observe(
        self,
        topic: str,
        partition: int,
        rows: Iterator[tuple[int, bytes | None]],
        *,
        committed: bool,
        all_decided: bool = False,
    ) -> None:
        """Rows that a reader was shown.

        Args:
            committed: each of them is committed.
            all_decided: no row that it left out before its last one may be committed later, nor does any row go there.

        Raises:
            Violation: they contradict what was shown or told before.
        """
        last = -1
        for offset, value in rows:
            if offset <= last:
                raise Violation(f"{topic}-{partition}: offset {offset} was read after {last}")
            if all_decided:
                self.passed_over.update((topic, partition, between) for between in range(last + 1, offset))
            last = offset
            known = self.seen.setdefault((topic, partition, offset), value)
            if known != value:
                raise Violation(f"{topic}-{partition}@{offset}: was {known!r}, is {value!r}")
            if committed:
                self.shown.setdefault(value, (topic, partition, offset))
                if self.work_of(value).outcome is Outcome.ABORTED:
                    raise Violation(
                        f"{topic}-{partition}@{offset}: {value!r} shows, though its transaction was aborted"
                    )

    def observe_ends(
        self, topic: str, partition: int, last_stable_offset: int, high_watermark: int, before: tuple[int, int]
    ) -> None:
        """Ends of a partition, which never fall behind those that anybody knew ``before`` the question was asked."""
        if last_stable_offset < before[0] or high_watermark < before[1] or last_stable_offset > high_watermark:
            raise Violation(f"{topic}-{partition}: ends went from {before} to {(last_stable_offset, high_watermark)}")
        known = self.ends.get((topic, partition), (0, 0))
        self.ends[topic, partition] = max(known[0], last_stable_offset), max(known[1], high_watermark)
