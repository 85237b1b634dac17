"""Counts of one process's appends, for monitoring."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
    """How long this process waited for records of other processes (ms)."""

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
