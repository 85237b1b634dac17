"""A sealed segment's index files: they are there, what their entry says, and what the state says of the segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.invariants import broken_in_aborted, broken_in_batches, gaps
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import NO_SLOT, Batch, SealedSegment, Verdict
from eoslog.rules.state import StoreState, Topic
from eoslog.segment.data_file import check_file
from eoslog.segment.producer_snapshot import decode_producer_snapshot
from eoslog.segment.segment_index import DerivedFiles, decode_derived_files, decode_segment_index
from eoslog.segment.transaction_index import decode_transaction_index
from eoslog.store.object_store import ObjectStore
from eoslog.verification.finding import Finding, of_broken


@dataclass(slots=True)
class SegmentContent:
    """What came of reading a segment's index files."""

    findings: list[Finding] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


def check_segment(
    store: ObjectStore, state: StoreState, slot: int, topic: Topic, place: PartitionId, segment: SealedSegment
) -> SegmentContent:
    """Look at a segment's files, and compare them with the state."""
    content = SegmentContent()

    def add(kind: str, problem: str, path: str) -> None:
        offsets = (segment.base_offset, segment.end_offset)
        content.findings.append(
            Finding(
                kind=kind, problem=problem, path=path, topic=topic.topic, partition=place.partition, offsets=offsets
            )
        )

    def read(kind: str, file: FileReference, body: bytes | None) -> bytes | None:
        if body is None:
            add(f"{kind}-missing", "the object is missing", file.path)
            return None
        try:
            check_file(body, file.length, file.crc32c, file.path)
        except CorruptRecord as error:
            add(f"{kind}-damaged", without_code(error), file.path)
            return None
        return body

    files = [("index", segment.index), ("snapshot", segment.snapshot)]
    if segment.txnindex is not None:
        files.append(("txnindex", segment.txnindex))
    stored = store.get_many([file.path for _, file in files])
    bodies = {
        kind: read(kind, file, None if found is None else found.body)
        for (kind, file), found in zip(files, stored, strict=True)
    }
    index = bodies["index"]
    if index is None:
        return content
    try:
        content.batches = decode_segment_index(index, segment.index.path)
        derived = decode_derived_files(index, segment.index.path)
        aborted = decode_transaction_index(derived.txnindex, segment.index.path)
        decode_producer_snapshot(derived.snapshot, segment.index.path)
    except CorruptRecord as error:
        add("index-damaged", without_code(error), segment.index.path)
        return content
    for problem in (
        *_unlike_the_entry(segment, content.batches),
        *_unlike_the_files(segment, derived),
        *_unlike_the_topic(state, topic, place, segment, content.batches),
    ):
        add("index-differs", problem, segment.index.path)
    broken = broken_in_batches(content.batches, topic, place.partition, state.time_ms, slot)
    for each in (*broken, *broken_in_aborted(content.batches, aborted)):
        content.findings.append(of_broken(each, state, place, segment.index.path))
    return content


def _unlike_the_entry(segment: SealedSegment, batches: list[Batch]) -> Iterator[str]:
    files = {batch.file.path: batch.file.length for batch in batches if batch.file is not None}
    latest = max((each.end_slot for each in batches if each.verdict is Verdict.COMMITTED), default=NO_SLOT)
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
            yield f"it has {found} {what}, its entry says {said}"
    if latest > segment.max_end_slot:
        yield f"it holds what slot {latest} committed, its entry says {segment.max_end_slot} at most"
    if any(batch.verdict is Verdict.OPEN for batch in batches):
        yield "it holds undecided rows"


def _unlike_the_files(segment: SealedSegment, derived: DerivedFiles) -> Iterator[str]:
    if (segment.txnindex is None) != (not derived.txnindex):
        yield "it knows aborted transactions, or has a .txnindex, but not both"
    for name, file, body in (
        (".txnindex", segment.txnindex, derived.txnindex),
        (".snapshot", segment.snapshot, derived.snapshot),
    ):
        if file is None:
            continue
        try:
            check_file(body, file.length, file.crc32c, file.path)
        except CorruptRecord:
            yield f"what it holds of its {name} is not what its entry says"


def _unlike_the_topic(
    state: StoreState, topic: Topic, place: PartitionId, segment: SealedSegment, batches: list[Batch]
) -> Iterator[str]:
    outside = [
        each for each in batches if each.base_offset < segment.base_offset or each.end_offset > segment.end_offset
    ]
    if outside:
        yield f"it holds offset {outside[0].base_offset}, outside of its segment"
    # Compaction removes batches, and only compaction.
    compacted = topic.config.is_compacted or state.partitions[place].cleaned_offset > 0
    for first, end in gaps(batches, segment.base_offset, segment.end_offset):
        overlaps = any(each.base_offset < end and first < each.end_offset for each in batches)
        if not compacted or overlaps:
            yield f"offsets {first} to {end - 1} are no batch's, or those of several"
