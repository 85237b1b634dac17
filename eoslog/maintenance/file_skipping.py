"""Skipping of data files that are missing or damaged, if no other object has their content.

One such file makes its partition unreadable from the first offset of the file on. After a skip, readers meet a gap in
the offsets in place of the file, as after a compaction by key. The log has an entry with the path of the file, its
offsets and its number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eoslog.errors import CorruptRecord, RequestTimedOut
from eoslog.format.checked_files import check_file, stored_file
from eoslog.maintenance.segment_rewriting import (
    SegmentRun,
    SegmentsChanged,
    SourceFile,
    append_rewrite,
    current_partition,
    read_aborted,
    read_batches,
    source_files,
    write_replacement,
)
from eoslog.session.session import Session
from eoslog.state.entries import SkippedFile
from eoslog.state.log_start import last_end_slot_below
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Partition, SealedSegment
from eoslog.state.segment_replacement import without_rows
from eoslog.state.skipped_files import SkipFiles, decided_batches, skipped_files
from eoslog.state.store_state import Topic
from eoslog.state.topics import topic_named
from eoslog.storage.object_store import ObjectStore
from eoslog.wording import without_code

_READS = 3
"""A file counts as damaged only if this many reads find it damaged: the answer to one read may be cut short."""
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class DamagedDataFile:
    """A data file of a topic that is missing or damaged."""

    topic: str
    partition: int
    base_offset: int
    """The first offset of its rows."""
    end_offset: int
    """The end of their offsets (exclusive)."""
    rows: int
    path: str
    problem: str
    skipped: bool
    """True if the call skipped the rows; False in a dry run."""


def skip_damaged_files(
    session: Session, topic: str, *, dry_run: bool = False, progress: Callable[[str, int, int], object]
) -> list[DamagedDataFile]:
    """Read all data files of a topic, and skip the rows of those that are missing or damaged.

    Rows above a last stable offset stay, because their transactions are open. Other processes may use the store
    meanwhile. Each partition is done by itself, so a call that was interrupted may be repeated.

    Args:
        dry_run: only report the files.
        progress: called with ``"partitions"``, the number of partitions that are done, and their total number.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: the index of a segment is missing or damaged, so the files of the segment are not known.
        RequestTimedOut: other processes changed a partition at each attempt.
    """
    partition_ids = session.log.read(lambda state, slot: topic_named(state, topic).partition_ids())
    found: list[DamagedDataFile] = []
    for number, partition_id in enumerate(partition_ids):
        progress("partitions", number, len(partition_ids))
        skip = _PartitionSkip(session, partition_id, dry_run)
        for _ in range(_ATTEMPTS):
            if skip.run():
                break
        else:
            raise RequestTimedOut(
                f"partition {topic}-{partition_id.partition}: other processes changed its segments {_ATTEMPTS} times. "
                "Skip its damaged files again"
            )
        found += skip.found
    progress("partitions", len(partition_ids), len(partition_ids))
    return found


class _PartitionSkip:
    """Skips the damaged files of one partition."""

    def __init__(self, session: Session, partition_id: PartitionId, dry_run: bool) -> None:
        self._session = session
        self._store = session.object_store
        self._partition_id = partition_id
        self._dry_run = dry_run
        self._sound: set[str] = set()
        """The paths of files that were read without a fault."""
        self.found: list[DamagedDataFile] = []

    def run(self) -> bool:
        """Skip the damaged files. Return False if another process changed the partition, so that some may be left."""
        current = current_partition(self._session, self._partition_id)
        if current is None:
            return True  # Another process has deleted the topic.
        topic, found = current
        try:
            for segment in found.sealed:
                self._skip_in_segment(topic, segment)
        except SegmentsChanged:
            return False
        except CorruptRecord:
            if current_partition(self._session, self._partition_id) == current:
                raise
            return False
        return self._skip_in_active(topic, found)

    def _skip_in_segment(self, topic: Topic, segment: SealedSegment) -> None:
        """Replace the index of a segment by one in which damaged files have no rows.

        Raises:
            SegmentsChanged
            CorruptRecord: the index is missing or damaged.
        """
        # Read the date before the first put: the log compares this lower bound with the horizon of vacuum.
        upload_ms = self._store.clock.last_date_ms
        batches = read_batches(self._store, [segment])
        problems = self._problems(source_files(batches))
        skipped = skipped_files(batches, problems)
        if skipped and not self._dry_run:
            kept = [
                without_rows(each) if each.file is not None and each.file.path in problems else each for each in batches
            ]
            emptied = (each for each in batches if each.file is not None and each.file.path in problems)
            end_slot = last_end_slot_below(emptied, segment.end_offset)
            entry = write_replacement(
                self._session,
                SegmentRun(topic, self._partition_id.partition, (segment,)),
                kept,
                aborted=read_aborted(self._store, [segment]),
                reason="skip_files",
                removed_end_slot=None if end_slot == NO_SLOT else end_slot,
                upload_ms=upload_ms,
                skipped=skipped,
            )
            self._session.environment.reached("segment.skip.index_written")
            append_rewrite(self._session, entry)
            self._session.environment.reached("segment.skip.replaced")
        self._report(topic, skipped, problems)

    def _skip_in_active(self, topic: Topic, partition: Partition) -> bool:
        """Skip the damaged files of the active segment. Return False if another process has sealed some of them."""
        problems = self._problems(source_files(decided_batches(partition)))
        if not problems:
            return True
        if self._dry_run:
            self._report(topic, skipped_files(decided_batches(partition), problems), problems)
            return True
        request = SkipFiles(self._partition_id, frozenset(problems), self._store.clock.now_ms())
        skipped = self._session.log.append(request)
        self._session.environment.reached("segment.skip.appended")
        self._report(topic, skipped, problems)
        return {each.path for each in skipped} == problems.keys()

    def _problems(self, sources: Iterable[SourceFile]) -> dict[str, str]:
        """Return the problem of each file that is missing or damaged, by path."""
        problems = {}
        for source in sources:
            path = source.file.path
            if path in self._sound:
                continue
            problem = _problem(self._store, source)
            if problem is None:
                self._sound.add(path)
            else:
                problems[path] = problem
        return problems

    def _report(self, topic: Topic, skipped: Iterable[SkippedFile], problems: dict[str, str]) -> None:
        self.found += [
            DamagedDataFile(
                topic=topic.topic,
                partition=self._partition_id.partition,
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                rows=each.rows,
                path=each.path,
                problem=problems[each.path],
                skipped=not self._dry_run,
            )
            for each in skipped
        ]


def _problem(store: ObjectStore, source: SourceFile) -> str | None:
    """Return the problem of a file that is missing or damaged; None if the file is sound."""
    problem = None
    for _ in range(_READS):
        try:
            body = stored_file(store, source.file, source.slot)
            if body is None:
                problem = "the file is missing"
                continue
            check_file(body, source.file.length, source.file.crc32c, source.file.path)
        except CorruptRecord as error:
            problem = without_code(error)
        else:
            return None
    return problem
