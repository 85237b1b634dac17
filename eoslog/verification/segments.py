"""A sealed segment's index files: they are there, as their entry says, and hold what they should."""

from __future__ import annotations

from dataclasses import dataclass, field

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.invariants import broken_in_aborted, broken_in_batches
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Batch, SealedSegment
from eoslog.rules.state import StoreState, Topic
from eoslog.segment.data_file import check_file
from eoslog.segment.producer_snapshot import decode_producer_snapshot
from eoslog.segment.segment_index import decode_derived_files, decode_segment_index
from eoslog.segment.transaction_index import decode_transaction_index
from eoslog.store.object_store import ObjectStore
from eoslog.verification.finding import Finding, of_broken
from eoslog.verification.index_content import index_differences


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
    for problem in index_differences(topic, state.partitions[place], segment, content.batches, derived):
        add("index-differs", problem, segment.index.path)
    broken = broken_in_batches(content.batches, topic, place.partition, state.time_ms, slot)
    for each in (*broken, *broken_in_aborted(content.batches, aborted)):
        content.findings.append(of_broken(each, state, place, segment.index.path))
    return content
