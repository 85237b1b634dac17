"""Names of slots: the newest come first in a listing, and no two names mean one slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.log.slot_paths import GROUP_SIZE, slot_group, slot_of, slot_path

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
