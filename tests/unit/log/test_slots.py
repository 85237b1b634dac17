"""Slots: their paths list the newest first, their records carry a tail, and they are read backwards."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.slots import (
    GROUP_SIZE,
    SlotRecord,
    decode_line,
    decode_tail,
    encode_line,
    file_in,
    files_line,
    first_line,
    records_backwards,
    slot_body,
    slot_group,
    slot_of,
    slot_path,
)
from tests.unit.log.ledger import add
from tests.unit.log.world import World, script

SLOTS = st.integers(0, 2**43 - 1)


@given(SLOTS)
def test_a_slot_is_read_back_from_its_path(slot: int) -> None:
    assert slot_of(slot_path(slot)) == slot


@given(SLOTS, SLOTS)
def test_groups_list_the_newest_first_and_slots_ascend_within_one(first: int, second: int) -> None:
    if first // GROUP_SIZE == second // GROUP_SIZE:
        assert (slot_path(first) < slot_path(second)) == (first < second)
    else:
        assert (slot_group(first) < slot_group(second)) == (first > second)


@pytest.mark.parametrize(
    "path",
    [
        slot_path(5).replace("9999999999", "9999999998"),
        slot_path(5) + ".tmp",
        slot_path(5).replace("slot", "slots"),
        "x" + slot_path(5),
        slot_path(5).upper(),
        "__transaction_state/slot/9999999999/5.json",
    ],
)
def test_any_other_name_is_no_slot(path: str) -> None:
    assert slot_of(path) is None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def record(slot: int, text: str = "x") -> SlotRecord:
    return SlotRecord(
        slot=slot, append_id=f"{slot:032x}", prev=f"{slot - 1:032x}" if slot else "", entries=({"name": text},)
    )


@given(st.lists(TEXT, max_size=6), TEXT)
def test_a_record_and_its_tail_are_read_back_whatever_they_hold(before: list[str], text: str) -> None:
    tail = [encode_line(record(number, each)) for number, each in enumerate(before)]
    own = record(len(before), text)

    body = slot_body(encode_line(own), tail)

    assert decode_line(first_line(body), len(before)) == own
    assert [line for line, _ in decode_tail(body, len(before))] == tail
    assert len(body.rstrip(b"\n").split(b"\n")) == (2 if tail else 1)


PATHS = st.text(st.characters(codec="ascii", exclude_characters="\\\x7f", min_codepoint=32), min_size=1, max_size=20)


@given(st.lists(TEXT, max_size=3), st.dictionaries(PATHS, st.binary(max_size=50), max_size=5), PATHS)
def test_the_files_in_a_record_are_read_back_by_their_paths(
    before: list[str], files: dict[str, bytes], other: str
) -> None:
    tail = [encode_line(record(number, each)) for number, each in enumerate(before)]
    own = record(len(before), '{"files":{')

    body = slot_body(encode_line(own), tail, files)

    line = files_line(body)
    assert {path: file_in(line, path) for path in files} == files
    assert file_in(line, other) == files.get(other)
    assert bool(line) == bool(files)
    assert decode_line(first_line(body), len(before)) == own
    assert [line for line, _ in decode_tail(body, len(before))] == tail


def test_a_content_that_is_not_base64_is_a_corrupt_record() -> None:
    body = slot_body(encode_line(record(1)), [], {"t/a": b"content"})

    with pytest.raises(CorruptRecord, match="t/a"):
        file_in(files_line(body.replace(b"Y29", b"***")), "t/a")


def test_fields_of_a_later_version_stay_in_the_repeated_line() -> None:
    value = json.loads(encode_line(record(0)))
    checkpoint = {"slot": 0, "path": "__transaction_state/checkpoint/x", "length": 1, "crc32c": 1, "hint": 1}
    line = json.dumps({**value, "checkpoint": checkpoint, "hint": None}, separators=(",", ":")).encode()

    [(repeated, _)] = decode_tail(slot_body(encode_line(record(1)), [line]), 1)

    assert repeated == line


@pytest.mark.parametrize(
    "tail", [b"{}", b"[]", b'{"tail":3}', b'{"tail":{"a":1}}', b'{"tail":[3]}', b'{"tail"', b"\xff"]
)
def test_a_damaged_tail_is_a_corrupt_record(tail: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_tail(encode_line(record(3)) + b"\n" + tail, 3)


def test_a_tail_that_is_not_the_slots_before_is_a_corrupt_record() -> None:
    body = slot_body(encode_line(record(3)), [encode_line(record(1))])

    with pytest.raises(CorruptRecord, match="slot 2"):
        decode_tail(body, 3)


@pytest.mark.parametrize("field", ["slot", "append_id", "prev"])
def test_a_record_without_one_of_its_fields_is_corrupt(field: str) -> None:
    value = json.loads(encode_line(record(3)))
    del value[field]

    with pytest.raises(CorruptRecord, match=field):
        decode_line(json.dumps(value).encode(), 3)


def test_a_newer_format_is_unsupported_however_else_it_looks() -> None:
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode_line(b'{"format":2,"anything":"else"}', 3)


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
