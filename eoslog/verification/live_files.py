"""The newest state of a store that other processes may change during a verification.

The verification checks an object against an older state. Before it reports a finding, it asks the newest state whether
the log still names the object. An object that another process dropped meanwhile is not a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TypeVar

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import read_file
from eoslog.format.segment_index import iterate_segment_index
from eoslog.maintenance.vacuum import DroppedFiles
from eoslog.session.session import Session
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Partition, SealedSegment
from eoslog.state.store_state import PendingDeletion, StoreState

T = TypeVar("T")


class Live:
    """A store that other processes may change at the same time."""

    def __init__(self, session: Session) -> None:
        self.store = session.object_store
        self._log = session.log

    def read(self, function: Callable[[StoreState], T]) -> T:
        """Return the result of a function of the newest state."""
        return self._log.read(lambda state, slot: function(state))

    def has_segment(self, partition_id: PartitionId, segment: SealedSegment) -> bool:
        """Return True if the log still names a sealed segment with these files."""
        return self.read(
            lambda state: partition_id in state.partitions and segment in state.partitions[partition_id].sealed
        )

    def names_file(self, partition_id: PartitionId, batch: Batch) -> bool:
        """Return True if the log still names a batch's file, in the state or in the index of a newer segment."""
        assert batch.file is not None
        path = batch.file.path
        partition = self.read(lambda state: state.partitions.get(partition_id))
        if partition is None:
            return False
        if any(each.file is not None and each.file.path == path for each in partition.active):
            return True
        return any(self._in_index(segment, path) for segment in _overlapping(partition, batch))

    def is_prepared(self, transactional_id: str, path: str) -> bool:
        """Return True if a transaction is still prepared and names this file."""

        def waits(state: StoreState) -> bool:
            transaction = state.transactions.get(transactional_id)
            prepared = None if transaction is None else transaction.prepared
            return prepared is not None and any(
                batch.file.path == path and batch.topic_id in state.topics for batch in prepared.batches
            )

        return self.read(waits)

    def unnamed(self, partition_id: PartitionId, paths: Set[str], known: Sequence[SealedSegment]) -> set[str]:
        """Return the paths of a partition that no entry names.

        Files that an entry dropped and that wait for vacuum are not in the result.

        Args:
            partition_id: the partition.
            paths: paths of objects of the partition. The ``known`` segments name none of them.
            known: segments that the caller has checked.
        """
        if not paths:
            return set()
        found = self.read(
            lambda state: (
                state.partitions.get(partition_id),
                _pending_deletions(state, partition_id),
                _prepared_files(state),
            )
        )
        partition, pending_deletions, prepared = found
        if partition is None:
            return set()
        named = {batch.file.path for batch in partition.active if batch.file is not None} | prepared
        try:
            for segment in partition.sealed:
                if segment not in known:
                    named |= {file.path for file in segment.files}
                    named |= set(self._files_in(segment))
        except CorruptRecord:
            # The index was dropped meanwhile, or it is damaged. A damaged index hides which files it names.
            return set()
        dropped = DroppedFiles(self.store, pending_deletions)
        return {path for path in paths - named if not dropped.may_name(path)}

    def _in_index(self, segment: SealedSegment, path: str) -> bool:
        try:
            return path in self._files_in(segment)
        except CorruptRecord:
            # The index was dropped meanwhile, or it is damaged, which is a finding of its own.
            return False

    def _files_in(self, segment: SealedSegment) -> Iterator[str]:
        body = read_file(self.store, segment.index)
        for batch in iterate_segment_index(body, segment.index.path):
            if batch.file is not None:
                yield batch.file.path


def _prepared_files(state: StoreState) -> set[str]:
    prepared = (state.transactions[name].prepared for name in state.ongoing)
    return {batch.file.path for each in prepared if each is not None for batch in each.batches}


def _pending_deletions(state: StoreState, partition_id: PartitionId) -> list[PendingDeletion]:
    """Return the dropped files of a partition that wait for their deletion."""
    topic = state.topics.get(partition_id.topic_id)
    here = "" if topic is None else f"{topic.prefix}{partition_id.partition}/"

    def own(files: Iterable[FileReference]) -> tuple[FileReference, ...]:
        return tuple(file for file in files if file.path.startswith(here))

    return [each._replace(files=own(each.files), indexes=own(each.indexes)) for each in state.pending_deletions]


def _overlapping(partition: Partition, batch: Batch) -> list[SealedSegment]:
    return [
        each for each in partition.sealed if each.base_offset < batch.end_offset and batch.base_offset < each.end_offset
    ]
