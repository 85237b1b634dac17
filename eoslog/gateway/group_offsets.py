"""Requests for the offsets of groups: their commit, inside and outside of transactions, and their fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError
from eoslog.gateway.classic_requests import NO_GENERATION
from eoslog.gateway.error_codes import coordinator_code
from eoslog.gateway.group_coordinator import GroupCoordinator, GroupRefusal
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.protocol import Request
from eoslog.session.session import Session
from eoslog.state.draft import AppendEntry
from eoslog.state.group_entries import LONGEST_METADATA, GroupOffset, GroupOffsets, OffsetsCommitted
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.names import PartitionId, check_id
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.store_state import CommittedOffset, StoreState


@dataclass(frozen=True)
class GivenOffsets:
    """The offsets of a request that commits them. Some are refused before the request reaches the log."""

    offsets: GroupOffsets | None
    """The offsets for the log; None if all are refused."""
    refused: Mapping[tuple[str, int], ErrorCode]
    """The codes of the refused offsets, by topic and partition."""

    def answer(self, request: Request, kind: str, code: ErrorCode) -> Any:
        """Return the answer to the request.

        Args:
            kind: the beginning of the names of the answer's parts.
            code: the outcome for the partitions that were not refused.
        """
        return request.api.response(
            topics=tuple(
                request.api.part(
                    f"{kind}ResponseTopic",
                    name=topic.name,
                    partitions=tuple(
                        request.api.part(
                            f"{kind}ResponsePartition",
                            partition_index=each.partition_index,
                            error_code=self.refused.get((topic.name, each.partition_index), code),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.message.topics
            )
        )


async def given_offsets(topics: KnownTopics, message: Any) -> GivenOffsets:
    """Return the offsets of a request that commits them. ``check_names`` checks their names later."""
    found: list[GroupOffset] = []
    refused: dict[tuple[str, int], ErrorCode] = {}
    await topics.look_for((topic.name, each.partition_index) for topic in message.topics for each in topic.partitions)
    for topic in message.topics:
        known = topics.known(topic.name)
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            if known is None or topics.partition(topic.name, each.partition_index) is None:
                refused[topic.name, each.partition_index] = ErrorCode.unknown_topic_or_partition
            elif len(metadata) > LONGEST_METADATA:
                refused[topic.name, each.partition_index] = ErrorCode.offset_metadata_too_large
            elif each.committed_offset < 0:
                refused[topic.name, each.partition_index] = ErrorCode.offset_out_of_range
            else:
                found.append(
                    GroupOffset(
                        topic_id=known.topic_id,
                        partition=each.partition_index,
                        offset=each.committed_offset,
                        metadata=metadata,
                        leader_epoch=max(-1, getattr(each, "committed_leader_epoch", -1)),
                    )
                )
    if not found:
        return GivenOffsets(None, refused)
    generation = getattr(message, "generation_id", getattr(message, "generation_id_or_member_epoch", NO_GENERATION))
    # Without validation: ``check_names`` answers a wrong name with one error for all partitions.
    offsets = GroupOffsets.model_construct(
        group=message.group_id,
        generation=max(NO_GENERATION, generation),
        member_id=getattr(message, "member_id", ""),
        group_instance_id=getattr(message, "group_instance_id", None),
        offsets=tuple(found),
    )
    return GivenOffsets(offsets, refused)


def check_names(offsets: GroupOffsets) -> None:
    """Check the ids that a client gives with offsets.

    Raises:
        InvalidRequest: the group id, the member id or the instance id is invalid.
    """
    check_id("group id", offsets.group)
    for kind, name in (("member id", offsets.member_id or None), ("group instance id", offsets.group_instance_id)):
        if name is not None:
            check_id(kind, name)


class GroupOffsetRequests:
    """Answers requests for the offsets of groups outside of transactions."""

    def __init__(self, store: Session, topics: KnownTopics, groups: GroupCoordinator, executor: Executor) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._executor = executor

    async def commit(self, request: Request) -> Any:
        """Answer OffsetCommit."""
        given = await given_offsets(self._topics, request.message)
        offsets = given.offsets
        code = ErrorCode.none
        if offsets is not None:
            try:
                given_by_client = offsets
                offsets = await self._groups.offsets_for_log(given_by_client, in_transaction=False)
                await self._groups.commit(given_by_client, partial(self._commit, offsets))
            except GroupRefusal as error:
                code = error.code
            except EosLogError as error:
                code = self._groups.code_of_commit(offsets, coordinator_code(error))
        return given.answer(request, "OffsetCommit", code)

    def _commit(self, offsets: GroupOffsets) -> None:
        check_names(offsets)
        self._store.append(AppendEntry(OffsetsCommitted(committed=offsets, time_ms=self._store.now_ms())))

    async def fetch(self, request: Request) -> Any:
        """Answer OffsetFetch.

        With ``require_stable`` an offset that an open transaction may set is an error (KIP-447). An overdue transaction
        is aborted first, because perhaps no other process would abort it.
        """
        message = request.message
        has_groups = hasattr(message, "groups")
        # A group may have many offsets, and a request may ask for all of them many times.
        groups = message.groups if has_groups else (message,)
        asked = list(dict.fromkeys((each.group_id, each.topics) for each in groups))
        require_stable = getattr(message, "require_stable", False)
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._executor,
                lambda: self._store.overdue_transactions.read_unblocked(
                    lambda state, slot: [_group_found(state, *each, require_stable=require_stable) for each in asked],
                    lambda found: any(map(_is_unstable, found)),
                ),
            )
            code = ErrorCode.none
        except EosLogError as error:
            found, code = [[] for _ in asked], coordinator_code(error)
        if not has_groups:
            topics = _topics_part(request, found[0], "OffsetFetchResponseTopic", "OffsetFetchResponsePartition")
            return request.api.response(topics=topics, error_code=code)
        return request.api.response(
            groups=tuple(
                request.api.part(
                    "OffsetFetchResponseGroup",
                    group_id=group_id,
                    topics=_topics_part(request, topics, "OffsetFetchResponseTopics", "OffsetFetchResponsePartitions"),
                    error_code=code,
                )
                for (group_id, _), topics in zip(asked, found, strict=True)
            )
        )


_Found = list[tuple[str, list[tuple[int, CommittedOffset | None, ErrorCode]]]]
"""By topic: the partitions, each with its committed offset and its code."""


def _group_found(state: StoreState, group_id: str, topics: Any, *, require_stable: bool) -> _Found:
    """Return the committed offsets of a group.

    Args:
        topics: the topics of the request; None for all topics of the group.
    """
    known = state.groups.get(group_id, EMPTY_GROUP).offsets
    pending = pending_partitions(state, group_id) if require_stable else set()
    if topics is None:
        by_topic: dict[str, list[PartitionId]] = {}
        for partition_id in sorted(known.keys() | pending):
            topic = state.topics.get(partition_id.topic_id)
            if topic is not None:
                by_topic.setdefault(topic.topic, []).append(partition_id)
        wanted = list(by_topic.items())
    else:
        wanted = [
            (topic.name, [PartitionId(state.topic_ids.get(topic.name, ""), each) for each in topic.partition_indexes])
            for topic in topics
        ]
    return [
        (
            name,
            [
                (each.partition, None, ErrorCode.unstable_offset_commit)
                if each in pending
                else (each.partition, known.get(each), ErrorCode.none)
                for each in partition_ids
            ],
        )
        for name, partition_ids in wanted
    ]


def _is_unstable(found: _Found) -> bool:
    return any(code is ErrorCode.unstable_offset_commit for _, partitions in found for _, _, code in partitions)


def _topics_part(request: Request, found: _Found, topic_kind: str, partition_kind: str) -> tuple[Any, ...]:
    return tuple(
        request.api.part(
            topic_kind,
            name=name,
            partitions=tuple(
                request.api.part(
                    partition_kind,
                    partition_index=partition,
                    committed_offset=-1 if offset is None else offset.offset,
                    committed_leader_epoch=-1 if offset is None else offset.leader_epoch,
                    metadata="" if offset is None else offset.metadata,
                    error_code=code,
                )
                for partition, offset, code in partitions
            ),
        )
        for name, partitions in found
    )
