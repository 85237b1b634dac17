"""Where the log's slots lie: which there are, which are missing, and what else lies among them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from eoslog.log.paths import SLOTS, slot_of
from eoslog.store.object_store import ObjectStore


class Run(NamedTuple):
    """Slots without a gap."""

    first: int
    last: int


def runs(store: ObjectStore) -> list[Run]:
    """The slots that there are, ascending. Slots that are put or deleted meanwhile may or may not be among them."""
    found: list[Run] = []
    for slot in _ascending(store):
        if found and slot == found[-1].last + 1:
            found[-1] = found[-1]._replace(last=slot)
        elif not found or slot > found[-1].last:
            found.append(Run(slot, slot))
    return found


def _ascending(store: ObjectStore) -> Iterator[int]:
    # Groups are numbered downwards, so the largest holds the oldest slots.
    for group in sorted(store.list_directories(SLOTS), reverse=True):
        listed = (slot_of(info.path) for info in store.list(f"{SLOTS}{group}/"))
        yield from sorted(slot for slot in listed if slot is not None)


class Layout(NamedTuple):
    """The runs by what they are, given that slots below ``floor`` may have been deleted."""

    strays: list[Run]
    """Put by sleepers into names that had been deleted."""
    missing: list[Run]
    kept: list[Run]


def layout(found: list[Run], floor: int) -> Layout:
    """Tell the log's slots from strays below it, and name the gaps.

    Args:
        floor: slots below it may have been deleted, in ascending order.
    """
    begin = next((index for index, run in enumerate(found) if run.last >= floor), len(found))
    kept = found[begin:]
    missing = []
    if kept and kept[0].first > floor:
        missing.append(Run(floor, kept[0].first - 1))
    missing += [Run(before.last + 1, after.first - 1) for before, after in itertools.pairwise(kept)]
    return Layout(found[:begin], missing, kept)
