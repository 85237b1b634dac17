"""The log of a history compared with itself, with its checkpoints and with what readers are shown of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eoslog.errors import OffsetOutOfRange
from eoslog.log.checkpoint import read_checkpoint
from eoslog.log.slots import CHECKPOINT_ENTRY, CheckpointReference, decode_line, first_line
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner
from eoslog.session.store_machine import StoreMachine
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from tests.checker.oracle import Reading, readings, shown_at
from tests.checker.slots import Ends, Place, Slot, check_slots, partition_ends, stable_ends
from tests.simulation.ledger import Ledger
from tests.simulation.service import PARTITIONS, TABLE
from tests.simulation.world import Violation, World

_THOROUGH = 5
"""Every so many seeds all checkpoints are read, not the newest alone, and what readers are shown is compared."""


def check_log(world: World, ledger: Ledger, store: Store) -> None:
    """The whole log, as it was ever written. Raises: Violation"""
    log, references = read_log(world, store)
    thorough = world.seed % _THOROUGH == 0
    _raise_first(check_slots(log))
    _raise_first(partition_ends(_folded(log, references, world, store, thorough=thorough)))
    _check_shown(ledger, log, store)
    if thorough:
        newest = log[-1].number
        _compare(store, log, newest, "read_committed", None)
        for slot in sorted({newest, newest * 2 // 3, newest // 3}):
            _compare(store, log, slot, "snapshot", slot)


def _raise_first(anomalies: Iterator[object]) -> None:
    for anomaly in anomalies:
        raise Violation(str(anomaly))


def read_log(world: World, store: Store) -> tuple[Sequence[Slot], Sequence[CheckpointReference]]:
    """All records that were ever written, and the checkpoints that they name."""
    log = []
    references = []
    for number in range(store.read(lambda _, newest: newest) + 1):
        record = decode_line(first_line(world.every_slot[number]), number)
        log.append(Slot(record.slot, record.append_id, record.prev, record.entries))
        for entry in record.entries:
            if entry["type"] == CHECKPOINT_ENTRY:
                references.append(CheckpointReference.model_validate(entry["reference"]))
    return log, references


def _folded(
    log: Sequence[Slot], references: Sequence[CheckpointReference], world: World, store: Store, *, thorough: bool
) -> Iterator[tuple[int, Mapping[Place, Ends]]]:
    """Fold all slots, and yield where partitions end after each.

    Each checkpoint is compared with the state at its slot, and ends and committed reads after each slot with a plain
    reading of the log.

    Raises:
        Violation
    """
    there = [each for each in references if each.path in world.objects]
    of_slot = {each.slot: each for each in (there if thorough else there[-1:])}
    machine = StoreMachine()
    state = machine.initial()
    known: dict[PartitionId, Partition] = {}
    for slot, reading in zip(log, readings(log), strict=True):
        entries = [entry for entry in slot.entries if entry["type"] != CHECKPOINT_ENTRY]
        reason = machine.fold(state, slot.number, entries)
        if reason is not None:
            raise Violation(f"slot {slot.number} is invalid: {reason}")
        if slot.number in of_slot:
            restored, _ = read_checkpoint(store.object_store, machine, of_slot[slot.number])
            if restored != state:
                raise Violation(f"the checkpoint of slot {slot.number} is not the state of all records up to it")
        ends = _ends(state)
        _raise_first(stable_ends(slot.number, ends, reading.ends()))
        changed = [each for place, each in state.partitions.items() if known.get(place) is not each]
        _compare_committed(world, store, slot.number, changed, reading)
        known = dict(state.partitions)
        yield slot.number, ends
    if store.read(lambda opened, _: opened) != state:
        raise Violation("the state that the checkpoint leads to is not that of the whole log")


def _ends(state: StoreState) -> Mapping[Place, Ends]:
    return {
        (place.topic_id, place.partition): Ends(found.last_stable_offset, found.high_watermark)
        for place, found in state.partitions.items()
    }


def _compare_committed(
    world: World, store: Store, slot: int, partitions: Sequence[Partition], reading: Reading
) -> None:
    """Offsets that a committed read of active segments shows after a slot are those that the log says.

    Nothing that is sealed is undecided, and its indexes may be gone by now.
    """
    first_open = reading.first_open_offsets()
    for partition in partitions:
        place = (partition.id.topic_id, partition.id.partition)
        start, end = max(partition.segment_base_offset, partition.log_start_offset), first_open.get(place)
        plan = ReadPlanner(store.indexes, place[0], IsolationLevel.READ_COMMITTED).plan(partition, start)
        ranges = (
            range(*each)
            for rows in plan.rows
            for each in zip(rows.batches.base_offset, rows.batches.end_offset, strict=True)
        )
        found = [offset for offsets in ranges for offset in offsets]
        committed = reading.committed.get(place, ())
        expected = sorted(each for each in committed if start <= each and (end is None or each < end))
        if found != expected:
            raise Violation(f"read_committed of {place} at {slot} shows {found}, and not {expected}")
        world.marks["committed read compared below an open row"] += end is not None


def _check_shown(ledger: Ledger, log: Sequence[Slot], store: Store) -> None:
    """What a reader was ever shown as committed, the log has committed, also if it is gone since. Raises: Violation"""
    *_, reading = readings(log)
    topic_ids = store.read(lambda state, _: dict(state.topic_ids), refresh=False)
    for value, (topic, partition, offset) in ledger.shown.items():
        if offset not in reading.committed.get((topic_ids[topic], partition), ()):
            raise Violation(f"{topic}-{partition}@{offset}: {value!r} was shown as committed, and never was")


def _compare(store: Store, log: Sequence[Slot], slot: int, isolation_level: str, as_of: int | None) -> None:
    """Offsets that a scan shows are those that the log, gone through plainly, says."""
    shown = shown_at(log, slot)
    topic_ids = store.read(lambda state, _: dict(state.topic_ids), refresh=False)
    for topic in sorted(PARTITIONS.keys() - {TABLE}):
        try:
            scan = store.scan(topic, slot=as_of, isolation_level=isolation_level, columns=["partition", "offset"])
            rows = scan.to_table().to_pylist()
        except OffsetOutOfRange:
            continue  # Before the topic, or before rows that are gone.
        for partition in range(PARTITIONS[topic]):
            place = (topic_ids[topic], partition)
            found = [row["offset"] for row in rows if row["partition"] == partition]
            expected = shown.committed.get(place, set()) if as_of is not None else shown.read_committed(place)
            if found != sorted(expected):
                lost, surplus = sorted(expected - set(found)), sorted(set(found) - expected)
                raise Violation(f"{isolation_level} of {topic}-{partition} at {slot} lacks {lost}, and shows {surplus}")
