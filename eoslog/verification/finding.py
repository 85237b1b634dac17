"""What a verification found, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eoslog.rules.invariants import Broken
from eoslog.rules.names import PartitionId
from eoslog.rules.state import StoreState
from eoslog.verification.kinds import KINDS, Severity

READS_BEFORE_REPORT = 3
"""An object is damaged if so many reads of it say so: an answer may be cut short on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in a store that is not as it should be, or that somebody may want to know."""

    kind: str
    """A stable name; see ``verification.kinds.KINDS``."""
    problem: str
    """What is wrong."""
    path: str | None = None
    """The object."""
    slot: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """First and end (exclusive)."""

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def follows(self) -> str:
        """What it means for those who use the store."""
        return KINDS[self.kind].follows

    @property
    def remedy(self) -> str:
        """What somebody may do about it."""
        return KINDS[self.kind].remedy

    @property
    def repairable(self) -> bool:
        """Whether ``repair`` may put it right."""
        return KINDS[self.kind].repairable

    @property
    def log_in_doubt(self) -> bool:
        """Whether it says that the log or its state cannot be trusted; then ``repair`` does nothing."""
        return KINDS[self.kind].log_in_doubt

    @property
    def place(self) -> str:
        """Where, in words."""
        words = [] if self.slot is None else [f"slot {self.slot}"]
        if self.topic is not None:
            words.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.offsets is not None:
            words.append(f"offsets {self.offsets[0]} to {self.offsets[1] - 1}")
        if self.path is not None:
            words.append(self.path)
        return ", ".join(words) or "the store"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "severity": self.severity.value,
            "problem": self.problem,
            "path": self.path,
            "slot": self.slot,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": None if self.offsets is None else list(self.offsets),
            "follows": self.follows,
            "remedy": self.remedy,
            "repairable": self.repairable,
        }


def of_broken(broken: Broken, state: StoreState, place: PartitionId | None = None, path: str | None = None) -> Finding:
    """A broken invariant as a finding."""
    where = broken.partition or place
    topic = None if where is None else state.topics.get(where.topic_id)
    return Finding(
        kind=broken.kind,
        problem=broken.problem,
        path=broken.path or path,
        topic=None if where is None else topic.topic if topic is not None else where.topic_id,
        partition=None if where is None else where.partition,
        offsets=broken.offsets,
    )
