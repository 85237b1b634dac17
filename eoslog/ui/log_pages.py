"""The log: its slots as a time line, and the record of one slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eoslog.errors import InvalidOption
from eoslog.log.slots import SlotRecord, encode_line, first_line, records_backwards, slot_path
from eoslog.storage.object_store import ObjectNotFound
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.display import lines, pretty
from eoslog.ui.pages import Page, Query
from eoslog.wording import quoted

SLOTS = 50
_LARGEST_SHOWN_BYTES = 256 << 10
_MOST_NAMED = 3
_NAMES = ("transactional_id", "group", "topic")


class SlotLine(NamedTuple):
    """A slot of the log."""

    slot: int
    time_ms: int | None
    """The latest time of its entries (ms); None if they have none."""
    by: Sequence[str]
    """The transactional ids, groups and topics that its entries name."""
    more: int
    """The number of further names."""
    entries: Mapping[str, int]
    """The number of entries by their type."""
    requests: int | None
    """The number of requests of other processes in it; None if its writer appended only its own."""
    bytes: int

    @property
    def entry_count(self) -> int:
        return sum(self.entries.values())


def slot_line(record: SlotRecord) -> SlotLine:
    """Return the line of a record in the list of slots."""
    times = [time for entry in record.entries if isinstance(time := entry.get("time_ms"), int)]
    names = list(dict.fromkeys(_names(record.entries)))
    return SlotLine(
        slot=record.slot,
        time_ms=max(times, default=None),
        by=names[:_MOST_NAMED],
        more=max(0, len(names) - _MOST_NAMED),
        entries=Counter(str(entry.get("type")) for entry in record.entries),
        requests=None if record.requests is None else len(record.requests),
        bytes=len(encode_line(record)),
    )


def _names(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    for entry in entries:
        committed = entry.get("committed")
        fields = entry | committed if isinstance(committed, dict) else entry
        named = next((fields[name] for name in _NAMES if isinstance(fields.get(name), str)), None)
        if named is not None:
            yield named
        elif isinstance(entry.get("producer_id"), int):
            yield f"producer {entry['producer_id']}"


def log(console: ConsoleStore, query: Query) -> Page:
    """Return the list of slots, the newest first."""
    store = console.store
    newest = store.read(lambda state, slot: slot)
    until = query.number("until")
    begin = newest if until is None else min(newest, until)
    if begin < 0:
        raise InvalidOption(f"until is {quoted(query.text('until'))}; the slots of a log begin at 0")
    found = [slot_line(record) for record in records_backwards(store.object_store, begin, max(0, begin - SLOTS + 1))]
    oldest = found[-1].slot if found else None
    is_cut = oldest is None or (len(found) < SLOTS and oldest > 0)
    checkpoint = store.log.replica.checkpoint
    return Page(
        "log.html",
        "Log",
        {
            "slots": found,
            "largest": max((each.bytes for each in found), default=1),
            "newest": newest,
            "begin": begin,
            "checkpoint": None if checkpoint is None else checkpoint.slot,
            "older": query.link(until=oldest - 1) if oldest and not is_cut else None,
            "newer": query.link(until=min(newest, begin + SLOTS)) if begin < newest else None,
            "is_cut": is_cut,
        },
        is_live=until is None,
    )


def slot(console: ConsoleStore, query: Query) -> Page:
    """Return the page of one slot, with its record as JSON."""
    number = query.natural("slot", 0)
    newest = console.store.read(lambda state, slot: slot)
    if number > newest:
        raise InvalidOption(f"there is no slot {number}: the newest one is {newest}")
    try:
        # Read one byte more than is shown, to see whether there is more. A record repeats older ones after its line.
        body = console.store.object_store.get_range(slot_path(number), 0, _LARGEST_SHOWN_BYTES + 1)
    except ObjectNotFound:
        body = b""
    line = first_line(body)
    is_cut = len(line) > _LARGEST_SHOWN_BYTES
    text = line[:_LARGEST_SHOWN_BYTES].decode("utf-8", "replace")
    return Page(
        "slot.html",
        f"Slot {number}",
        {
            "number": number,
            "newest": newest,
            "is_there": bool(body),
            "json": lines(text) if is_cut else pretty(text) or lines(text),
            "is_cut": is_cut,
            "bytes": len(line),
            "operations": [each for each in console.recent().operations if each.slot == number],
        },
        200 if body else 404,
        is_live=False,
    )
