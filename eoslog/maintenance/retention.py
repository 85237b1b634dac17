"""Retention: segments that are too old or too many are dropped from the log; vacuum deletes their files."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.log.log import Log
from eoslog.state.draft import Draft
from eoslog.state.log_start import retention_offset
from eoslog.state.segment_entries import LogStartMoved
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """What retention dropped of one partition."""

    topic: str
    partition: int
    start_offset: int
    """Where the log started before (inclusive)."""
    end_offset: int
    """Where it starts now: the end of what was dropped (exclusive)."""


def apply_retention(log: Log[StoreState], store: ObjectStore, environment: Environment) -> list[DroppedRows]:
    """Drop what ``retention_ms`` and ``retention_bytes`` of all topics no longer keep, by the store's clock.

    Each topic's partitions go in one slot. What is due is decided at that slot, so settings that were changed, rows
    that were deleted and topics that are gone meanwhile count.

    Returns:
        What this call dropped.
    """
    due = log.read(lambda state, slot: _topics_with_work(state, store.clock.now_ms()))
    dropped: list[DroppedRows] = []
    for topic_id in due:
        dropped += log.append(ApplyRetention(topic_id, store.clock.now_ms()))
        environment.reached("segment.retention.topic_done")
    return dropped


def _topics_with_work(state: StoreState, now_ms: int) -> list[str]:
    return [
        topic.topic_id
        for topic in state.topics.values()
        if topic.config.retention_ms >= 0 or topic.config.retention_bytes >= 0
        if any(
            retention_offset(state.partitions[place], topic.config, now_ms) is not None
            for place in topic.partition_ids()
        )
    ]


@dataclass(frozen=True)
class ApplyRetention:
    """Drop what the settings of a topic no longer keep. The answer lists the rows that went."""

    topic_id: str
    now_ms: int
    """By the store's clock."""

    def apply(self, draft: Draft) -> list[DroppedRows]:
        dropped: list[DroppedRows] = []
        topic = draft.topics.get(self.topic_id)
        if topic is None:
            return dropped
        for place in topic.partition_ids():
            partition = draft.partitions[place]
            offset = retention_offset(partition, topic.config, self.now_ms)
            if offset is not None:
                dropped.append(DroppedRows(topic.topic, place.partition, partition.log_start_offset, offset))
                draft.append(
                    LogStartMoved(topic_id=self.topic_id, partition=place.partition, offset=offset, reason="retention")
                )
        return dropped
