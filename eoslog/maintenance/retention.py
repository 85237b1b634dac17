"""Retention: drop segments that are too old or exceed a partition's size limit. Vacuum deletes their files later."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.session.session import Session
from eoslog.state.draft import Draft
from eoslog.state.entries import LogStartMoved
from eoslog.state.log_start import retention_offset
from eoslog.state.store_state import StoreState


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """The rows that retention dropped from one partition."""

    topic: str
    partition: int
    start_offset: int
    """The first dropped offset: the log start before (inclusive)."""
    end_offset: int
    """The end of the dropped rows (exclusive): the log start now."""


def apply_retention(session: Session) -> list[DroppedRows]:
    """Drop rows beyond the ``retention_ms`` and ``retention_bytes`` of all topics, by the store's clock.

    One slot drops the rows of all partitions of a topic. The request decides again at that slot, because another
    process may have changed the settings, deleted rows or deleted the topic meanwhile.

    Returns:
        The rows that this call dropped.
    """
    log, clock = session.log, session.object_store.clock
    due = log.read(lambda state, slot: _topics_with_work(state, clock.now_ms()))
    dropped: list[DroppedRows] = []
    for topic_id in due:
        dropped += log.append(ApplyRetention(topic_id, clock.now_ms()))
        session.environment.reached("segment.retention.topic_done")
    return dropped


def _topics_with_work(state: StoreState, now_ms: int) -> list[str]:
    return [
        topic.topic_id
        for topic in state.topics.values()
        if topic.config.retention_ms >= 0 or topic.config.retention_bytes >= 0
        if any(
            retention_offset(state.partitions[partition_id], topic.config, now_ms) is not None
            for partition_id in topic.partition_ids()
        )
    ]


@dataclass(frozen=True)
class ApplyRetention:
    """A request to drop the rows beyond a topic's retention settings. The answer lists the dropped rows."""

    topic_id: str
    now_ms: int
    """The time of the store's clock (ms)."""

    def apply(self, draft: Draft) -> list[DroppedRows]:
        dropped: list[DroppedRows] = []
        topic = draft.topics.get(self.topic_id)
        if topic is None:
            return dropped
        for partition_id in topic.partition_ids():
            partition = draft.partitions[partition_id]
            offset = retention_offset(partition, topic.config, self.now_ms)
            if offset is not None:
                dropped.append(DroppedRows(topic.topic, partition_id.partition, partition.log_start_offset, offset))
                draft.append(
                    LogStartMoved(
                        topic_id=self.topic_id, partition=partition_id.partition, offset=offset, reason="retention"
                    )
                )
        return dropped
