"""Where the log's slots lie: which there are, which are missing, and what else lies among them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.paths import SLOTS, slot_of, slot_path
from eoslog.log.record import SlotRecord, decode_line, first_line
from eoslog.store.object_store import ObjectStore, StoredObject

_ADJOINING_LOOKED_AT = 16
"""Beyond so many slots from the oldest there is, a broken chain is damage: sleepers are few."""

_SLOTS_AT_ONCE = 16


class Run(NamedTuple):
    """Slots without a gap."""

    first: int
    last: int


def runs(store: ObjectStore) -> list[Run]:
    """The slots that there are, ascending. Slots that are put or deleted meanwhile may or may not be among them."""
    found: list[Run] = []
    for slot in _ascending(store):
        if not found or slot > found[-1].last:
            _append(found, Run(slot, slot))
    return found


def with_unlisted(store: ObjectStore, found: list[Run]) -> list[Run]:
    """The runs, and the slots between them that are there all the same.

    A directory that is listed while slots are put may show one and not the one that was put before it.
    """
    whole: list[Run] = []
    for run in found:
        if whole:
            for slot in _there(store, range(whole[-1].last + 1, run.first)):
                _append(whole, Run(slot, slot))
        _append(whole, run)
    return whole


def _append(found: list[Run], run: Run) -> None:
    if found and run.first == found[-1].last + 1:
        found[-1] = Run(found[-1].first, run.last)
    else:
        found.append(run)


def _there(store: ObjectStore, gap: range) -> Iterator[int]:
    """Slots of a gap that can be read, from its beginning on, as long as there are any: a gap may be of any width."""
    for begin in range(0, len(gap), _SLOTS_AT_ONCE):
        wanted = gap[begin : begin + _SLOTS_AT_ONCE]
        stored = store.get_many([slot_path(each) for each in wanted])
        there = [slot for slot, each in zip(wanted, stored, strict=True) if each is not None]
        if not there:
            return
        yield from there


def _ascending(store: ObjectStore) -> Iterator[int]:
    # Groups are numbered downwards, so the largest holds the oldest slots.
    for group in sorted(store.list_directories(SLOTS), reverse=True):
        listed = (slot_of(info.path) for info in store.list(f"{SLOTS}{group}/"))
        yield from sorted(slot for slot in listed if slot is not None)


class Layout(NamedTuple):
    """The runs by what they are, given that slots below ``floor`` may have been deleted."""

    strays: list[Run]
    """Put by sleepers into names that had been deleted."""
    lost: list[Run]
    """Gaps below ``floor`` that no deletion made."""
    missing: list[Run]
    kept: list[Run]


def layout(found: list[Run], floor: int, is_of_log: Callable[[Run], bool]) -> Layout:
    """Tell the log's slots from strays below it, and name the gaps.

    Args:
        floor: slots below it may have been deleted, in ascending order.
        is_of_log: whether a run below ``floor`` is known to be the log's. Then none above it was deleted.
    """
    needed = next((index for index, run in enumerate(found) if run.last >= floor), len(found))
    begin = needed
    if needed < len(found):
        begin = next((index for index, run in enumerate(found[:needed]) if is_of_log(run)), needed)
    kept = found[begin:]
    gaps = [Run(before.last + 1, after.first - 1) for before, after in itertools.pairwise(kept)]
    if kept and kept[0].first > floor:
        gaps.insert(0, Run(floor, kept[0].first - 1))
    lost = [gap for gap in gaps if gap.last < floor]
    return Layout(found[:begin], lost, gaps[len(lost) :], kept)


def without_adjoining_strays(slots: Layout, floor: int, store: ObjectStore) -> Layout:
    """Tell also those strays that lie directly below the oldest slot of the log: it does not continue them.

    Slots go in ascending order, so above slot 0, where it is still there, no name has been taken again.
    """
    if not slots.kept or slots.kept[0].first == 0:
        return slots
    first, last = slots.kept[0]
    looked_at = range(first, min(first + _ADJOINING_LOOKED_AT, floor, last) + 1)
    bodies = store.get_many([slot_path(slot) for slot in looked_at])
    records = [_record(slot, stored) for slot, stored in zip(looked_at, bodies, strict=True)]
    broken = [
        below.slot
        for below, above in itertools.pairwise(records)
        if below is not None and above is not None and above.prev != below.token
    ]
    if not broken:
        return slots
    strays = Run(first, broken[-1])
    return slots._replace(strays=[*slots.strays, strays], kept=[Run(strays.last + 1, last), *slots.kept[1:]])


def _record(slot: int, stored: StoredObject | None) -> SlotRecord | None:
    """A slot's record; None if it is not there or cannot be read, which is told when all are."""
    try:
        return None if stored is None else decode_line(first_line(stored.body), slot)
    except (CorruptRecord, UnsupportedFormat):
        return None
