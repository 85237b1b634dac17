"""A slot record: its own line, and a tail of lines before it that is spliced in as text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.slot_record import SlotRecord, decode_line, decode_tail, encode_line, first_line, with_tail

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def record(slot: int, text: str = "x") -> SlotRecord:
    return SlotRecord(
        slot=slot, append_id=f"{slot:032x}", prev=f"{slot - 1:032x}" if slot else "", entries=({"name": text},)
    )


@given(st.lists(TEXT, max_size=6), TEXT)
def test_a_record_and_its_tail_are_read_back_whatever_they_hold(before: list[str], text: str) -> None:
    tail = [encode_line(record(number, each)) for number, each in enumerate(before)]
    own = record(len(before), text)

    body = with_tail(encode_line(own), tail)

    assert decode_line(first_line(body), len(before)) == own
    assert [line for line, _ in decode_tail(body, len(before))] == tail
    assert len(body.rstrip(b"\n").split(b"\n")) == (2 if tail else 1)


def test_fields_of_a_later_version_stay_in_the_repeated_line() -> None:
    value = json.loads(encode_line(record(0)))
    checkpoint = {"slot": 0, "path": "__transaction_state/checkpoint/x", "length": 1, "crc32c": 1, "hint": 1}
    line = json.dumps({**value, "checkpoint": checkpoint, "hint": None}, separators=(",", ":")).encode()

    [(repeated, _)] = decode_tail(with_tail(encode_line(record(1)), [line]), 1)

    assert repeated == line


@pytest.mark.parametrize(
    "tail", [b"{}", b"[]", b'{"tail":3}', b'{"tail":{"a":1}}', b'{"tail":[3]}', b'{"tail"', b"\xff"]
)
def test_a_damaged_tail_is_a_corrupt_record(tail: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_tail(encode_line(record(3)) + b"\n" + tail, 3)


def test_a_tail_that_is_not_the_slots_before_is_a_corrupt_record() -> None:
    body = with_tail(encode_line(record(3)), [encode_line(record(1))])

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
