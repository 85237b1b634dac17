"""Mutations of segments: sealing, compaction, retention, and the names of data files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from eoslog.format.file_writer import DataFileWriter
from eoslog.maintenance import file_compaction as compacting_files
from eoslog.maintenance import key_compaction as cleaning
from eoslog.maintenance import offset_map, sealing
from eoslog.maintenance import segment_rewriting as replacing
from eoslog.state import log_start, partitions
from eoslog.state.draft import Draft
from eoslog.state.entries import ReplacedSegment
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import AbortedTransaction, Batch, Outcome, Partition
from eoslog.state.partitions import seal, sealable_end
from eoslog.state.segment_replacement import replace_segments
from eoslog.state.store_state import Topic
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

SEALERS = Focus(("writer0", "writer1", "daemon0"), steps=500)
COMPACTERS = Focus(("table0", "daemon0", "reader0"), steps=500)


@mutation(SEALERS)
def aborted_index_of_a_sealed_segment_lost() -> Iterator[None]:
    """A sealed segment has no index of its aborted transactions: readers of the index get aborted rows."""
    original = sealing._plan

    def without(session: Any, candidate: tuple[Topic, Partition, int], upload_ms: int) -> Any:
        topic, partition, end_offset = candidate
        emptied = partition.copy()
        emptied.aborted = []
        return original(session, (topic, emptied, end_offset), upload_ms)

    def unchecked(draft: Draft, entry: Any) -> None:
        place = PartitionId(entry.topic_id, entry.partition)
        if place in draft.partitions and any(each.last_offset < entry.end_offset for each in _aborted(draft, place)):
            draft.edit_partition(place).aborted = [
                each for each in _aborted(draft, place) if each.last_offset >= entry.end_offset
            ]
        seal(draft, entry)

    with method(sealing, "_plan", without), instead_of(seal, unchecked):
        yield


def _aborted(draft: Draft, place: Any) -> list[AbortedTransaction]:
    return draft.partitions[place].aborted


@mutation(SEALERS)
def aborted_index_short_by_one() -> Iterator[None]:
    """The index of a sealed segment lacks its last aborted transaction: readers of the index get its rows."""
    original = sealing.encode_transaction_index

    with method(sealing, "encode_transaction_index", lambda aborted: original(aborted[:-1])):
        yield


@mutation(SEALERS, shows="their index has")
def aborted_index_without_open_transactions() -> Iterator[None]:
    """The index has the marker's end as the last stable offset: its readers miss the open transactions."""

    def ends_with_its_marker(producer_id: int, first_offset: int, last_offset: int, _: int) -> AbortedTransaction:
        return AbortedTransaction(producer_id, first_offset, last_offset, last_offset + 1)

    with method(partitions, "AbortedTransaction", ends_with_its_marker):
        yield


@mutation(SEALERS)
def aborted_index_lost_in_a_compaction() -> Iterator[None]:
    """Compaction keeps only the first segment's aborted transactions: readers of the index get aborted rows."""
    original = replacing.read_aborted

    with method(compacting_files, "read_aborted", lambda store, segments: original(store, segments[:1])):
        yield


@mutation(SEALERS)
def undecided_rows_sealed() -> Iterator[None]:
    """A segment is sealed beyond the last stable offset: the rows of open transactions stay undecided for ever."""

    def closed(partition: Partition) -> Partition:
        copy = partition.copy()
        copy.open_transactions = {}
        return copy

    def sealing_open(draft: Draft, entry: Any) -> None:
        place = PartitionId(entry.topic_id, entry.partition)
        still_open = dict(draft.partitions[place].open_transactions) if place in draft.partitions else {}
        if still_open:
            draft.edit_partition(place).open_transactions = {}
        seal(draft, entry)
        if still_open:
            draft.edit_partition(place).open_transactions = still_open

    with (
        instead_of(sealable_end, lambda partition, config, now_ms: sealable_end(closed(partition), config, now_ms)),
        instead_of(seal, sealing_open),
    ):
        yield


@mutation(COMPACTERS)
def aborted_rows_count_as_newest() -> Iterator[None]:
    """Compaction takes an aborted row for the newest of its key: the committed row is lost."""
    original = offset_map.read_batches

    def all_committed(store: Any, segments: Any) -> list[Batch]:
        return [batch._replace(outcome=Outcome.COMMITTED) for batch in original(store, segments)]

    with method(offset_map, "read_batches", all_committed):
        yield


@mutation(COMPACTERS)
def newest_row_dropped() -> Iterator[None]:
    """Compaction keeps only the rows before the newest one of a key: the newest row is lost."""
    original = offset_map.build_offset_map

    def one_more(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        return replace(found, newest={key: offset + 1 for key, offset in found.newest.items()})

    with instead_of(original, one_more):
        yield


@mutation(
    unit_test="unit/maintenance/test_compaction.py::"
    "test_tombstones_hide_their_key_at_once_and_go_after_the_delete_retention"
)
def tombstones_dropped_at_once() -> Iterator[None]:
    """Compaction drops tombstones when it meets them: a slow reader never learns that the key is deleted."""
    with instead_of(cleaning.may_drop_tombstones, lambda batch, now_ms: True):
        yield


@mutation(SEALERS)
def compaction_renumbers_offsets() -> Iterator[None]:
    """Compaction gives its rows consecutive offsets: an offset has another row than before."""
    original = replacing.write_replacement

    def renumbered(session: Any, run: Any, batches: Sequence[Batch], *rest: Any, **options: Any) -> Any:
        offset = run.segments[0].base_offset
        placed = []
        for batch in sorted(batches, key=lambda each: (each.control is not None, each.base_offset)):
            placed.append(batch._replace(base_offset=offset))
            offset += batch.last_offset_delta + 1
        return original(session, run, placed, *rest, **options)

    with method(compacting_files, "write_replacement", renumbered):
        yield


@mutation(SEALERS)
def compaction_loses_its_place_in_the_file() -> Iterator[None]:
    """All batches of a compacted file begin at its first row: rows come back under offsets of other rows."""
    original = compacting_files.FileCompaction._join

    def joined(self: Any, sources: Sequence[Any]) -> dict[int, Batch]:
        return {base: batch._replace(first_row=0) for base, batch in original(self, sources).items()}

    with method(compacting_files.FileCompaction, "_join", joined):
        yield


@mutation(FOCUSES["replacements"])
def replaced_segments_replaced_again() -> Iterator[None]:
    """A replacement counts though its segments were replaced meanwhile: it would begin or end elsewhere."""

    def replace_what_is_there(draft: Draft, entry: Any) -> None:
        partition = draft.partitions[PartitionId(entry.topic_id, entry.partition)]
        there = [each for each in partition.sealed if entry.base_offset <= each.base_offset < entry.end_offset]
        replaced = tuple(ReplacedSegment(base_offset=each.base_offset, index=each.index.path) for each in there)
        replace_segments(draft, entry.model_copy(update={"replaced": replaced}) if replaced else entry)

    with instead_of(replace_segments, replace_what_is_there):
        yield


@mutation(
    unit_test="unit/state/test_log_start.py::test_the_log_start_stops_at_the_last_stable_offset_and_never_moves_back"
)
def retention_past_the_last_stable_offset() -> Iterator[None]:
    """Retention goes beyond the last stable offset: a transaction that commits later has lost rows."""

    original = log_start.move_log_start

    def moved(draft: Draft, entry: Any) -> None:
        place = PartitionId(entry.topic_id, entry.partition)
        still_open = dict(draft.partitions[place].open_transactions)
        draft.edit_partition(place).open_transactions = {}
        original(draft, entry)
        draft.edit_partition(place).open_transactions = still_open

    with instead_of(original, moved):
        yield


@mutation(Focus(("writer0", "idempotent0", "job0"), steps=200))
def data_files_named_alike() -> Iterator[None]:
    """The names of data files can be guessed: a retry, or another process, overwrites a named file."""
    original = DataFileWriter.__init__

    def init(self: DataFileWriter, store: Any, new_name: Any, *arguments: Any, **options: Any) -> None:
        numbers = itertools.count()
        original(self, store, lambda: f"{next(numbers):032x}", *arguments, **options)

    with method(DataFileWriter, "__init__", init):
        yield
