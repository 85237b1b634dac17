"""Positions in a partition, as clients give and receive them."""

from __future__ import annotations

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the next offset to read, and metadata of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """The partition and offset of a sent record."""

    topic: str
    partition: int
    offset: int
    """-1 for a staged record, which has no offset before its commit, and for an old duplicate."""


class PartitionOffsets(NamedTuple):
    """The offsets that limit the visible rows of a partition."""

    partition: int
    earliest: int
    """The first offset (inclusive)."""
    last_stable_offset: int
    """The end of the rows that ``read_committed`` shows (exclusive)."""
    high_watermark: int
    """The end of the rows that ``read_uncommitted`` shows (exclusive)."""
