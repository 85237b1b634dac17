"""Requests for offsets: the ends of partitions, offsets by time, and the ends of leader epochs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError
from eoslog.gateway.error_codes import error_code
from eoslog.gateway.fetch import isolation_of
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.protocol import Request
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.offset_lookup import offset_for_time
from eoslog.session.session import Session
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic

_LATEST, _EARLIEST, _LARGEST_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
LEADER_EPOCH = 0
"""The epoch of all leaders: a partition has no leader, so none is ever elected."""


class _Found(NamedTuple):
    code: ErrorCode
    offset: int = -1
    timestamp: int = -1


class Offsets:
    """Answers requests for offsets."""

    def __init__(self, store: Session, topics: KnownTopics, executor: Executor) -> None:
        self._store = store
        self._topics = topics
        self._executor = executor

    async def list(self, request: Request) -> Any:
        """Answer ListOffsets."""
        failure = await self._topics.refresh()
        isolation = isolation_of(getattr(request.message, "isolation_level", 0))

        def found_of(topic: str, wanted: Any) -> _Found:
            # An end that is not the newest would be wrong, so the client asks again.
            return self._found(topic, wanted, isolation) if failure is None else _Found(error_code(failure))

        found = await asyncio.get_running_loop().run_in_executor(
            self._executor,
            lambda: [[found_of(topic.name, each) for each in topic.partitions] for topic in request.message.topics],
        )
        return request.api.response(
            topics=tuple(
                request.api.part(
                    "ListOffsetsTopicResponse",
                    name=topic.name,
                    partitions=tuple(
                        request.api.part(
                            "ListOffsetsPartitionResponse",
                            partition_index=each.partition_index,
                            error_code=answer.code,
                            timestamp=answer.timestamp,
                            offset=answer.offset,
                            leader_epoch=LEADER_EPOCH if answer.offset >= 0 else -1,
                        )
                        for each, answer in zip(topic.partitions, answers, strict=True)
                    ),
                )
                for topic, answers in zip(request.message.topics, found, strict=True)
            )
        )

    def _found(self, name: str, wanted: Any, isolation: IsolationLevel) -> _Found:
        topic, partition = self._topics.known(name), self._topics.partition(name, wanted.partition_index)
        if topic is None or partition is None:
            return _Found(ErrorCode.unknown_topic_or_partition)
        try:
            return self._offset(topic, partition, wanted.timestamp, isolation)
        except EosLogError as error:
            return _Found(error_code(error))

    def _offset(self, topic: Topic, partition: Partition, timestamp: int, isolation: IsolationLevel) -> _Found:
        if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            return _Found(ErrorCode.none, partition.log_start_offset)
        if timestamp == _LATEST:
            return _Found(ErrorCode.none, visible_end(partition, isolation))
        if timestamp == _LARGEST_TIMESTAMP:
            newest = max(
                [batch.max_timestamp for batch in partition.active if batch.control is None]
                + [segment.max_timestamp for segment in partition.sealed],
                default=None,
            )
            if newest is None:
                return _Found(ErrorCode.none)
            timestamp = newest
        elif timestamp < 0:
            return _Found(ErrorCode.unsupported_version)
        found = offset_for_time(self._store, topic, partition, isolation=isolation, timestamp_ms=timestamp)
        return _Found(ErrorCode.none) if found is None else _Found(ErrorCode.none, found.offset, found.timestamp)

    async def of_leader_epoch(self, request: Request) -> Any:
        """Answer OffsetForLeaderEpoch: all rows belong to the only epoch."""
        failure = await self._topics.refresh()

        def part(topic: str, wanted: Any) -> Any:
            # With an older end a consumer would take the rows after it for lost, and begin anew.
            partition = self._topics.partition(topic, wanted.partition) if failure is None else None
            is_known = partition is not None and wanted.leader_epoch == LEADER_EPOCH
            missing = ErrorCode.unknown_topic_or_partition if failure is None else error_code(failure)
            return request.api.part(
                "EpochEndOffset",
                partition=wanted.partition,
                error_code=missing if partition is None else ErrorCode.none,
                leader_epoch=LEADER_EPOCH if is_known else -1,
                end_offset=partition.high_watermark if is_known and partition is not None else -1,
            )

        return request.api.response(
            topics=tuple(
                request.api.part(
                    "OffsetForLeaderTopicResult",
                    topic=topic.topic,
                    partitions=tuple(part(topic.topic, each) for each in topic.partitions),
                )
                for topic in request.message.topics
            )
        )
