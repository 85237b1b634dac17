"""What a log itself must be, slot by slot: things that no client can see, and that the log tells whoever reads it.

Entries are as they stand in the log: JSON objects, of which only what is asked here is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.checker.verdict import Anomaly

Place = tuple[str, int]
"""Topic id and partition."""


_BEGINNING = ("batch", "add_to_transaction", "prepare")
"""The entries that begin a transaction, if none is open."""


class Slot(NamedTuple):
    """A record of the log."""

    number: int
    append_id: str
    prev: str
    """The append id of the record before."""
    entries: Sequence[Mapping[str, Any]]


class Ends(NamedTuple):
    """Where a partition ended after a slot."""

    last_stable_offset: int
    high_watermark: int


def check_slots(log: Sequence[Slot]) -> Iterator[Anomaly]:
    """All that a log from its first slot on says of itself."""
    yield from append_ids(log)
    yield from published_ranges(log)
    yield from decisions(log)
    yield from micro_batches(log)


def append_ids(log: Sequence[Slot]) -> Iterator[Anomaly]:
    """Each slot follows the one before, and an append id lies in one slot."""
    first: dict[str, int] = {}
    for before, slot in zip([None, *log], log, strict=False):
        if slot.number != (before.number + 1 if before is not None else 0):
            yield Anomaly(
                "slot-gap", f"slot {slot.number} follows {before.number if before is not None else 'nothing'}"
            )
        if slot.prev != (before.append_id if before is not None else ""):
            yield Anomaly("foreign-predecessor", f"slot {slot.number} was written after another record")
        if first.setdefault(slot.append_id, slot.number) != slot.number:
            yield Anomaly("append-id-twice", f"the record of slot {first[slot.append_id]} lies in {slot.number}, too")


def published_ranges(log: Sequence[Slot]) -> Iterator[Anomaly]:
    """Rows and markers of a partition get one offset after the other, with no gap, in the order of the slots."""
    following: dict[Place, int] = {}
    for slot in log:
        for entry in slot.entries:
            for place, offset, count in ranges(entry):
                expected = following.get(place, 0)
                if offset != expected:
                    yield Anomaly("offset-range", f"slot {slot.number}: {place} goes on at {offset}, not at {expected}")
                following[place] = offset + count


def decisions(log: Sequence[Slot]) -> Iterator[Anomaly]:
    """A transaction, which is a producer's epoch, is decided once.

    An end of transaction version 1 keeps the epoch. The next batch or addition begins another transaction in it.
    """
    decided: dict[tuple[str, int, int], int] = {}
    keeping: set[tuple[str, int, int]] = set()
    """The epochs whose last end kept them."""
    for slot in log:
        for entry in slot.entries:
            if entry["type"] in _BEGINNING and entry.get("transactional_id") is not None:
                transaction = transaction_of(entry)
                if transaction in keeping:
                    keeping.remove(transaction)
                    del decided[transaction]
            elif entry["type"] == "end":
                transaction = transaction_of(entry)
                if transaction in decided:
                    yield Anomaly("decided-twice", f"{transaction} in slots {decided[transaction]} and {slot.number}")
                decided[transaction] = slot.number
                if entry.get("transaction_version") == 1:
                    keeping.add(transaction)
                else:
                    keeping.discard(transaction)


def micro_batches(log: Sequence[Slot]) -> Iterator[Anomaly]:
    """A version of an application's work is committed once, unless it was told to begin anew."""
    committed: dict[tuple[Any, ...], int] = {}
    for slot in log:
        for entry in slot.entries:
            is_commit = entry["type"] == "end" and entry["outcome"] == "commit"
            work = entry.get("application_version") if is_commit else None
            if work is None:
                continue
            counted_by = (entry["transactional_id"], work["application_id"], work["sink"], work.get("query_id"))
            if work.get("starts_anew_after") is not None:
                committed = {known: number for known, number in committed.items() if known[:3] != counted_by[:3]}
            version = (*counted_by, work["version"])
            if version in committed:
                yield Anomaly("committed-twice", f"{version} in slots {committed[version]} and {slot.number}")
            committed[version] = slot.number


def partition_ends(ends: Iterable[tuple[int, Mapping[Place, Ends]]]) -> Iterator[Anomaly]:
    """The last stable offset and the high watermark never move back, and the first is never beyond the second."""
    known: dict[Place, Ends] = {}
    for slot, found in ends:
        for place, now in found.items():
            before = known.get(place, Ends(0, 0))
            if now.last_stable_offset < before.last_stable_offset or now.high_watermark < before.high_watermark:
                yield Anomaly("end-moved-back", f"slot {slot}: {place} went from {before} to {now}")
            if now.last_stable_offset > now.high_watermark:
                yield Anomaly("end-beyond-log", f"slot {slot}: {place} is stable beyond its end: {now}")
            known[place] = now


def stable_ends(slot: int, ends: Mapping[Place, Ends], plain: Mapping[Place, Ends]) -> Iterator[Anomaly]:
    """Partitions end behind their last offset, and are stable up to their first undecided one, neither less nor more.

    Args:
        ends: what somebody who keeps account of open transactions takes for the ends after a slot.
        plain: what the plainest reading of the log says; partitions without rows may be missing.
    """
    for place, found in ends.items():
        expected = plain.get(place, Ends(0, 0))
        if found.last_stable_offset > expected.last_stable_offset:
            yield Anomaly(
                "undecided-below-end", f"slot {slot}: {place} is stable up to {found}, and is up to {expected}"
            )
        elif found != expected:
            yield Anomaly("end-differs", f"slot {slot}: {place} ends at {found}, and not at {expected}")


def transaction_of(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    return entry["transactional_id"], entry["producer_id"], entry["producer_epoch"]


def ranges(entry: Mapping[str, Any]) -> Iterator[tuple[Place, int, int]]:
    """Where each batch and each marker of an entry lies, and how many offsets it takes."""
    if entry["type"] == "batch":
        yield (entry["topic_id"], entry["partition"]), entry["base_offset"], entry["record_count"]
    if entry["type"] == "end":
        for batch in entry.get("batches", ()):
            yield (batch["topic_id"], batch["partition"]), batch["base_offset"], batch["record_count"]
        for marker in entry.get("markers", ()):
            yield (marker["topic_id"], marker["partition"]), marker["offset"], 1
