"""What readers are shown as of a slot, computed in the plainest way: by going through the whole log each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.checker.slots import Place, Slot


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


def shown_at(log: Sequence[Slot], slot: int) -> Shown:
    """What stands in slots 0 to ``slot``."""
    shown = Shown()
    # An id has one transaction at a time, and what is prepared may end under a later identity than it began.
    pending: dict[str, list[tuple[Place, range]]] = {}
    starts: dict[Place, int] = {}
    for entry in (entry for record in log[: slot + 1] for entry in record.entries):
        if entry["type"] == "batch":
            found = ((entry["topic_id"], entry["partition"]), _offsets(entry["base_offset"], entry["record_count"]))
            if entry.get("transactional_id") is None:
                shown.committed.setdefault(found[0], set()).update(found[1])
            else:
                pending.setdefault(entry["transactional_id"], []).append(found)
        elif entry["type"] == "log_start":
            starts[entry["topic_id"], entry["partition"]] = entry["offset"]
        elif entry["type"] == "end":
            ended = pending.pop(entry["transactional_id"], [])
            for batch in entry.get("batches", ()):
                place = (batch["topic_id"], batch["partition"])
                ended.append((place, _offsets(batch["base_offset"], batch["record_count"])))
            if entry["verdict"] == "commit":
                for place, offsets in ended:
                    shown.committed.setdefault(place, set()).update(offsets)
    for place, start in starts.items():
        shown.committed[place] = {offset for offset in shown.committed.get(place, ()) if offset >= start}
    for place, offsets in (each for batches in pending.values() for each in batches):
        held = shown.last_stable_offsets
        held[place] = min(held.get(place, offsets.start), offsets.start)
    return shown


def _offsets(base: int, count: int) -> range:
    return range(base, base + count)
