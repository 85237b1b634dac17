"""Where the log's objects lie. Only slots have names that can be guessed.

Slots are grouped by thousands, and the groups are numbered downwards, so that the first page of a LIST holds the newest
slots: finding the tail costs one request at any length of history, where a store lists in order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ROOT = "__transaction_state/"
SLOTS = ROOT + "slot/"
CHECKPOINTS = ROOT + "checkpoint/"
PENDING = ROOT + "pending/"
LONGEST_PENDING_MS = 10 * 60 * 1000
"""Older publications are deleted: their process has died, or appends the requests itself."""
GROUP_SIZE = 1000
_LARGEST_GROUP = 9_999_999_999
_PENDING = re.compile(r"__transaction_state/pending/(\d{20})-([0-9a-f]{32})\.json")
_SLOT = re.compile(r"__transaction_state/slot/\d{10}/(\d{20})\.json")


def slot_group(slot: int) -> str:
    """The directory of a slot, the newest first in lexical order."""
    return f"{SLOTS}{_LARGEST_GROUP - slot // GROUP_SIZE:010d}/"


def slot_path(slot: int) -> str:
    return f"{slot_group(slot)}{slot:020d}.json"


def slot_of(path: str) -> int | None:
    """The slot of a path, None if it is not a slot's."""
    match = _SLOT.fullmatch(path)
    slot = int(match.group(1)) if match else None
    return slot if slot is not None and slot_path(slot) == path else None


def checkpoint_path(slot: int, name: str) -> str:
    return f"{CHECKPOINTS}{slot:020d}-{name}"


def pending_path(slot: int, name: str) -> str:
    """The path of a publication. A LIST returns the publications in the order of their slots."""
    return f"{PENDING}{slot:020d}-{name}.json"


class PendingName(NamedTuple):
    """The parts of a publication's path."""

    slot: int
    """The newest slot that the process knew when it published."""
    name: str


def pending_name(path: str) -> PendingName | None:
    """Return the parts of a publication's path; None if it is no such path."""
    match = _PENDING.fullmatch(path)
    return PendingName(int(match.group(1)), match.group(2)) if match else None
