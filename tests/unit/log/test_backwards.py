"""Records are read backwards, no further than asked for, down to where slots were deleted."""

from __future__ import annotations

from itertools import islice

import pytest

from eoslog.errors import CorruptRecord
from eoslog.log.reading_backwards import records_backwards
from eoslog.log.slot_paths import slot_path
from eoslog.log.slot_record import SlotRecord, encode_line
from tests.unit.log.ledger import add
from tests.unit.log.world import World, script


@pytest.mark.parametrize("tail_bytes", [0, 500, 64 << 10])
def test_every_record_comes_once_the_newest_first(tail_bytes: int) -> None:
    log = World(tail_bytes=tail_bytes).created()
    for number in range(150):
        log.append(add(f"{number}"))
    newest = log.read(lambda state, slot: slot)

    found = list(records_backwards(log.store, newest))

    assert [record.slot for record in found] == list(range(newest, -1, -1))
    added = [entry["name"] for record in found for entry in record.entries if entry["type"] == "add"]
    assert added == [*map(str, reversed(range(150))), "created"]


@pytest.mark.parametrize(("tail_bytes", "gets"), [(0, 32), (64 << 10, 1)])
def test_a_few_records_of_a_long_log_cost_one_step(tail_bytes: int, gets: int) -> None:
    log = World(tail_bytes=tail_bytes).created()
    for number in range(100):
        log.append(add(f"{number}"))
    newest = log.read(lambda state, slot: slot)
    before = script(log).requests["GET"]

    found = list(islice(records_backwards(log.store, newest), 10))

    assert len(found) == 10
    assert script(log).requests["GET"] - before == gets


def test_the_records_end_where_slots_were_deleted_whatever_lies_below() -> None:
    log = World().created()
    for number in range(9):
        log.append(add(f"{number}"))
    log.store.delete([slot_path(0), slot_path(1), slot_path(2), slot_path(4)])

    assert [record.slot for record in records_backwards(log.store, 9)] == [9, 8, 7, 6, 5]


@pytest.mark.parametrize("tail_bytes", [0, 250, 64 << 10])
def test_a_stray_below_the_oldest_record_is_not_read(tail_bytes: int) -> None:
    world = World(tail_bytes=tail_bytes)
    log = world.created()
    for number in range(9):
        log.append(add(f"{number}"))
    log.store.delete([slot_path(slot) for slot in range(4)])
    stray = SlotRecord(slot=3, append_id="5" * 32, prev="6" * 32, entries=({"type": "add", "name": "stray"},))
    world.put(3, encode_line(stray) + b"\n")

    assert "5" * 32 not in [record.append_id for record in records_backwards(log.store, 9)]


def test_a_damaged_record_is_told() -> None:
    world = World()
    log = world.created()
    world.put(1, b"no record\n")

    with pytest.raises(CorruptRecord, match="slot 1"):
        list(records_backwards(log.store, 1))
