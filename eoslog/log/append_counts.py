"""How the appends of one process went, as numbers to watch."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class AppendCounts:
    """Counts since the log was opened. Only the thread that leads changes them."""

    records: int = 0
    """Records that this process put."""
    commits: int = 0
    """Appends of this process that these records have."""
    conflicts: int = 0
    """Slots that were lost to another process."""
    for_others: int = 0
    """Requests of other processes that these records have."""
    by_others: int = 0
    """Appends of this process that records of other processes have."""
    waited_ms: int = 0
    """For how long appends that other processes made were waited for (ms)."""

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
