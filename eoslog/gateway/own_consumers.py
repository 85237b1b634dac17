"""Groups of consumers of eoslog, as clients of Kafka's protocol see them.

Kafka's tools decode the subscription and the assignment of each member, so both have the form of Kafka's consumers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby

from eoslog.gateway.classic_members import CONSUMER_PROTOCOL_TYPE
from eoslog.gateway.classic_requests import DescribedMember, GroupDescription, GroupState
from eoslog.state.names import PartitionId
from eoslog.state.store_state import Group, StoreState

_ASSIGNOR = "eoslog"
"""The name that tools show as the assignment strategy. None of Kafka's assignors works like eoslog's."""
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_VERSION = _SHORT.pack(0)
_NO_USER_DATA = _INT.pack(-1)


def has_consumers(group: Group) -> bool:
    """Return whether consumers of eoslog are members of a group, and not a gateway."""
    return any(not member.is_coordinator for member in group.members.values())


def state_without_coordinator(group: Group) -> GroupState:
    """Return the state of a group that no gateway coordinates."""
    if not has_consumers(group):
        return GroupState.EMPTY
    is_handing_over = any(member.revoking for member in group.members.values())
    return GroupState.COMPLETING if is_handing_over else GroupState.STABLE


def describe_without_coordinator(state: StoreState, group: Group) -> GroupDescription:
    """Return a group that no gateway coordinates: it has consumers of eoslog, or no members.

    A consumer has the partitions that it reads, also those that it must give up.
    """
    if not has_consumers(group):
        return GroupDescription(state=GroupState.EMPTY, protocol_type="", protocol_name="", members=())
    return GroupDescription(
        state=state_without_coordinator(group),
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_ASSIGNOR,
        members=tuple(
            DescribedMember(
                member_id=member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.host,
                metadata=_subscription(member.topics),
                assignment=_assignment(state, member.held),
            )
            for member_id, member in group.members.items()
        ),
    )


def _subscription(topics: Iterable[str]) -> bytes:
    """Return Kafka's ``ConsumerProtocolSubscription`` of topics."""
    return _VERSION + _array(map(_string, topics)) + _NO_USER_DATA


def _assignment(state: StoreState, partition_ids: Iterable[PartitionId]) -> bytes:
    """Return Kafka's ``ConsumerProtocolAssignment`` of partitions."""
    by_topic = [
        _string(state.topics[topic_id].topic) + _array(_INT.pack(each.partition) for each in found)
        for topic_id, found in groupby(sorted(partition_ids), lambda each: each.topic_id)
    ]
    return _VERSION + _array(by_topic) + _NO_USER_DATA


def _array(elements: Iterable[bytes]) -> bytes:
    found = list(elements)
    return _INT.pack(len(found)) + b"".join(found)


def _string(value: str) -> bytes:
    encoded = value.encode()
    return _SHORT.pack(len(encoded)) + encoded
