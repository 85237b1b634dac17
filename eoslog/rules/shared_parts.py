"""Which partitions share a part of a checkpoint.

A part has a fixed cost, so small topics share one. A part in which one partition changed is written again as a whole,
so a part has a bounded number of rows. The assignment depends on the state alone: partitions are divided by their ids,
and only a part that is too large is divided further. So a topic that comes, goes or grows moves its neighbors in one
part, and all other parts stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

from eoslog.rules.partition_state import Partition
from eoslog.rules.state import StoreState

ROWS_OF_A_PART = 8192
"""A part has at most so many rows (partitions, batches, segments and producers), unless one partition has more."""

PREFIX = "partitions/"
"""What the names of these parts begin with."""


def shared_parts(state: StoreState) -> Iterator[Sequence[Partition]]:
    """The partitions of each part, in the order of the store's topics. Topics above the limit have their own parts."""
    together: list[Partition] = []
    for topic in state.topics.values():
        partitions = [state.partitions[place] for place in topic.partition_ids()]
        if sum(map(_rows, partitions)) > ROWS_OF_A_PART:
            yield from _divided(partitions, lambda partition: partition.id.partition)
        else:
            together += partitions
    # Topic ids are random, so their bits divide evenly.
    yield from _divided(together, lambda partition: int(partition.id.topic_id, 16))


def name_of(partitions: Iterable[Partition]) -> str:
    """The name of their part, which says exactly which they are.

    Where name and changed slot are the same as in an earlier checkpoint, so is the content: a partition that went makes
    another name, and one that came has changed since.
    """
    names = ",".join(f"{partition.id.topic_id}-{partition.id.partition}" for partition in partitions)
    return f"{PREFIX}{sha256(names.encode()).hexdigest()[:32]}"


def _rows(partition: Partition) -> int:
    return (
        1
        + len(partition.sealed)
        + len(partition.active)
        + len(partition.aborted)
        + len(partition.producers)
        + len(partition.start_producers)
    )


def _divided(partitions: list[Partition], number: Callable[[Partition], int]) -> Iterator[Sequence[Partition]]:
    """Divide by one bit of the numbers after the other, the lowest first, until each part is small enough."""
    undivided = [(0, [(number(each), _rows(each), each) for each in partitions])] if partitions else []
    while undivided:
        bit, part = undivided.pop()
        if part[0][0] == part[-1][0] or sum(rows for _, rows, _ in part) <= ROWS_OF_A_PART:
            yield [partition for _, _, partition in part]
            continue
        halves = [[each for each in part if each[0] >> bit & 1 == half] for half in (1, 0)]
        undivided += [(bit + 1, half) for half in halves if half]
