"""The amount of data in partitions, as the pages of the store and of its topics show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eoslog.admin.topic_admin import describe_partition
from eoslog.state.partition_state import Partition


class Amount(NamedTuple):
    """The amount of data in partitions."""

    offsets: int
    """High watermarks minus log starts. Control rows and aborted rows count, too."""
    bytes: int
    files: int
    """The number of data files that are objects of their own."""


def amount_of(partition: Partition) -> Amount:
    """Return the amount of data in a partition. No file is read."""
    found = describe_partition(partition)
    return Amount(found.high_watermark - found.log_start_offset, found.bytes, found.files)


def sum_of(amounts: Sequence[Amount]) -> Amount:
    return Amount(
        sum(each.offsets for each in amounts), sum(each.bytes for each in amounts), sum(a.files for a in amounts)
    )
