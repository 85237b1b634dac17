"""Which segments of a partition are too old or too many (Kafka's ``UnifiedLog.deleteOldSegments``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eoslog.rules.partition_state import Partition
from eoslog.rules.topic_entries import TopicConfig


class _Stretch(NamedTuple):
    end_offset: int
    max_timestamp: int
    bytes: int


def retention_offset(partition: Partition, config: TopicConfig, now_ms: int) -> int | None:
    """Where the log should start at ``now_ms`` of the store's clock; None if nothing is to go.

    A segment goes, the oldest first, when its latest row or control row is older than ``retention_ms``, or when the
    partition holds ``retention_bytes`` without it. The active segment goes as a whole or not at all, and only if it is
    decided, so this never lies beyond the last stable offset.
    """
    if "delete" not in config.cleanup_policy:
        return None
    stretches = list(_stretches(partition))
    size = partition.active_bytes + sum(segment.bytes for segment in partition.sealed)
    offset = None
    for stretch in stretches:
        is_old = config.retention_ms >= 0 and now_ms - stretch.max_timestamp > config.retention_ms
        is_surplus = config.retention_bytes >= 0 and size - stretch.bytes >= config.retention_bytes
        if not is_old and not is_surplus:
            break
        size -= stretch.bytes
        offset = stretch.end_offset
    return offset


def _stretches(partition: Partition) -> Iterator[_Stretch]:
    for segment in partition.sealed:
        yield _Stretch(segment.end_offset, segment.max_timestamp, segment.bytes)
    if partition.active and partition.last_stable_offset == partition.next_offset:
        latest = max(batch.max_timestamp for batch in partition.active)
        yield _Stretch(partition.next_offset, latest, partition.active_bytes)
