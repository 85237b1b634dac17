"""Requests for groups: their members join and leave, and admin clients list, describe and delete groups and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from eoslog.admin.admin import Admin
from eoslog.errors import EosLogError, InvalidRequest
from eoslog.gateway.classic_members import CONSUMER_PROTOCOL_TYPE
from eoslog.gateway.classic_requests import (
    NO_GENERATION,
    GroupDescription,
    GroupState,
    JoinRequest,
    MemberIdentity,
    SyncRequest,
)
from eoslog.gateway.error_codes import coordinator_code
from eoslog.gateway.group_coordinator import GroupCoordinator, GroupRefusal
from eoslog.gateway.own_consumers import describe_without_coordinator, has_consumers, state_without_coordinator
from eoslog.gateway.protocol import Request, milliseconds
from eoslog.session.session import Session
from eoslog.state.groups import EMPTY_GROUP, may_subscribe
from eoslog.state.names import TopicPartition, check_id
from eoslog.state.store_state import Group, StoreState

_FIRST_WITH_MEMBER_IDS = 4
"""The first version of JoinGroup in which a member gets its id before it joins (KIP-394)."""
_FIRST_WITH_NO_PROTOCOL = 7
"""The first version of JoinGroup whose answer may have null as its protocol."""
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9
"""The first version of JoinGroup in which the leader learns that it need not assign (KIP-814)."""
_FIRST_WITH_PROTOCOL = 5
"""The first version of SyncGroup that names the protocol (KIP-559)."""
_FIRST_WITH_MEMBERS = 3
"""The first version of LeaveGroup that lists members."""
_FIRST_WITH_NOT_FOUND = 6
"""The first version of DescribeGroups with an error for a group that does not exist (KIP-1043)."""
_CLASSIC, _CONSUMER = "classic", "consumer"
"""Kafka's types of groups. Consumers of eoslog are shown as members of Kafka's newer protocol, which is like theirs."""
_CODES_OF_GROUP = frozenset(
    {ErrorCode.group_id_not_found, ErrorCode.invalid_request, ErrorCode.coordinator_not_available}
)
"""Codes of OffsetDelete that concern the group as a whole. Other codes are those of single partitions."""
_DEAD = GroupDescription(state=GroupState.DEAD, protocol_type="", protocol_name="", members=())
"""The description of a group that does not exist."""
T = TypeVar("T")


def _code(error: EosLogError | GroupRefusal) -> ErrorCode:
    return error.code if isinstance(error, GroupRefusal) else coordinator_code(error)


def _check_group_id(group_id: str) -> None:
    """Raises: GroupRefusal"""
    try:
        check_id("group id", group_id)
    except InvalidRequest as error:
        raise GroupRefusal(ErrorCode.invalid_group_id, str(error)) from None


class GroupRequests:
    """Answers requests for groups."""

    def __init__(self, store: Session, coordinator: GroupCoordinator, executor: Executor) -> None:
        self._store = store
        self._admin = Admin(store)
        self._coordinator = coordinator
        self._executor = executor

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def join(self, request: Request) -> Any:
        """Answer JoinGroup."""
        message = request.message
        session_timeout_ms = milliseconds(message.session_timeout)
        rebalance_timeout = getattr(message, "rebalance_timeout", None)
        joining = JoinRequest(
            member_id=message.member_id,
            group_instance_id=getattr(message, "group_instance_id", None),
            client_id=request.client_id or "",
            client_host=request.client_host,
            protocol_type=message.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in message.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
            needs_member_id=request.api.version >= _FIRST_WITH_MEMBER_IDS,
            can_skip_assignment=request.api.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
        )
        try:
            _check_group_id(message.group_id)
            answer = await self._coordinator.join(message.group_id, joining)
        except (EosLogError, GroupRefusal) as error:
            return self._joined(request, error_code=_code(error), member_id=message.member_id)
        return self._joined(
            request,
            error_code=answer.error,
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=tuple(
                request.api.part(
                    "JoinGroupResponseMember",
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata,
                )
                for each in answer.members
            ),
        )

    @staticmethod
    def _joined(request: Request, **values: Any) -> Any:
        values = {"generation_id": NO_GENERATION, "leader": "", "members": (), "protocol_name": None} | values
        if values["protocol_name"] is None and request.api.version < _FIRST_WITH_NO_PROTOCOL:
            values["protocol_name"] = ""
        return request.api.response(**values)

    async def sync(self, request: Request) -> Any:
        """Answer SyncGroup."""
        message = request.message
        syncing = SyncRequest(
            member=_identity(message),
            needs_protocol=request.api.version >= _FIRST_WITH_PROTOCOL,
            protocol_type=getattr(message, "protocol_type", None),
            protocol_name=getattr(message, "protocol_name", None),
            assignments=tuple((each.member_id, each.assignment) for each in message.assignments),
        )
        try:
            _check_group_id(message.group_id)
            answer = await self._coordinator.sync(message.group_id, syncing)
        except (EosLogError, GroupRefusal) as error:
            return request.api.response(error_code=_code(error), assignment=b"")
        return request.api.response(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )

    async def heartbeat(self, request: Request) -> Any:
        """Answer Heartbeat."""
        try:
            _check_group_id(request.message.group_id)
            code = await self._coordinator.heartbeat(request.message.group_id, _identity(request.message))
        except (EosLogError, GroupRefusal) as error:
            code = _code(error)
        return request.api.response(error_code=code)

    async def leave(self, request: Request) -> Any:
        """Answer LeaveGroup."""
        message = request.message
        has_members = request.api.version >= _FIRST_WITH_MEMBERS
        members = [
            MemberIdentity(member_id=each.member_id, group_instance_id=getattr(each, "group_instance_id", None))
            for each in (message.members if has_members else (message,))
        ]
        try:
            _check_group_id(message.group_id)
            codes = await self._coordinator.leave(message.group_id, members)
        except (EosLogError, GroupRefusal) as error:
            code = _code(error)
            if code is not ErrorCode.unknown_member_id or not has_members:
                return request.api.response(error_code=code, members=())
            codes = [code] * len(members)
        if not has_members:
            return request.api.response(error_code=codes[0])
        return request.api.response(
            error_code=ErrorCode.none,
            members=tuple(
                request.api.part(
                    "MemberResponse",
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
                for each, code in zip(members, codes, strict=True)
            ),
        )

    async def list(self, request: Request) -> Any:
        """Answer ListGroups: the groups that clients find at this gateway. They ask all gateways."""
        message = request.message
        await self._coordinator.gateways.refresh()
        states = {each.casefold() for each in getattr(message, "states_filter", ())}
        types = {each.casefold() for each in getattr(message, "types_filter", ())}
        try:
            groups = await self._run(lambda: self._store.read(lambda state, slot: dict(state.groups)))
        except EosLogError as error:
            return request.api.response(error_code=coordinator_code(error), groups=())
        listed = [
            self._listed(group_id, group)
            for group_id, group in sorted(groups.items())
            if self._coordinator.lists(group_id)
        ]
        return request.api.response(
            error_code=ErrorCode.none,
            groups=tuple(
                request.api.part(
                    "ListedGroup", group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind
                )
                for group_id, protocol_type, state, kind in listed
                if (not states or state.casefold() in states) and (not types or kind in types)
            ),
        )

    def _listed(self, group_id: str, group: Group) -> tuple[str, str, str, str]:
        """Return the group's id, protocol type, state and type."""
        found = self._coordinator.group_here(group_id)
        if found is not None:
            return group_id, found.protocol_type or "", found.state.value, _CLASSIC
        if not group.members:
            return group_id, "", GroupState.EMPTY.value, _CLASSIC
        if has_consumers(group):
            return group_id, CONSUMER_PROTOCOL_TYPE, state_without_coordinator(group).value, _CONSUMER
        return group_id, CONSUMER_PROTOCOL_TYPE, GroupState.STABLE.value, _CLASSIC

    async def describe(self, request: Request) -> Any:
        """Answer DescribeGroups: the members of groups that this gateway coordinates, and consumers of eoslog."""
        # A group may be large, and a request may name it many times.
        group_ids = dict.fromkeys(request.message.groups)

        def without_coordinator(state: StoreState, slot: int) -> dict[str, GroupDescription]:
            found = ((group_id, state.groups.get(group_id)) for group_id in group_ids)
            return {
                group_id: describe_without_coordinator(state, group) for group_id, group in found if group is not None
            }

        try:
            known = await self._run(lambda: self._store.read(without_coordinator))
            code = ErrorCode.none
        except EosLogError as error:
            known, code = {}, coordinator_code(error)
        return request.api.response(
            groups=tuple([await self._described(request, each, known.get(each), code) for each in group_ids])
        )

    async def _described(
        self, request: Request, group_id: str, without_coordinator: GroupDescription | None, code: ErrorCode
    ) -> Any:
        description, reason = None, None
        if code is ErrorCode.none:
            try:
                _check_group_id(group_id)
                coordinated = await self._coordinator.group(group_id)
                description = without_coordinator if coordinated is None else coordinated.describe()
                if description is None and request.api.version >= _FIRST_WITH_NOT_FOUND:
                    code, reason = ErrorCode.group_id_not_found, f"there is no group {group_id!r}"
            except (EosLogError, GroupRefusal) as error:
                code, reason = _code(error), str(error)
        if description is None:
            description = _DEAD
        return request.api.part(
            "DescribedGroup",
            error_code=code,
            error_message=reason,
            group_id=group_id,
            group_state=description.state.value,
            protocol_type=description.protocol_type,
            protocol_data=description.protocol_name,
            members=tuple(_members(request, description)),
        )

    async def delete(self, request: Request) -> Any:
        """Answer DeleteGroups."""
        names = request.message.groups_names
        for name in names:
            # Otherwise a group that was handed over keeps its members for ever: nobody else may ask for it.
            with suppress(EosLogError, GroupRefusal):
                await self._coordinator.group(name)
        codes = [await self._outcome(partial(self._admin.delete_consumer_group, name)) for name in names]
        return request.api.response(
            results=tuple(
                request.api.part("DeletableGroupResult", group_id=name, error_code=code)
                for name, code in zip(names, codes, strict=True)
            )
        )

    async def _outcome(self, work: Callable[[], object]) -> ErrorCode:
        """Run work in a thread, and return the code of its outcome."""
        try:
            await self._run(work)
        except EosLogError as error:
            return coordinator_code(error)
        return ErrorCode.none

    async def delete_offsets(self, request: Request) -> Any:
        """Answer OffsetDelete."""
        message = request.message
        partitions = [
            TopicPartition(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions
        ]
        codes: dict[TopicPartition, ErrorCode] = {}

        def delete() -> None:
            # The log deletes all offsets of an entry or none, and Kafka deletes those that can be deleted.
            codes.update(self._store.read(lambda state, slot: _undeletable(state, message.group_id, partitions)))
            rest = [each for each in partitions if each not in codes]
            self._admin.delete_consumer_group_offsets(message.group_id, rest)

        code = await self._outcome(delete)
        # ``codes`` has the partitions that were refused. The others have the outcome of the deletion.
        codes = dict.fromkeys(partitions, code) | codes
        if code in _CODES_OF_GROUP:
            return request.api.response(error_code=code, topics=())
        return request.api.response(
            error_code=ErrorCode.none,
            topics=tuple(
                request.api.part(
                    "OffsetDeleteResponseTopic",
                    name=topic.name,
                    partitions=tuple(
                        request.api.part(
                            "OffsetDeleteResponsePartition",
                            partition_index=each.partition_index,
                            error_code=codes[TopicPartition(topic.name, each.partition_index)],
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            ),
        )


def _undeletable(
    state: StoreState, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions whose offsets cannot be deleted, each with its code."""
    group = state.groups.get(group_id, EMPTY_GROUP)
    found = {}
    for each in partitions:
        topic = state.topics.get(state.topic_ids.get(each.topic, ""))
        if topic is None or not 0 <= each.partition < topic.partitions:
            found[each] = ErrorCode.unknown_topic_or_partition
        elif may_subscribe(group, each.topic):
            found[each] = ErrorCode.group_subscribed_to_topic
    return found


def _identity(message: Any) -> MemberIdentity:
    return MemberIdentity(
        member_id=message.member_id,
        group_instance_id=getattr(message, "group_instance_id", None),
        generation=message.generation_id,
    )


def _members(request: Request, group: GroupDescription) -> Iterator[Any]:
    for each in group.members:
        yield request.api.part(
            "DescribedGroupMember",
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata,
            member_assignment=each.assignment,
        )
