"""Checks of a partition: its state, the index files of its segments, and its data files.

Memory holds the paths of one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import check_file, check_footer, read_file, stored_file
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, DataFile, encode_data_file, open_data_file
from eoslog.format.kafka_files import decode_producer_snapshot, decode_transaction_index
from eoslog.format.segment_index import decode_txnindex_copy, iterate_segment_index
from eoslog.format.statistics import ColumnBounds, Value, decode_statistics, order
from eoslog.format.topic_schemas import holds_as_it_is, stored_schema
from eoslog.maintenance.index_restore import derived_snapshot
from eoslog.maintenance.segment_rewriting import SourceFile, source_files
from eoslog.state.entry_fields import FileReference
from eoslog.state.invariants import broken_in_aborted, broken_in_batches, broken_in_partition, gaps
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Batch, Outcome, Partition, SealedSegment
from eoslog.state.partitions import oldest_record_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.object_store import ObjectInfo, ObjectStore
from eoslog.verification.findings import READS_BEFORE_REPORT, Finding, Kind, finding, of_broken
from eoslog.verification.live_files import Live
from eoslog.verification.slot_checks import Run
from eoslog.verification.unknown_files import count_unreferenced
from eoslog.wording import without_code

_TIMESTAMP = "timestamp"
_EXACT = Context(prec=38)


def faults_in_data_file(topic: Topic, source: SourceFile, body: bytes) -> Iterator[Finding]:
    """Yield the differences between a data file and the log: at most one of each kind per batch.

    A finding has no path and no partition. It has offsets if it concerns one batch.
    """
    try:
        check_file(body, source.file.length, source.file.crc32c, source.file.path)
        check_footer(body, source.file)
    except CorruptRecord as error:
        yield finding(Kind.DATA_DAMAGED, problem=without_code(error))
        return
    try:
        file = open_data_file(pa.BufferReader(body), source.file.path)
        found, rows = file.schema_arrow, file.metadata.num_rows
    except CorruptRecord as error:
        yield finding(Kind.DATA_UNREADABLE, problem=without_code(error))
        return
    if rows != source.rows:
        yield finding(Kind.DATA_ROWS_DIFFER, rows=rows, said=source.rows)
        return
    declared = stored_schema(topic)
    unlike = next(_unlike(found, _as_stored(declared)), None)
    if unlike is not None:
        yield finding(Kind.DATA_SCHEMA_DIFFERS, problem=unlike)
        return
    try:
        yield from _in_rows(topic, source, body, declared)
    except CorruptRecord as error:
        yield finding(Kind.DATA_UNREADABLE, problem=without_code(error))


def _as_stored(declared: pa.Schema) -> pa.Schema:
    """Return the declared columns as Parquet returns them, because Parquet does not keep every Arrow type."""
    empty = encode_data_file(declared.empty_table())
    return open_data_file(pa.BufferReader(empty), "the declared columns").schema_arrow.append(OFFSET_DELTA_COLUMN)


def _unlike(found: pa.Schema, declared: pa.Schema) -> Iterator[str]:
    for column in found:
        if column.name not in declared.names:
            yield f"its column {column.name!r} is not in the topic"
        # An older file has fewer fields.
        elif not holds_as_it_is(declared.field(column.name).type, column.type):
            yield f"its column {column.name!r} is {column.type}, but the topic says {declared.field(column.name).type}"
    for column in declared:
        if not column.nullable and column.name not in found.names:
            yield f"it lacks the column {column.name!r}, which may not be null"


def _in_rows(topic: Topic, source: SourceFile, body: bytes, declared: pa.Schema) -> Iterator[Finding]:
    base_offset = source.batches[0].base_offset
    checks = [_BatchCheck(topic, batch, base_offset, declared) for batch in source.batches]
    schema = declared.append(OFFSET_DELTA_COLUMN)
    begin, current = 0, 0
    for rows in DataFile(body, schema, source.rows, name=source.file.path).batches():
        end = begin + rows.num_rows
        while current < len(checks):
            batch = checks[current].batch
            first, last = max(begin, batch.first_row), min(end, batch.first_row + batch.record_count)
            if first < last:
                yield from checks[current].add(rows.slice(first - begin, last - first))
            if batch.first_row + batch.record_count > end:
                break
            current += 1
        begin = end


class _BatchCheck:
    """Checks the rows of one batch, piece by piece."""

    def __init__(self, topic: Topic, batch: Batch, file_base_offset: int, declared: pa.Schema) -> None:
        self.batch = batch
        self._file_base_offset = file_base_offset
        self._finding = partial(finding, offsets=(batch.base_offset, batch.end_offset))
        self._next_offset = batch.base_offset
        self._is_records = topic.topic_schema.kind == "records"
        types: Mapping[str, Any] = {field.name: field.type for field in declared}
        self._bounds = {} if self._is_records else decode_statistics(batch.statistics, types)
        self._told: set[Kind] = set()

    def add(self, rows: pa.RecordBatch) -> Iterator[Finding]:
        for fault in self._faults(rows):
            if fault.kind not in self._told:
                self._told.add(fault.kind)
                yield fault

    def _faults(self, rows: pa.RecordBatch) -> Iterator[Finding]:
        offsets = rows.column(OFFSET_DELTA_COLUMN.name).to_numpy() + self._file_base_offset
        steps = np.diff(offsets, prepend=self._next_offset - 1)
        if (steps < 1).any() or offsets[-1] >= self.batch.end_offset:
            problem = "its offsets do not increase within the batch's range"
            yield self._finding(Kind.DATA_OFFSETS_DIFFER, problem=problem)
        elif not self.batch.has_gaps and (steps != 1).any():
            yield self._finding(Kind.DATA_OFFSETS_DIFFER, problem="its offsets have gaps, but no row was removed")
        self._next_offset = int(offsets[-1]) + 1
        if self._is_records:
            least, greatest = _ends(rows.column(_TIMESTAMP).cast(pa.int64()))
            said = (self.batch.min_timestamp, self.batch.max_timestamp)
            if not said[0] <= max(-1, least) <= max(-1, greatest) <= said[1]:
                yield self._finding(Kind.DATA_TIMESTAMPS_DIFFER, least=least, greatest=greatest, said=said)
        for name, bounds in self._bounds.items():
            if name in rows.schema.names and not _holds(rows.column(name), bounds):
                yield self._finding(Kind.DATA_STATISTICS_FALSE, column=name)


def _ends(values: Any) -> tuple[Any, Any]:
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _holds(values: Any, bounds: ColumnBounds) -> bool:
    if values.null_count and not bounds.has_nulls:
        return False
    values = values.drop_null()
    if not len(values):
        return True
    if not bounds.has_values:
        return False
    least, greatest = _least_and_greatest(values)
    return (bounds.least is None or order(bounds.least) <= order(least)) and (
        bounds.greatest is None or order(greatest) <= order(bounds.greatest)
    )


def _least_and_greatest(values: Any) -> tuple[Value, Value]:
    """Return the bounds as statistics hold them: decimals in units of their last digit, times in their own unit."""
    types = pa.types
    if types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        is_nan = np.isnan(numbers)
        ends = (float("nan"),) * 2 if is_nan.all() else (float(np.nanmin(numbers)), float(np.nanmax(numbers)))
        return ends[0], float("nan") if is_nan.any() else ends[1]
    if types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif types.is_time64(values.type) or types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    least, greatest = _ends(values)
    if isinstance(least, Decimal):
        scale = values.type.scale
        return int(least.scaleb(scale, _EXACT)), int(greatest.scaleb(scale, _EXACT))
    return least, greatest


def index_differences(
    topic: Topic, partition: Partition, segment: SealedSegment, *, batches: list[Batch], txnindex: bytes
) -> Iterator[str]:
    """Yield the differences between an index and its entry, its ``.txnindex``, the topic and the partition."""
    yield from _unlike_the_entry(segment, batches)
    yield from _unlike_the_txnindex(segment, txnindex)
    yield from _unlike_the_topic(topic, partition, segment, batches)


def _unlike_the_entry(segment: SealedSegment, batches: list[Batch]) -> Iterator[str]:
    files = {batch.file.path: batch.file.length for batch in batches if batch.file is not None}
    latest = max((each.end_slot for each in batches if each.outcome is Outcome.COMMITTED), default=NO_SLOT)
    for what, said, found in (
        ("batches", segment.batch_count, len(batches)),
        ("data files", segment.file_count, len(files)),
        ("bytes of data files", segment.bytes, sum(files.values())),
        ("ms as its least timestamp", segment.min_timestamp, min((each.min_timestamp for each in batches), default=-1)),
        (
            "ms as its greatest timestamp",
            segment.max_timestamp,
            max((each.max_timestamp for each in batches), default=-1),
        ),
    ):
        if said != found:
            yield f"it has {found} {what}, but its entry says {said}"
    if latest > segment.max_end_slot:
        yield f"it has rows that slot {latest} committed, but its entry says slot {segment.max_end_slot} at most"
    if any(batch.outcome is Outcome.OPEN for batch in batches):
        yield "it has rows of an open transaction"


def _unlike_the_txnindex(segment: SealedSegment, txnindex: bytes) -> Iterator[str]:
    if segment.txnindex is None:
        if txnindex:
            yield "it has aborted transactions, but its entry names no .txnindex"
        return
    try:
        check_file(txnindex, segment.txnindex.length, segment.txnindex.crc32c, segment.txnindex.path)
    except CorruptRecord:
        yield "its copy of the .txnindex differs from its entry"


def _unlike_the_topic(
    topic: Topic, partition: Partition, segment: SealedSegment, batches: list[Batch]
) -> Iterator[str]:
    outside = [
        each for each in batches if each.base_offset < segment.base_offset or each.end_offset > segment.end_offset
    ]
    if outside:
        yield f"it has offset {outside[0].base_offset}, which is outside of its segment"
    # Only compaction by key removes batches.
    compacted = topic.config.is_compacted or partition.cleaned_offset > 0
    for first, end in gaps(batches, segment.base_offset, segment.end_offset):
        overlaps = any(each.base_offset < end and first < each.end_offset for each in batches)
        if not compacted or overlaps:
            yield f"offsets {first} to {end - 1} belong to no batch or to several batches"


@dataclass(slots=True)
class SegmentContent:
    """The result of reading a segment's index files."""

    findings: list[Finding] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


def check_segment(
    store: ObjectStore, state: StoreState, slot: int, *, topic: Topic, partition_id: PartitionId, segment: SealedSegment
) -> SegmentContent:
    """Check a segment's index files against the state."""
    content = SegmentContent()
    before = [each for each in state.partitions[partition_id].sealed if each.base_offset <= segment.base_offset]
    here = (segment.base_offset, segment.end_offset)

    def add(kind: Kind, path: str, problem: str) -> None:
        place: Any = {"topic": topic.topic, "partition": partition_id.partition, "offsets": here}
        content.findings.append(finding(kind, path, **place, problem=problem))

    def read(kind: str, file: FileReference, body: bytes | None) -> bytes | None:
        if body is None:
            what, problem = "missing", Kind.SNAPSHOT_MISSING.message
        else:
            try:
                check_file(body, file.length, file.crc32c, file.path)
                return body
            except CorruptRecord as error:
                what, problem = "damaged", without_code(error)
        if kind == "snapshot" and derived_snapshot(store, before) is None:
            what, problem = "lost", f"{problem}, and its content cannot be derived from the segments before"
        add(Kind(f"{kind}-{what}"), file.path, problem)
        return None

    files = [("index", segment.index), ("snapshot", segment.snapshot)]
    if segment.txnindex is not None:
        files.append(("txnindex", segment.txnindex))
    stored = store.get_many([file.path for _, file in files])
    bodies = {
        kind: read(kind, file, None if found is None else found.body)
        for (kind, file), found in zip(files, stored, strict=True)
    }
    index, snapshot = bodies["index"], bodies["snapshot"]
    if snapshot is not None:
        try:
            decode_producer_snapshot(snapshot, segment.snapshot.path)
        except CorruptRecord as error:
            problem = f"its writer wrote an invalid file: {without_code(error)}"
            add(Kind.SNAPSHOT_LOST, segment.snapshot.path, problem)
    if index is None:
        # Only the index has another copy of the content of a .txnindex.
        content.findings = [replace(each, is_blocked=each.path != segment.snapshot.path) for each in content.findings]
        return content
    try:
        content.batches = list(iterate_segment_index(index, segment.index.path))
        txnindex = decode_txnindex_copy(index, segment.index.path)
        aborted = decode_transaction_index(txnindex, segment.index.path)
    except CorruptRecord as error:
        add(Kind.INDEX_DAMAGED, segment.index.path, without_code(error))
        return content
    for problem in index_differences(
        topic, state.partitions[partition_id], segment, batches=content.batches, txnindex=txnindex
    ):
        add(Kind.INDEX_DIFFERS, segment.index.path, problem)
    broken = broken_in_batches(content.batches, topic, partition_id.partition, time_ms=state.time_ms, newest_slot=slot)
    for each in (*broken, *broken_in_aborted(content.batches, aborted)):
        content.findings.append(of_broken(each, state, partition_id, segment.index.path))
    return content


class PartitionVerification:
    """The verification of one partition in a state. Before it reports a finding, it asks the newest state."""

    def __init__(
        self,
        live: Live,
        state: StoreState,
        slot: int,
        *,
        topic: Topic,
        partition_id: PartitionId,
        shared_bytes: Mapping[str, int],
        lost_slots: Sequence[Run],
        with_data: bool,
    ) -> None:
        self._live = live
        self._store = live.store
        self._state = state
        self._slot = slot
        self._topic = topic
        self._partition_id = partition_id
        self._shared_bytes = shared_bytes
        """The sizes of all shared objects by path, listed after the state was read."""
        self._finding = partial(finding, topic=topic.topic, partition=partition_id.partition)
        self._lost_slots = lost_slots
        """Slots that are missing or damaged. Rows that they had are reported as missing."""
        self._with_data = with_data
        self._partition = state.partitions[partition_id]
        self._prefix = f"{topic.prefix}{partition_id.partition}/"
        self._listed: dict[str, ObjectInfo] = {}
        self._named: set[str] = set()
        """Paths of data files that the state or an index names."""
        self._is_whole = True
        """True while all indexes could be read. Otherwise the set of named files is unknown."""
        self._oldest_record = oldest_record_of(self._partition.active)
        self._aborted: dict[tuple[int, int], Batch] = {}
        """Aborted rows whose marker has not appeared yet, by producer id and end slot."""

    def findings(self) -> Iterator[Finding]:
        """Check the partition and yield the findings."""
        for broken in broken_in_partition(self._state, self._topic, self._partition, self._slot):
            yield of_broken(broken, self._state)
        # All files that the state names were put before it was read. So a file that the LIST lacks is lost or dropped.
        self._listed = {info.path: info for info in self._store.list(self._prefix)}
        index_files: set[str] = set()
        for segment in self._partition.sealed:
            content = self._segment(segment)
            self._is_whole &= bool(content.batches) or segment.batch_count == 0
            yield from content.findings
            index_files |= {file.path for file in segment.files}
            yield from self._batches(content.batches)
        yield from self._batches(self._partition.active)
        yield from self._prepared()
        if self._is_whole:
            yield from self._without_marker()
            yield from self._unreferenced(index_files)

    def _segment(self, segment: SealedSegment) -> SegmentContent:
        """Return a segment's content and its findings.

        Findings count only if they repeat at each read and the log still names the segment.
        """
        for _ in range(READS_BEFORE_REPORT):
            content = check_segment(
                self._store,
                self._state,
                self._slot,
                topic=self._topic,
                partition_id=self._partition_id,
                segment=segment,
            )
            if not content.findings:
                return content
            if not self._live.has_segment(self._partition_id, segment):
                return SegmentContent()
        return content

    def _batches(self, batches: list[Batch]) -> Iterator[Finding]:
        for source in source_files(batches):
            if source.file.path in self._named or not _follow_each_other(source):
                yield self._of_source(source, finding(Kind.FILE_SHARED))
                continue
            self._named.add(source.file.path)
            yield from self._file(source)
        for batch in batches:
            key = (batch.producer_id, batch.end_slot)
            if batch.control is not None:
                self._aborted.pop(key, None)
            elif batch.outcome is Outcome.ABORTED:
                self._aborted.setdefault(key, batch)

    def _without_marker(self) -> Iterator[Finding]:
        """Report aborted rows without a marker behind them. Compaction keeps a marker while its rows exist."""
        for (producer_id, _), batch in self._aborted.items():
            yield self._finding(
                Kind.ABORTED_INCONSISTENT,
                offsets=(batch.base_offset, batch.end_offset),
                problem=f"rows of producer {producer_id} are aborted, but no marker follows them",
            )

    def _file(self, source: SourceFile) -> Iterator[Finding]:
        if source.file.in_record:
            # Slots are deleted in ascending order. So the oldest one shows whether slots were deleted too early.
            is_lost = any(run.first <= source.slot <= run.last for run in self._lost_slots)
            is_read = self._with_data or is_lost or source.slot == self._oldest_record
            found = self._rows(source) if is_read else []
        else:
            absent = self._absent(source.file)
            found = [absent] if absent is not None else self._rows(source) if self._with_data else []
        if found and self._live.names_file(self._partition_id, source.batches[0]):
            yield from (self._of_source(source, each) for each in found)

    def _absent(self, file: FileReference) -> Finding | None:
        """Return a finding if a file is missing or has another length than its entry says, by the LIST.

        A shared object must have all bytes of the file.
        """
        if file.shared is not None:
            size = self._shared_bytes.get(file.shared.path)
            if size is None:
                return finding(Kind.DATA_MISSING)
            if size < file.shared.position + file.length:
                end = file.shared.position + file.length
                return finding(Kind.DATA_DAMAGED, problem=f"has {size} bytes, but an entry names those up to {end}")
            return None
        info = self._listed.get(file.path)
        if info is None:
            return finding(Kind.DATA_MISSING)
        if info.size != file.length:
            return finding(Kind.DATA_DAMAGED, problem=f"has {info.size} bytes, but its entry says {file.length}")
        return None

    def _rows(self, source: SourceFile) -> list[Finding]:
        faults: list[Finding] = []
        for _ in range(READS_BEFORE_REPORT):
            try:
                body = stored_file(self._store, source.file, source.slot)
            except CorruptRecord as error:
                faults = [finding(Kind.DATA_DAMAGED, problem=without_code(error))]
                continue
            if body is None:
                # An answer may be cut short, and then lack a file that is in the record.
                faults = [finding(Kind.DATA_MISSING)]
                continue
            faults = list(faults_in_data_file(self._topic, source, body))
            if not faults:
                break
        return faults

    def _at(self, file: FileReference, found: Finding) -> Finding:
        """Return a finding with the place of a data file."""
        path = file.object_path or file.path
        problem = found.problem.removeprefix(f"{path}: ")
        place: Any = {"path": path, "topic": self._topic.topic, "partition": self._partition_id.partition}
        return replace(found, problem=problem, **place)

    def _of_source(self, source: SourceFile, found: Finding) -> Finding:
        """Return a finding with the place of a data file, and all its offsets if it has none."""
        offsets = found.offsets or (source.batches[0].base_offset, source.batches[-1].end_offset)
        # The rows of a file in a record come back with the record.
        slot = source.slot if source.file.in_record else None
        return replace(self._at(source.file, found), slot=slot, offsets=offsets)

    def _prepared(self) -> Iterator[Finding]:
        """Check the files of prepared transactions. Their rows have no offsets yet."""
        for name in self._state.ongoing:
            prepared = self._state.transactions[name].prepared
            for batch in prepared.batches if prepared is not None else ():
                if PartitionId(batch.topic_id, batch.partition) != self._partition_id:
                    continue
                self._named.add(batch.file.path)
                fault = self._fault_of(batch.file)
                if fault is not None and self._live.is_prepared(name, batch.file.path):
                    problem = f"a file of the prepared transaction of {name!r}: {fault.problem}"
                    yield self._at(batch.file, finding(Kind.PREPARED_DATA_LOST, problem=problem))

    def _fault_of(self, file: FileReference) -> Finding | None:
        """Return a finding without a place if a file is missing or damaged."""
        fault = self._absent(file)
        for _ in range(READS_BEFORE_REPORT if self._with_data and fault is None else 0):
            try:
                read_file(self._store, file)
                return None
            except CorruptRecord as error:
                fault = finding(Kind.DATA_DAMAGED, problem=without_code(error))
        return fault

    def _unreferenced(self, index_files: set[str]) -> Iterator[Finding]:
        paths = self._live.unnamed(
            self._partition_id, self._listed.keys() - self._named - index_files, self._partition.sealed
        )
        if paths:
            count = count_unreferenced(self._store, self._prefix, paths.__contains__)
            yield from count.findings(self._prefix, self._topic.topic, self._partition_id.partition)


def _follow_each_other(source: SourceFile) -> bool:
    """Return True if each batch of a file begins where the batch before it ends."""
    begins = accumulate((batch.record_count for batch in source.batches), initial=0)
    return all(batch.first_row == begin for batch, begin in zip(source.batches, begins, strict=False))
