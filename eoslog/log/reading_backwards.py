"""Reading slot records backwards, the newest first, no further than is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.log.slot_paths import slot_path
from eoslog.log.slot_record import SlotRecord, decode_line, decode_tail, first_line
from eoslog.storage.object_store import ObjectStore

_SLOTS_AT_ONCE = 32


def records_backwards(store: ObjectStore, newest: int) -> Iterator[SlotRecord]:
    """The records from slot ``newest`` down to the oldest one that was not deleted yet.

    A request brings many: so many slots in parallel, or where records repeat the log's tail, all that one repeats.

    Raises:
        CorruptRecord, UnsupportedFormat, StoreUnavailable
    """
    slot = newest
    above: SlotRecord | None = None
    at_once = 1 if store.tail_bytes > 0 else _SLOTS_AT_ONCE
    while slot >= 0:
        wanted = range(slot, max(-1, slot - at_once), -1)
        for stored in store.get_many([slot_path(each) for each in wanted]):
            # A deleted name may have been taken again by a sleeper: what the log does not lead to is not of it.
            if stored is None:
                return
            repeated = decode_tail(stored.body, slot) if store.tail_bytes > 0 else []
            for record in (decode_line(first_line(stored.body), slot), *(each for _, each in reversed(repeated))):
                if above is not None and record.token != above.prev:
                    return
                yield record
                above = record
            slot -= 1 + len(repeated)
