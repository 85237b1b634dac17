"""A simulated writer of entries that nothing tells apart but their slot: what it is told of each must be the truth."""

from __future__ import annotations

from eoslog.errors import CommitStateUnknown, RetriableError
from eoslog.log.slots import decode_line, first_line
from eoslog.state.draft import AppendEntry
from eoslog.state.group_entries import GroupOffset, GroupOffsets, OffsetsCommitted
from eoslog.state.topics import topic_named
from eoslog.store import Store
from tests.simulation.ledger import Ledger, Outcome
from tests.simulation.service import IN, Service, open_store
from tests.simulation.world import Process, Violation, World

GROUP = "notary"


class Recorder(Service):
    """Appends notes without an identity of their own, and resolves what it was not told."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        while not self.world.stopping:
            note = f"{self.name}:{len(self.ledger.notes)}"
            self.ledger.notes[note] = Outcome.UNKNOWN
            try:
                self._append(store, note)
                self.ledger.notes[note] = Outcome.COMMITTED
            except CommitStateUnknown as error:
                self._resolve(store, note, error)
            except RetriableError:
                self.ledger.notes[note] = Outcome.ABORTED
            self.pause(process, 2_000)

    def _append(self, store: Store, note: str) -> None:
        topic = store.read(lambda state, slot: topic_named(state, IN))
        offset = GroupOffset(topic_id=topic.topic_id, partition=0, offset=0, metadata=note)
        committed = GroupOffsets(group=GROUP, generation=-1, member_id="", offsets=(offset,))
        entry = OffsetsCommitted(committed=committed, time_ms=store.now_ms())
        store.append(AppendEntry(entry))

    def _resolve(self, store: Store, note: str, error: CommitStateUnknown) -> None:
        try:
            landed = store.resolve(error)
        except CommitStateUnknown:
            return
        self.world.marks["unknown outcome resolved"] += 1
        self.ledger.notes[note] = Outcome.COMMITTED if landed else Outcome.ABORTED


def check_notes(world: World, ledger: Ledger) -> None:
    """A note whose append was acknowledged stands in one slot, one that failed in none, and no note in two.

    Raises:
        Violation
    """
    found: dict[str, list[int]] = {}
    for slot, body in world.every_slot.items():
        for entry in decode_line(first_line(body), slot).entries:
            if entry.get("type") == "offsets" and entry["committed"]["group"] == GROUP:
                found.setdefault(entry["committed"]["offsets"][0]["metadata"], []).append(slot)
    for note, outcome in ledger.notes.items():
        slots = found.get(note, [])
        if len(slots) > 1:
            raise Violation(f"one append stands in the slots {slots}")
        if outcome is not Outcome.UNKNOWN and len(slots) != (outcome is Outcome.COMMITTED):
            raise Violation(f"an append was told to be {outcome.value}, and stands in the slots {slots}")
