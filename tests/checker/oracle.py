"""What readers are shown as of a slot, computed in the plainest way: by going through the whole log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.checker.slots import Ends, Place, Slot, ranges


@dataclass
class Shown:
    """As of a slot."""

    committed: dict[Place, set[int]] = field(default_factory=dict)
    """Offsets of rows whose transaction was first decided by a commit, or that had none, from where the partition
    starts: what a snapshot shows."""
    last_stable_offsets: dict[Place, int] = field(default_factory=dict)
    """Of the partitions that an open transaction holds back: its first offset."""

    def read_committed(self, place: Place) -> set[int]:
        end = self.last_stable_offsets.get(place)
        return {offset for offset in self.committed.get(place, ()) if end is None or offset < end}


class Aborted(NamedTuple):
    """An aborted transaction in one partition, as Kafka's index has it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int
    """Right after its marker: the first offset of the transactions that are still open, else the end."""


class Reading:
    """A log as far as somebody went through it."""

    def __init__(self) -> None:
        self.committed: dict[Place, set[int]] = {}
        """Offsets of rows that were ever committed, or had no transaction; also of those that are gone since."""
        self.starts: dict[Place, int] = {}
        """Of the partitions whose first rows are gone."""
        self._ends: dict[Place, int] = {}
        # An id has one transaction at a time, and what is prepared may end under a later identity than it began.
        self._pending: dict[str, list[tuple[Place, range]]] = {}
        self._producer_ids: dict[str, int] = {}
        self.aborted: dict[Place, list[Aborted]] = {}
        """The aborted transactions of each partition, in the order of their markers."""

    def go_on(self, record: Slot) -> None:
        """Take in the next slot."""
        for entry in record.entries:
            for place, offset, count in ranges(entry):
                self._ends[place] = offset + count
            if entry["type"] == "batch":
                found = ((entry["topic_id"], entry["partition"]), _offsets(entry["base_offset"], entry["record_count"]))
                if entry.get("transactional_id") is None:
                    self.committed.setdefault(found[0], set()).update(found[1])
                else:
                    self._pending.setdefault(entry["transactional_id"], []).append(found)
                    self._producer_ids[entry["transactional_id"]] = entry["producer_id"]
            elif entry["type"] == "log_start":
                self.starts[entry["topic_id"], entry["partition"]] = entry["offset"]
            elif entry["type"] == "end":
                ended = self._pending.pop(entry["transactional_id"], [])
                if entry["outcome"] == "abort":
                    self._abort(self._producer_ids.get(entry["transactional_id"], -1), ended, entry.get("markers", ()))
                for batch in entry.get("batches", ()):
                    place = (batch["topic_id"], batch["partition"])
                    ended.append((place, _offsets(batch["base_offset"], batch["record_count"])))
                if entry["outcome"] == "commit":
                    for place, offsets in ended:
                        self.committed.setdefault(place, set()).update(offsets)

    def _abort(
        self, producer_id: int, ended: Sequence[tuple[Place, range]], markers: Sequence[Mapping[str, Any]]
    ) -> None:
        open_offsets = self.first_open_offsets()
        for marker in markers:
            place, offset = (marker["topic_id"], marker["partition"]), marker["offset"]
            firsts = [offsets.start for where, offsets in ended if where == place]
            if firsts:
                found = Aborted(producer_id, min(firsts), offset, open_offsets.get(place, offset + 1))
                self.aborted.setdefault(place, []).append(found)

    def first_open_offsets(self) -> dict[Place, int]:
        """Of the partitions with open transactions: the first offset of any of them."""
        first: dict[Place, int] = {}
        for place, offsets in (each for batches in self._pending.values() for each in batches):
            first[place] = min(first.get(place, offsets.start), offsets.start)
        return first

    def ends(self) -> Mapping[Place, Ends]:
        """Where each partition that ever had a row ends; stable is what lies before the first undecided row."""
        first = self.first_open_offsets()
        return {place: Ends(first.get(place, end), end) for place, end in self._ends.items()}

    def shown(self) -> Shown:
        """What readers are shown as of the slot that was last taken in."""
        committed = {place: set(offsets) for place, offsets in self.committed.items()}
        for place, start in self.starts.items():
            committed[place] = {offset for offset in committed.get(place, ()) if offset >= start}
        return Shown(committed, self.first_open_offsets())


def readings(log: Sequence[Slot]) -> Iterator[Reading]:
    """The same reading after each slot, one further each time."""
    reading = Reading()
    for record in log:
        reading.go_on(record)
        yield reading


def shown_at(log: Sequence[Slot], slot: int) -> Shown:
    """What stands in slots 0 to ``slot``."""
    reading = Reading()
    for record in log[: slot + 1]:
        reading.go_on(record)
    return reading.shown()


def _offsets(base: int, count: int) -> range:
    return range(base, base + count)
