"""A partition's aborted transactions, and which of them a read must know (Kafka's ``TransactionIndex``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction of one partition that an ABORT marker ended."""

    producer_id: int
    first_offset: int
    """Offset of the transaction's first row."""
    last_offset: int
    """Offset of its ABORT marker (inclusive)."""
    last_stable_offset: int
    """The partition's last stable offset right after the marker (exclusive)."""


def collect_aborted(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """The aborted transactions that have rows in [fetch_offset, upper_bound_offset).

    Args:
        entries: one segment's aborted transactions, in the order of their markers.
        fetch_offset: the first offset of the read.
        upper_bound_offset: the end of the read (exclusive).

    Returns:
        The transactions, and whether these are all: if not, a transaction with rows in the range may have its marker
        in a later segment, and the lookup goes on there.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False
