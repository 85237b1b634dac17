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
from eoslog.segment.rebuilding import derived_snapshot
from eoslog.segment.segment_index import decode_segment_index, decode_txnindex_copy
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
    before = [each for each in state.partitions[place].sealed if each.base_offset <= segment.base_offset]

    def add(kind: str, problem: str, path: str) -> None:
        offsets = (segment.base_offset, segment.end_offset)
        content.findings.append(
            Finding(
                kind=kind, problem=problem, path=path, topic=topic.topic, partition=place.partition, offsets=offsets
            )
        )

    def read(kind: str, file: FileReference, body: bytes | None) -> bytes | None:
        if body is None:
            what, problem = "missing", "the object is missing"
        else:
            try:
                check_file(body, file.length, file.crc32c, file.path)
                return body
            except CorruptRecord as error:
                what, problem = "damaged", without_code(error)
        if kind == "snapshot" and derived_snapshot(store, before) is None:
            what, problem = "lost", f"{problem}, and its content does not follow from the segments before"
        add(f"{kind}-{what}", problem, file.path)
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
            add("snapshot-lost", f"it was written like this: {without_code(error)}", segment.snapshot.path)
    if index is None:
        return content
    try:
        content.batches = decode_segment_index(index, segment.index.path)
        txnindex = decode_txnindex_copy(index, segment.index.path)
        aborted = decode_transaction_index(txnindex, segment.index.path)
    except CorruptRecord as error:
        add("index-damaged", without_code(error), segment.index.path)
        return content
    for problem in index_differences(topic, state.partitions[place], segment, content.batches, txnindex):
        add("index-differs", problem, segment.index.path)
    broken = broken_in_batches(content.batches, topic, place.partition, state.time_ms, slot)
    for each in (*broken, *broken_in_aborted(content.batches, aborted)):
        content.findings.append(of_broken(each, state, place, segment.index.path))
    return content
