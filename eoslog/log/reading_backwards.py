"""Reads slot records backwards, from the newest one, as far as the caller iterates."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.log.slot_paths import slot_path
from eoslog.log.slot_record import SlotRecord, decode_line, decode_tail, first_line
from eoslog.storage.object_store import ObjectStore

_SLOTS_AT_ONCE = 32


def records_backwards(store: ObjectStore, newest: int) -> Iterator[SlotRecord]:
    """Yield the records from slot ``newest`` down to the oldest one that was not deleted yet.

    Each round reads several slots in parallel, or one slot whose record repeats many lines of the log's tail.

    Raises:
        CorruptRecord, UnsupportedFormat, StoreUnavailable
    """
    slot = newest
    above: SlotRecord | None = None
    at_once = 1 if store.tail_bytes > 0 else _SLOTS_AT_ONCE
    while slot >= 0:
        wanted = range(slot, max(-1, slot - at_once), -1)
        for stored in store.get_many([slot_path(each) for each in wanted]):
            # A paused process may have put a record under a deleted name. The check of `prev` below leaves it out.
            if stored is None:
                return
            repeated = decode_tail(stored.body, slot) if store.tail_bytes > 0 else []
            for record in (decode_line(first_line(stored.body), slot), *(each for _, each in reversed(repeated))):
                if above is not None and record.append_id != above.prev:
                    return
                yield record
                above = record
            slot -= 1 + len(repeated)
