"""What a sealed segment's index holds, compared with its entry, its other files and the state."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.errors import CorruptRecord
from eoslog.rules.invariants import gaps
from eoslog.rules.partition_state import NO_SLOT, Batch, Partition, SealedSegment, Verdict
from eoslog.rules.state import Topic
from eoslog.segment.data_file import check_file


def index_differences(
    topic: Topic, partition: Partition, segment: SealedSegment, batches: list[Batch], txnindex: bytes
) -> Iterator[str]:
    """What is not as it is said elsewhere, in words."""
    yield from _unlike_the_entry(segment, batches)
    yield from _unlike_the_txnindex(segment, txnindex)
    yield from _unlike_the_topic(topic, partition, segment, batches)


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


def _unlike_the_txnindex(segment: SealedSegment, txnindex: bytes) -> Iterator[str]:
    if segment.txnindex is None:
        if txnindex:
            yield "it knows aborted transactions, and its entry names no .txnindex"
        return
    try:
        check_file(txnindex, segment.txnindex.length, segment.txnindex.crc32c, segment.txnindex.path)
    except CorruptRecord:
        yield "what it holds of its .txnindex is not what its entry says"


def _unlike_the_topic(
    topic: Topic, partition: Partition, segment: SealedSegment, batches: list[Batch]
) -> Iterator[str]:
    outside = [
        each for each in batches if each.base_offset < segment.base_offset or each.end_offset > segment.end_offset
    ]
    if outside:
        yield f"it holds offset {outside[0].base_offset}, outside of its segment"
    # Compaction removes batches, and only compaction.
    compacted = topic.config.is_compacted or partition.cleaned_offset > 0
    for first, end in gaps(batches, segment.base_offset, segment.end_offset):
        overlaps = any(each.base_offset < end and first < each.end_offset for each in batches)
        if not compacted or overlaps:
            yield f"offsets {first} to {end - 1} are no batch's, or those of several"
