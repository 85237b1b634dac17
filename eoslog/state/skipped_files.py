"""Skipping of missing and damaged data files in the active segment.

The batches of a skipped file lose their rows. Their offsets, sequences and outcomes stay, as after a compaction. So
readers meet a gap in the offsets, and producers and transactions are not affected. For sealed segments
``SegmentsReplaced`` does the same, because their batches are in an index file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from eoslog.errors import InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.entries import FilesSkipped, SkippedFile
from eoslog.state.log_start import last_end_slot_below
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Batch, Partition
from eoslog.state.partitions import add_pending_deletion, oldest_record_of, oldest_shared_ms_of, partition_of
from eoslog.state.segment_replacement import note_removed_rows, note_skipped_files, without_rows
from eoslog.state.store_state import PendingDeletion


def skipped_files(batches: Iterable[Batch], paths: Collection[str]) -> tuple[SkippedFile, ...]:
    """Return the files of these paths that have rows in the batches, in the order of their offsets.

    Args:
        batches: batches of one partition, in the order of their offsets.
    """
    found = []
    with_rows = (batch for batch in batches if batch.file is not None and batch.file.path in paths)
    for path, group in groupby(with_rows, key=lambda batch: batch.file and batch.file.path):
        together = list(group)
        rows = sum(batch.record_count for batch in together)
        first, last = together[0].base_offset, together[-1].end_offset
        found.append(SkippedFile(path=str(path), base_offset=first, end_offset=last, rows=rows))
    return tuple(found)


def skip_files(draft: Draft, entry: FilesSkipped) -> None:
    """Remove the rows of files from the active segment, below the last stable offset.

    Raises:
        InvalidEntry: a file has no rows there, or other rows than the entry says.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    before = partition_of(draft, partition_id)
    paths = {each.path for each in entry.skipped}
    if skipped_files(decided_batches(before), paths) != entry.skipped:
        raise InvalidEntry(f"partition {entry.partition}: the skipped files have other rows in the active segment")
    partition = draft.edit_partition(partition_id)
    emptied = [each for each in decided_batches(partition) if each.file is not None and each.file.path in paths]
    offsets = {batch.base_offset for batch in emptied}
    partition.active = [without_rows(each) if each.base_offset in offsets else each for each in partition.active]
    partition.active_bytes -= sum(batch.file.length for batch in emptied if batch.file is not None)
    named = {batch.file.path for batch in partition.active if batch.file is not None}
    files = {batch.file.path: batch.file for batch in emptied if batch.file is not None and batch.file.is_object}
    deletion = PendingDeletion(
        draft.slot,
        files=tuple(file for path, file in files.items() if path not in named),
        oldest_record=oldest_record_of(emptied),
        oldest_shared_ms=oldest_shared_ms_of(emptied),
    )
    add_pending_deletion(draft, deletion)
    removed_end_slot = last_end_slot_below(emptied, partition.next_offset)
    if removed_end_slot != NO_SLOT:
        note_removed_rows(draft, partition, removed_end_slot)
    note_skipped_files(draft, partition, entry.skipped)


def decided_batches(partition: Partition) -> list[Batch]:
    """Return the batches of the active segment below the last stable offset. Their outcomes are known."""
    return [each for each in partition.active if each.end_offset <= partition.last_stable_offset]


@dataclass(frozen=True)
class SkipFiles:
    """A request to skip files of an active segment. The answer has the files with rows there, which are skipped."""

    partition_id: PartitionId
    paths: frozenset[str]
    now_ms: int
    """The time of the store's clock (ms)."""

    def apply(self, draft: Draft) -> tuple[SkippedFile, ...]:
        partition = draft.partitions.get(self.partition_id)
        skipped = () if partition is None else skipped_files(decided_batches(partition), self.paths)
        if skipped:
            topic_id, number = self.partition_id
            draft.append(FilesSkipped(topic_id=topic_id, partition=number, skipped=skipped, time_ms=self.now_ms))
        return skipped
