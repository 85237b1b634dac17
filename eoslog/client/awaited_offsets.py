"""Who waits for the offsets of records: a future a record, in the order of the rows of each partition."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import NamedTuple

from eoslog.client.positions import RecordMetadata
from eoslog.errors import EosLogError
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import NO_OFFSET
from eoslog.rules.state import Topic


class AppendedRows(NamedTuple):
    """Consecutive rows of a partition that the log has."""

    partition_id: PartitionId
    base_offset: int
    """-1 if the log has forgotten where an old duplicate lies."""
    record_count: int


@dataclass(slots=True)
class _Waiting:
    topic: str
    rows: list[Future[RecordMetadata] | int] = field(default_factory=list)
    """The future of one row, or so many rows for which nobody waits."""


class AwaitedOffsets:
    """The futures of records that have no offsets yet. They cannot be cancelled."""

    def __init__(self) -> None:
        self._waiting: dict[PartitionId, _Waiting] = {}

    def add_record(self, topic: Topic, place: PartitionId) -> Future[RecordMetadata]:
        """The next row of the partition is a record whose sender waits."""
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()
        self._of(topic, place).rows.append(future)
        return future

    def add_rows(self, topic: Topic, place: PartitionId, count: int) -> None:
        """The next ``count`` rows of the partition are such that nobody waits for."""
        self._of(topic, place).rows.append(count)

    def _of(self, topic: Topic, place: PartitionId) -> _Waiting:
        found = self._waiting.get(place)
        if found is None:
            found = self._waiting[place] = _Waiting(topic.topic)
        return found

    def take_all(self) -> AwaitedOffsets:
        """Hand all futures over to the object returned; this one is empty then."""
        taken = AwaitedOffsets()
        taken._waiting, self._waiting = self._waiting, {}
        return taken

    def deliver(self, appended: Iterable[AppendedRows] = ()) -> None:
        """Tell everybody where the rows went; offset -1 where ``appended`` does not tell. Nobody waits any more."""
        batches: dict[PartitionId, list[AppendedRows]] = defaultdict(list)
        for rows in appended:
            batches[rows.partition_id].append(rows)
        waiting, self._waiting = self._waiting, {}
        for place, partition in waiting.items():
            offsets = _offsets_of_rows(batches[place])
            for future in partition.rows:
                if isinstance(future, int):
                    deque(islice(offsets, future), maxlen=0)
                else:
                    future.set_result(RecordMetadata(partition.topic, place.partition, next(offsets)))

    def fail(self, error: EosLogError) -> None:
        """End every wait with ``error``."""
        waiting, self._waiting = self._waiting, {}
        for partition in waiting.values():
            for future in partition.rows:
                if not isinstance(future, int):
                    future.set_exception(error)


def _offsets_of_rows(batches: Sequence[AppendedRows]) -> Iterator[int]:
    """The offset of each row of the batches, one after another; then no offsets for ever."""
    for _, base_offset, count in batches:
        yield from repeat(NO_OFFSET, count) if base_offset == NO_OFFSET else range(base_offset, base_offset + count)
    yield from repeat(NO_OFFSET)
