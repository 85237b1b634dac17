"""Merging: small data files of sealed segments become large ones, and small segments one.

No offset, sequence, slot or verdict changes: every reader is shown the same rows as before, aborted ones among them.
What is rewritten at least doubles in size, so that no row is rewritten more than a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import read_files
from eoslog.format.topic_schema_json import stored_schema
from eoslog.log.log import Log
from eoslog.maintenance.segment_rewriting import (
    TARGET_FILE_BYTES,
    RewrittenFile,
    SegmentRun,
    SourceFile,
    append_unless_lost,
    is_there,
    places_to_look_at,
    read_aborted,
    read_batches,
    source_files,
    write_replacement,
)
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Partition, SealedSegment
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

T = TypeVar("T")
_SEALED_AT_ONCE = 16
"""A merged segment has at most so many times the batches at which a segment is sealed: its index is read whole."""


@dataclass(frozen=True, slots=True)
class MergedSegments:
    """One replacement that a merge made."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    segments: int
    """How many there were; one is left."""
    files_before: int
    files_after: int
    bytes_written: int
    """Of data files."""


@dataclass(slots=True)
class MergeReport:
    """What a merge did."""

    merged: list[MergedSegments] = field(default_factory=list)
    lost_races: int = 0
    """Replacements that were given up because the segments moved meanwhile."""


def merge_files(
    log: Log[StoreState],
    store: ObjectStore,
    environment: Environment,
    *,
    topic: str | None = None,
    target_file_bytes: int = TARGET_FILE_BYTES,
) -> MergeReport:
    """Merge what is small enough, in one topic or in all. Any number of processes may do so at once.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: a file is missing or damaged. All others were merged before this is told.
    """
    report = MergeReport()
    damage: CorruptRecord | None = None
    for place in log.read(lambda state, slot: places_to_look_at(state, topic)):
        for run in log.read(lambda state, slot, place=place: _runs(state, place, target_file_bytes), refresh=False):  # type: ignore[misc]
            try:
                _merge(log, store, environment, run, target_file_bytes, report)
            except CorruptRecord as error:
                if is_there(log, run):
                    damage = error
                else:
                    report.lost_races += 1
    if damage is not None:
        raise damage
    return report


def _runs(state: StoreState, place: PartitionId, target_file_bytes: int) -> list[SegmentRun]:
    """The segments to look into, those together that are to become one."""
    topic, partition = state.topics.get(place.topic_id), state.partitions.get(place)
    if topic is None or partition is None:
        return []
    return [
        SegmentRun(topic, place.partition, tuple(segments))
        for segments in _segments_together(topic, partition)
        if len(segments) > 1 or _has_small_files(segments[0], target_file_bytes)
    ]


def _has_small_files(segment: SealedSegment, target_file_bytes: int) -> bool:
    return segment.file_count > 1 and 2 * segment.bytes < target_file_bytes * segment.file_count


def _segments_together(topic: Topic, partition: Partition) -> list[Sequence[SealedSegment]]:
    most_batches = _SEALED_AT_ONCE * topic.config.segment_batches
    together: list[Sequence[SealedSegment]] = []
    clean = [each for each in partition.sealed if each.end_offset <= partition.cleaned_offset]
    # Compaction counts a segment as clean or dirty as a whole.
    for side in (clean, partition.sealed[len(clean) :]):
        for by_bytes in chunks(side, lambda segment: segment.bytes, topic.config.segment_bytes):
            for each in chunks(by_bytes, lambda segment: segment.batch_count, most_batches):
                together += doubling_runs(each, lambda segment: segment.batch_count + 1)
    return together


def _merge(
    log: Log[StoreState],
    store: ObjectStore,
    environment: Environment,
    run: SegmentRun,
    target_file_bytes: int,
    report: MergeReport,
) -> None:
    upload_ms = store.clock.last_date_ms
    batches = read_batches(store, run.segments)
    sources = source_files(batches)
    small = [
        each
        for chunk in chunks(sources, lambda source: source.file.length, target_file_bytes)
        for each in doubling_runs(chunk, lambda source: source.file.length)
        if len(each) > 1
    ]
    if not small and len(run.segments) == 1:
        return
    moved: dict[str, tuple[FileReference, int]] = {}
    for each in small:
        moved |= _merge_files(store, environment, run, each)
    environment.reached("segment.merge.files_written")
    merged = [_moved(batch, moved) for batch in batches]
    entry = write_replacement(
        store,
        environment,
        run,
        merged,
        read_aborted(store, run.segments),
        "merge",
        removed_end_slot=None,
        upload_ms=upload_ms,
    )
    environment.reached("segment.merge.index_written")
    if not append_unless_lost(log, entry):
        report.lost_races += 1
        return
    environment.reached("segment.merge.replaced")
    report.merged.append(
        MergedSegments(
            run.topic.topic,
            run.partition,
            entry.base_offset,
            entry.end_offset,
            len(run.segments),
            len(sources),
            entry.file_count,
            sum({file.path: file.length for file, _ in moved.values()}.values()),
        )
    )


def _merge_files(
    store: ObjectStore, environment: Environment, run: SegmentRun, sources: Sequence[SourceFile]
) -> dict[str, tuple[FileReference, int]]:
    """Write the rows of files into one. By the path of each: the new file, and the row in it where its rows begin."""
    written = RewrittenFile(store, f"{run.new_path(environment)}.parquet", stored_schema(run.topic))
    begins: dict[str, int] = {}
    for source, body in zip(sources, read_files(store, [source.file for source in sources]), strict=True):
        begins[source.file.path] = written.rows
        written.add(source, body)
    file = written.upload()
    return {path: (file, begin) for path, begin in begins.items()}


def _moved(batch: Batch, moved: dict[str, tuple[FileReference, int]]) -> Batch:
    if batch.file is None or batch.file.path not in moved:
        return batch
    file, begin = moved[batch.file.path]
    return batch._replace(file=file, first_row=begin + batch.first_row)


def chunks(items: Sequence[T], weight: Callable[[T], int], most: int) -> list[Sequence[T]]:
    """The items in their order, as many together as weigh no more than ``most``; a heavier one alone."""
    found: list[list[T]] = []
    filled = 0
    for item in items:
        if not found or filled + weight(item) > most:
            found.append([])
            filled = 0
        found[-1].append(item)
        filled += weight(item)
    return list(found)


def doubling_runs(items: Sequence[T], weight: Callable[[T], int]) -> list[Sequence[T]]:
    """The items in their order, those together that weigh at least twice as much as the heaviest of them."""
    if len(items) < 2:
        return [items] if items else []
    weights = [weight(item) for item in items]
    heaviest = weights.index(max(weights))
    if sum(weights) >= 2 * weights[heaviest]:
        return [items]
    return list(
        chain(
            doubling_runs(items[:heaviest], weight),
            [items[heaviest : heaviest + 1]],
            doubling_runs(items[heaviest + 1 :], weight),
        )
    )
