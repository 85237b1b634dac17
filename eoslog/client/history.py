"""The history of a store: what each slot of the log did to topics, the newest first (Delta's ``DESCRIBE HISTORY``).

It is read from the log's own records, and ends where they end: old slots are deleted, what they did is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.client.operations import Operation, operations_of
from eoslog.errors import InvalidEntry, InvalidOption, UnsupportedFormat, quoted
from eoslog.log.backwards import records_backwards
from eoslog.log.record import SlotRecord
from eoslog.rules.entries import Entry
from eoslog.rules.machine import decode_entry
from eoslog.rules.state import StoreState
from eoslog.rules.topics import topic_named
from eoslog.store.exclusive import ExclusiveIterator

if TYPE_CHECKING:
    from eoslog.client.store import Store

_CLOCKS_DIFFER_MS = 2_000
_MOST_SLOTS_AHEAD = 128


class _Bounds(NamedTuple):
    """Which topics are asked for, and from where on they may have a history."""

    names: dict[str, str]
    """By topic id, of all topics that are there."""
    topic_id: str | None
    oldest: int
    newest: int


class History(ExclusiveIterator[Operation]):
    """Operations of the log, the newest first. It reads as it is iterated, and holds no more than some slots.

    It begins at the newest slot of when it was made. It belongs to one thread at a time.
    """

    def __init__(
        self,
        store: Store,
        topic: str | None,
        *,
        limit: int | None,
        transactional_id: str | None,
        include_aborts: bool,
    ) -> None:
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise InvalidOption(f"a limit is a number of operations, 1 or more, not {quoted(limit)}")

        def look(state: StoreState, slot: int) -> _Bounds:
            names = {each.topic_id: each.topic for each in state.topics.values()}
            if topic is None:
                return _Bounds(names, None, 0, slot)
            found = topic_named(state, topic)
            return _Bounds(names, found.topic_id, found.created_slot, slot)

        self._bounds = store.read(look)
        self._transactional_id = transactional_id
        self._include_aborts = include_aborts
        self.oldest_slot: int | None = None
        """The slot that the history has come to; None before the first."""
        self.is_cut = False
        """Whether it has ended where slots were deleted, and not where the topic or the store was created."""
        records = records_backwards(store.object_store, self._bounds.newest)
        self._records = takewhile(lambda record: record.slot >= self._bounds.oldest, records)
        super().__init__(islice(self._read(), limit))

    def _read(self) -> Iterator[Operation]:
        for decoded in _with_log_times(map(_decode, self._records)):
            self.oldest_slot = decoded.slot
            for operation in operations_of(
                decoded.slot, decoded.time_ms, decoded.entries, self._bounds.names, self._bounds.topic_id
            ):
                if self._transactional_id not in (None, operation.transactional_id):
                    continue
                if operation.verdict == "abort" and not self._include_aborts:
                    continue
                yield operation
        self.is_cut = self.oldest_slot is not None and self.oldest_slot > self._bounds.oldest


class _Decoded:
    """A record, and the latest time that it or a record before it tells, as far as was read (ms)."""

    __slots__ = ("entries", "own_ms", "slot", "time_ms")

    def __init__(self, slot: int, entries: Sequence[Entry | Mapping[str, Any]]) -> None:
        self.slot = slot
        self.entries = entries
        times = [time for entry in entries if (time := getattr(entry, "time_ms", None)) is not None]
        self.own_ms: int | None = max(times, default=None)
        self.time_ms = self.own_ms


def _decode(record: SlotRecord) -> _Decoded:
    """The entries of a record; one of an unknown type stays as it is, and an invalid record changed nothing."""
    entries: list[Entry | Mapping[str, Any]] = []
    for value in record.entries:
        try:
            entries.append(decode_entry(value))
        except UnsupportedFormat:
            entries.append(value)
        except InvalidEntry:
            return _Decoded(record.slot, ())
    return _Decoded(record.slot, entries)


def _with_log_times(records: Iterator[_Decoded]) -> Iterator[_Decoded]:
    """Give each record the log's time, which never runs backwards: the latest that any record so far tells.

    Writers' clocks differ by little, so a few records before it tell.
    """
    waiting: deque[_Decoded] = deque()
    for record in records:
        waiting.append(record)
        if record.own_ms is None:
            continue
        for later in waiting:
            later.time_ms = record.own_ms if later.time_ms is None else max(later.time_ms, record.own_ms)
        while waiting and waiting[0] is not record:
            first = waiting[0]
            assert first.time_ms is not None
            if first.time_ms - record.own_ms < _CLOCKS_DIFFER_MS and first.slot - record.slot < _MOST_SLOTS_AHEAD:
                break
            yield waiting.popleft()
    yield from waiting
