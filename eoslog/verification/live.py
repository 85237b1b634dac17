"""The newest state, asked again before something is reported: what others dropped meanwhile is no fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eoslog.errors import CorruptRecord
from eoslog.log.log import Log
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Batch, Partition, SealedSegment
from eoslog.rules.state import StoreState
from eoslog.segment.segment_index import iterate_segment_index
from eoslog.segment.stored_file import read_file

T = TypeVar("T")


class Live:
    """A store while others may be at work in it."""

    def __init__(self, log: Log[StoreState]) -> None:
        self.log = log

    def look(self, function: Callable[[StoreState], T]) -> T:
        """The answer of the newest state."""
        return self.log.read(lambda state, slot: function(state))

    def has_segment(self, place: PartitionId, segment: SealedSegment) -> bool:
        """Whether the log still names a sealed segment, with these files."""
        return self.look(lambda state: place in state.partitions and segment in state.partitions[place].sealed)

    def names_file(self, place: PartitionId, batch: Batch) -> bool:
        """Whether the log still names a batch's file: in the state, or in an index that it moved to since."""
        assert batch.file is not None
        path = batch.file.path
        partition = self.look(lambda state: state.partitions.get(place))
        if partition is None:
            return False
        if any(each.file is not None and each.file.path == path for each in partition.active):
            return True
        return any(self._in_index(segment, path) for segment in _overlapping(partition, batch))

    def is_prepared(self, transactional_id: str, path: str) -> bool:
        """Whether a prepared transaction still waits with a file."""

        def look(state: StoreState) -> bool:
            transaction = state.transactions.get(transactional_id)
            prepared = None if transaction is None else transaction.prepared
            return prepared is not None and any(
                batch.file.path == path and batch.topic_id in state.topics for batch in prepared.batches
            )

        return self.look(look)

    def _in_index(self, segment: SealedSegment, path: str) -> bool:
        try:
            body = read_file(self.log.store, segment.index)
            return any(
                batch.file is not None and batch.file.path == path
                for batch in iterate_segment_index(body, segment.index.path)
            )
        except CorruptRecord:
            # Dropped meanwhile; or it is a finding of its own.
            return False


def _overlapping(partition: Partition, batch: Batch) -> list[SealedSegment]:
    return [
        each for each in partition.sealed if each.base_offset < batch.end_offset and batch.base_offset < each.end_offset
    ]
