"""Deleting the oldest records of partitions (Kafka's ``Admin.deleteRecords``)."""

from __future__ import annotations

from collections.abc import Mapping

from eoslog.client.topics import partition_named
from eoslog.errors import InvalidRequest, OffsetOutOfRange
from eoslog.rules.draft import Draft
from eoslog.rules.entries import LogStartMoved
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import Partition, Topic

ALL_DECIDED = -1
"""All records up to the last stable offset (Kafka's -1: up to the high watermark)."""


def delete_records(draft: Draft, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Move the log starts to these offsets, all or none. Returns the log starts as they are then.

    Raises:
        UnknownTopicOrPartition
        OffsetOutOfRange: an offset lies beyond the last stable offset.
        InvalidRequest: an offset is no number, or the topic is compacted and does not delete.
    """
    found = {}
    for given, offset in offsets.items():
        place = TopicPartition(*given)
        topic, partition = partition_named(draft, place)
        wanted = _wanted_offset(topic, partition, offset)
        if wanted > partition.log_start_offset:
            draft.append(
                LogStartMoved(
                    topic_id=topic.topic_id, partition=place.partition, offset=wanted, reason="delete_records"
                )
            )
        found[place] = max(wanted, partition.log_start_offset)
    return found


def _wanted_offset(topic: Topic, partition: Partition, offset: object) -> int:
    place = f"{topic.topic}-{partition.id.partition}"
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise InvalidRequest(f"records of {place} are deleted up to an offset, not {offset!r}")
    if "delete" not in topic.config.cleanup_policy:
        raise InvalidRequest(
            f"topic {topic.topic} is compacted, and its records are deleted by tombstones; its cleanup_policy "
            "'compact,delete' would allow more"
        )
    if offset == ALL_DECIDED:
        return partition.last_stable_offset
    if not 0 <= offset <= partition.last_stable_offset:
        raise OffsetOutOfRange(
            f"records of {place} can be deleted up to its last stable offset {partition.last_stable_offset}, not "
            f"{offset}"
            + (
                f": its high watermark is {partition.high_watermark}, and a transaction is open in between"
                if partition.last_stable_offset < offset <= partition.high_watermark
                else ""
            )
        )
    return offset
