"""Deletion of the oldest records of partitions (Kafka's ``Admin.deleteRecords``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.errors import CorruptRecord, InvalidRequest, OffsetOutOfRange, is_whole_number, quoted
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.session.topic_lookup import partition_named
from eoslog.state.draft import Draft
from eoslog.state.log_start import last_end_slot_below, segment_cut_at
from eoslog.state.names import TopicPartition, topic_partition
from eoslog.state.partition_state import Partition, SealedSegment
from eoslog.state.segment_entries import LogStartMoved
from eoslog.state.store_state import StoreState, Topic

ALL_DECIDED = -1
"""All records up to the last stable offset (Kafka's -1: up to the high watermark)."""


class SegmentCut(NamedTuple):
    """A log start within a sealed segment."""

    segment: SealedSegment
    offset: int


def segments_cut(state: StoreState, offsets: Mapping[TopicPartition, int]) -> list[SegmentCut]:
    """Return the sealed segments that log starts at these offsets would split.

    Raises:
        UnknownTopicOrPartition
    """
    found = []
    for given, offset in offsets.items():
        _, partition = partition_named(state, topic_partition(given))
        segment = segment_cut_at(partition, offset) if isinstance(offset, int) else None
        if segment is not None:
            found.append(SegmentCut(segment, offset))
    return found


def end_slots_of_cuts(indexes: SegmentIndexes, cuts: Iterable[SegmentCut]) -> dict[SegmentCut, int]:
    """Return the last slot that ended a transaction whose committed rows each cut deletes; -1 if there is none.

    A segment whose index cannot be read is left out: the damage may be the reason for the deletion.
    """
    found = {}
    for cut in cuts:
        with suppress(CorruptRecord):
            found[cut] = last_end_slot_below(indexes.batches(cut.segment), cut.offset)
    return found


@dataclass(frozen=True)
class DeleteRecords:
    """Move the log starts to these offsets, all or none. The answer has the new log starts."""

    offsets: Mapping[TopicPartition, int]
    end_slots: Mapping[SegmentCut, int]
    """The result of ``end_slots_of_cuts``. A segment that was sealed or rewritten since counts as lost completely."""

    def apply(self, draft: Draft) -> dict[TopicPartition, int]:
        """
        Raises:
            UnknownTopicOrPartition
            OffsetOutOfRange: an offset lies beyond the last stable offset.
            InvalidRequest: an offset is not an integer, or the topic is compacted and does not delete.
        """
        found = {}
        for given, offset in self.offsets.items():
            named = topic_partition(given)
            topic, partition = partition_named(draft, named)
            wanted = _wanted_offset(topic, partition, offset)
            if wanted > partition.log_start_offset:
                segment = segment_cut_at(partition, wanted)
                end_slot = self.end_slots.get(SegmentCut(segment, wanted)) if segment is not None else None
                draft.append(
                    LogStartMoved(
                        topic_id=topic.topic_id,
                        partition=named.partition,
                        offset=wanted,
                        reason="delete_records",
                        removed_end_slot=end_slot,
                    )
                )
            found[named] = max(wanted, partition.log_start_offset)
        return found


def _wanted_offset(topic: Topic, partition: Partition, offset: object) -> int:
    named = f"{topic.topic}-{partition.id.partition}"
    if not is_whole_number(offset):
        raise InvalidRequest(f"partition {named}: the offset must be an integer, not {quoted(offset)}")
    if "delete" not in topic.config.cleanup_policy:
        raise InvalidRequest(
            f"topic {topic.topic} is compacted, so its records are deleted by tombstones; set its cleanup_policy to "
            "'compact,delete' to delete records by offset"
        )
    if offset == ALL_DECIDED:
        return partition.last_stable_offset
    if not 0 <= offset <= partition.last_stable_offset:
        raise OffsetOutOfRange(
            f"records of {named} can be deleted up to its last stable offset {partition.last_stable_offset}, not "
            f"{offset}"
            + (
                f": its high watermark is {partition.high_watermark}, and a transaction is open in between"
                if partition.last_stable_offset < offset <= partition.high_watermark
                else ""
            )
        )
    return offset
