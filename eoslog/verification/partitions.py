"""A partition: its state, the index files of its segments, and its data files. One partition's paths are in memory."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.invariants import broken_in_partition
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Batch, SealedSegment, Verdict
from eoslog.rules.state import StoreState, Topic
from eoslog.segment.rewriting import SourceFile, source_files
from eoslog.segment.stored_file import read_file
from eoslog.store.object_store import ObjectInfo, ObjectNotFound, ObjectStore
from eoslog.verification.data_files import Fault, faults_in_data_file
from eoslog.verification.finding import READS_BEFORE_REPORT, Finding, of_broken
from eoslog.verification.live import Live
from eoslog.verification.segments import SegmentContent, check_segment
from eoslog.verification.strays import count_unreferenced


class PartitionVerification:
    """Looks at one partition as it is in a state, and asks the newest state before it reports."""

    def __init__(
        self, live: Live, state: StoreState, slot: int, topic: Topic, place: PartitionId, *, with_data: bool
    ) -> None:
        self._live = live
        self._store: ObjectStore = live.log.store
        self._state = state
        self._slot = slot
        self._topic = topic
        self._place = place
        self._with_data = with_data
        self._partition = state.partitions[place]
        self._prefix = f"{topic.prefix}{place.partition}/"
        self._listed: dict[str, ObjectInfo] = {}
        self._named: set[str] = set()
        """Paths of data files that the state, or an index, names."""
        self._is_whole = True
        """Whether all indexes could be read: if not, nobody knows which files are named."""
        self._aborted: dict[tuple[int, int], Batch] = {}
        """Aborted rows whose marker was not met yet, by producer id and end slot."""

    def findings(self) -> Iterator[Finding]:
        for broken in broken_in_partition(self._state, self._topic, self._partition, self._slot):
            yield of_broken(broken, self._state)
        # Whatever the state names was put before: it is listed, or was dropped since.
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
        """A segment's content, with what is wrong with it, if that is so at each look and the log still names it."""
        for _ in range(READS_BEFORE_REPORT):
            content = check_segment(self._store, self._state, self._slot, self._topic, self._place, segment)
            if not content.findings:
                return content
            if not self._live.has_segment(self._place, segment):
                return SegmentContent()
        return content

    def _batches(self, batches: list[Batch]) -> Iterator[Finding]:
        for source in source_files(batches):
            if source.file.path in self._named or not _follow_each_other(source):
                yield self._finding("file-shared", "two batches name the same rows of the file", source)
                continue
            self._named.add(source.file.path)
            yield from self._file(source)
        for batch in batches:
            key = (batch.producer_id, batch.end_slot)
            if batch.control is not None:
                self._aborted.pop(key, None)
            elif batch.verdict is Verdict.ABORTED:
                self._aborted.setdefault(key, batch)

    def _without_marker(self) -> Iterator[Finding]:
        """Each aborted transaction of which rows are left has its marker behind them."""
        for (producer_id, _), batch in self._aborted.items():
            yield Finding(
                kind="aborted-inconsistent",
                problem=f"rows of producer {producer_id} are aborted, and no marker follows them",
                topic=self._topic.topic,
                partition=self._place.partition,
                offsets=(batch.base_offset, batch.end_offset),
            )

    def _file(self, source: SourceFile) -> Iterator[Finding]:
        info = self._listed.get(source.file.path)
        found: list[Finding] = []
        if info is None:
            found.append(self._finding("data-missing", "the object is missing", source))
        elif info.size != source.file.length:
            problem = f"has {info.size} bytes, but its entry says {source.file.length}"
            found.append(self._finding("data-damaged", problem, source))
        elif self._with_data:
            found += self._rows(source)
        if found and self._live.names_file(self._place, source.batches[0]):
            yield from found

    def _rows(self, source: SourceFile) -> Iterator[Finding]:
        faults: list[Fault] = []
        for _ in range(READS_BEFORE_REPORT):
            try:
                body = self._store.get(source.file.path).body
            except ObjectNotFound:
                yield self._finding("data-missing", "the object is missing", source)
                return
            faults = list(faults_in_data_file(self._topic, source, body))
            if not faults:
                return
        for fault in faults:
            yield self._finding(fault.kind, fault.problem, source, fault.offsets)

    def _finding(self, kind: str, problem: str, source: SourceFile, offsets: tuple[int, int] | None = None) -> Finding:
        return Finding(
            kind=kind,
            problem=problem,
            path=source.file.path,
            topic=self._topic.topic,
            partition=self._place.partition,
            offsets=offsets or (source.batches[0].base_offset, source.batches[-1].end_offset),
        )

    def _prepared(self) -> Iterator[Finding]:
        """Files of prepared transactions: they have no offsets yet."""
        for name in self._state.ongoing:
            prepared = self._state.transactions[name].prepared
            for batch in prepared.batches if prepared is not None else ():
                if PartitionId(batch.topic_id, batch.partition) != self._place:
                    continue
                self._named.add(batch.file.path)
                fault = self._fault_of(batch.file)
                if fault is not None and self._live.is_prepared(name, batch.file.path):
                    yield Finding(
                        kind=fault[0],
                        problem=f"a file of the prepared transaction of {name!r}: {fault[1]}",
                        path=batch.file.path,
                        topic=self._topic.topic,
                        partition=self._place.partition,
                    )

    def _fault_of(self, file: FileReference) -> tuple[str, str] | None:
        """Whether a file is there as it was written: kind and problem if it is not."""
        info = self._listed.get(file.path)
        if info is None:
            return "data-missing", "the object is missing"
        if info.size != file.length:
            return "data-damaged", f"has {info.size} bytes, but its entry says {file.length}"
        problem = ""
        for _ in range(READS_BEFORE_REPORT if self._with_data else 0):
            try:
                read_file(self._store, file)
                return None
            except CorruptRecord as error:
                problem = without_code(error)
        return ("data-damaged", problem) if problem else None

    def _unreferenced(self, index_files: set[str]) -> Iterator[Finding]:
        paths = self._live.unnamed(self._place, self._listed.keys() - self._named - index_files, self._partition.sealed)
        if paths:
            count = count_unreferenced(self._store, self._prefix, paths.__contains__)
            yield from count.findings(self._prefix, self._topic.topic, self._place.partition)


def _follow_each_other(source: SourceFile) -> bool:
    """Whether each batch of a file begins where the one before ends."""
    row = 0
    for batch in source.batches:
        if batch.first_row != row:
            return False
        row += batch.record_count
    return True
