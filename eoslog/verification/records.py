"""A slot's bytes: they are a record, and what it repeats of those before it is what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from eoslog.errors import CorruptRecord, without_code
from eoslog.log.paths import slot_path
from eoslog.log.record import LARGEST_RECORD_BYTES, SlotRecord, decode_line, decode_tail, first_line
from eoslog.store.object_store import ObjectStore
from eoslog.verification.finding import READS_BEFORE_REPORT, Finding

_RECORDS_KEPT = 1000


class Records:
    """Reads records in the order of their slots."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._before: deque[SlotRecord] = deque(maxlen=_RECORDS_KEPT)

    def read(self, slot: int, body: bytes) -> tuple[SlotRecord | None, list[Finding]]:
        """A record, None if it cannot be decoded, and what is wrong with its bytes.

        Raises:
            UnsupportedFormat: a newer version wrote it.
        """
        try:
            record, repeated = _decoded_at_last(self._store, slot, body)
        except CorruptRecord as error:
            self.skip()
            problem = without_code(error)
            return None, [Finding(kind="slot-damaged", problem=problem, slot=slot, path=slot_path(slot))]
        found = list(self._unlike(slot, repeated))
        self._before.append(record)
        return record, found

    def skip(self) -> None:
        """A slot is not there: what the next ones repeat can be compared only with what follows it."""
        self._before.clear()

    def _unlike(self, slot: int, repeated: list[SlotRecord]) -> Iterator[Finding]:
        known = {record.slot: record for record in self._before}
        for record in repeated:
            if record.slot in known and known[record.slot] != record:
                problem = f"the record repeats slot {record.slot}, and not as that stands there"
                yield Finding(kind="slot-tail-differs", problem=problem, slot=slot, path=slot_path(slot))
                return


def token_of(store: ObjectStore, slot: int) -> str | None:
    """The token of a slot's record, as it is now; None if there is no record."""
    stored = store.get_many([slot_path(slot)])[0]
    try:
        return None if stored is None else _decoded_at_last(store, slot, stored.body)[0].token
    except CorruptRecord:
        return None


def _decoded_at_last(store: ObjectStore, slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    """A record, and those that it repeats. What cannot be decoded is read again: an answer may be cut short."""
    for _ in range(READS_BEFORE_REPORT - 1):
        try:
            return _decoded(slot, body)
        except CorruptRecord:
            stored = store.get_many([slot_path(slot)])[0]
            body = body if stored is None else stored.body
    return _decoded(slot, body)


def _decoded(slot: int, body: bytes) -> tuple[SlotRecord, list[SlotRecord]]:
    if len(body) > LARGEST_RECORD_BYTES:
        raise CorruptRecord(f"the record of slot {slot} is larger than {LARGEST_RECORD_BYTES} bytes")
    record = decode_line(first_line(body), slot)
    if not body.endswith(b"\n"):
        raise CorruptRecord(f"the record of slot {slot} is cut short")
    return record, [each for _, each in decode_tail(body, slot)]
