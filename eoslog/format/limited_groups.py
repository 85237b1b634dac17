"""Division of items into groups of limited weight: files into records, objects and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Limit(NamedTuple):
    """The largest total weight of a group."""

    weight: Callable[..., int]
    """Returns the weight of an item."""
    most: int


def limited_groups(items: Iterable[T], *limits: Limit) -> Iterator[list[T]]:
    """Divide items into groups, in their order. A group exceeds a limit only if it has a single item."""
    group: list[T] = []
    filled = [0] * len(limits)
    for item in items:
        weights = [limit.weight(item) for limit in limits]
        filled = [sum(each) for each in zip(filled, weights, strict=True)]
        if group and any(total > limit.most for total, limit in zip(filled, limits, strict=True)):
            yield group
            group, filled = [], weights
        group.append(item)
    if group:
        yield group
