"""What a transactional id committed last: what an application needs to go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eoslog.client.positions import OffsetAndMetadata
from eoslog.errors import TransactionalIdNotFound, quoted
from eoslog.rules.group_entries import GroupOffsets
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import StoreState


class CommittedVersion(NamedTuple):
    """The last version of an application's work that was committed. It is never forgotten."""

    application_id: str
    sink: str
    """What the versions count for: ``*``, or a Spark job's topic as ``<topic>:<topic id>``."""
    version: int
    query_id: str | None = None
    """The streaming query that counted it; None outside of streams."""


class LastCommitted(NamedTuple):
    """The last commit of a transactional id. Its fields are None or empty if there was none, or the id has expired."""

    transactional_id: str
    slot: int | None
    timestamp: int | None
    """The log's time at the slot (ms)."""
    producer_id: int | None
    producer_epoch: int | None
    application_id: str | None
    """Of the version that was committed with it; None if none was."""
    version: int | None
    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    """By group: the offsets that were committed with it. The group may have moved on since."""
    rows: Mapping[str, int]
    """How many it wrote, by topic."""
    versions: tuple[CommittedVersion, ...]
    """The last version of each application and sink, by this commit or an earlier one."""


def last_committed(state: StoreState, transactional_id: str) -> LastCommitted:
    """Raises: TransactionalIdNotFound"""
    transaction = state.transactions.get(transactional_id)
    versions = tuple(
        CommittedVersion(key.application_id, key.sink, last.version, last.query_id)
        for key, last in state.tokens.items()
        if key.transactional_id == transactional_id
    )
    if transaction is None and not versions:
        raise TransactionalIdNotFound(
            f"no transactional id is named {quoted(transactional_id)}, or it has expired; see list_transactions()"
        )
    commit = None if transaction is None else transaction.last_commit
    if commit is None:
        return LastCommitted(transactional_id, None, None, None, None, None, None, {}, {}, versions)
    token = commit.token
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for each in commit.offsets:
        offsets.setdefault(each.group, {}).update(_by_partition(state, each))
    return LastCommitted(
        transactional_id,
        commit.slot,
        commit.time_ms,
        commit.producer_id,
        commit.producer_epoch,
        None if token is None else token.application_id,
        None if token is None else token.version,
        offsets,
        {state.topics[each.topic_id].topic: each.rows for each in commit.rows if each.topic_id in state.topics},
        versions,
    )


def _by_partition(state: StoreState, offsets: GroupOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Those of topics that are still there."""
    return {
        TopicPartition(state.topics[each.topic_id].topic, each.partition): OffsetAndMetadata(
            each.offset, each.metadata, each.leader_epoch
        )
        for each in offsets.offsets
        if each.topic_id in state.topics
    }
