"""Places in a partition, as clients name them."""

from __future__ import annotations

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the next offset to read, and a note of the application's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record went."""

    topic: str
    partition: int
    offset: int
    """-1 for a staged record, which has no offset before its commit, and for an old duplicate."""


class PartitionOffsets(NamedTuple):
    """The offsets that bound what a partition shows."""

    partition: int
    earliest: int
    """The first offset there is (inclusive)."""
    last_stable_offset: int
    """What read_committed shows ends here (exclusive)."""
    high_watermark: int
    """What read_uncommitted shows ends here (exclusive)."""
