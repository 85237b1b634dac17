"""Setting a group's offsets to another place: which offset each way of saying it means, partition by partition.

Kafka's ``kafka-consumer-groups.sh --reset-offsets``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.offset_lookup import offset_for_time
from eoslog.client.topics import partition_named
from eoslog.errors import InvalidRequest
from eoslog.read.isolation import IsolationLevel
from eoslog.rules.groups import committed_offset, group_named
from eoslog.rules.names import PartitionId, TopicPartition, topic_partition
from eoslog.rules.partition_state import Partition
from eoslog.rules.state import StoreState, Topic
from eoslog.rules.topics import topic_named

if TYPE_CHECKING:
    from eoslog.client.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """Where a group is to go on. Exactly one is given."""

    to_earliest: bool = False
    """The first offset there is."""
    to_latest: bool = False
    """The last stable offset: rows of transactions that are open now are read when they end."""
    to_current: bool = False
    """Where the group stands; the last stable offset where it has committed nothing."""
    to_offset: int | None = None
    """This offset, or the nearest that the partition holds."""
    shift_by: int | None = None
    """So many offsets on from where the group stands, back if negative, as far as the partition goes."""
    to_datetime: datetime | None = None
    """The first record that is not older (UTC if it names no zone); the last stable offset if there is none."""
    by_duration: timedelta | None = None
    """As ``to_datetime``, so long before now."""

    def __post_init__(self) -> None:
        ways = [field.name for field in fields(self)]
        given = [field.name for field in fields(self) if getattr(self, field.name) is not field.default]
        if len(given) != 1:
            raise InvalidRequest(f"give one way to reset offsets, not {len(given)}: {', '.join(ways)}")


class OffsetChange(NamedTuple):
    """What a reset does to one partition."""

    topic_partition: TopicPartition
    offset: int | None
    """The committed offset before; None if there was none."""
    new_offset: int


class _Place(NamedTuple):
    place: TopicPartition
    topic: Topic
    partition: Partition
    committed: int | None


def planned_changes(
    store: Store, group_id: str, wanted: Iterable[str | TopicPartition] | None, reset: OffsetReset
) -> list[OffsetChange]:
    """The new offset of each partition.

    Args:
        wanted: topics and partitions; if None, all that the group has committed offsets of.

    Raises:
        GroupIdNotFound: no partitions are named, and there is no such group.
        UnknownTopicOrPartition
        InvalidRequest: offsets cannot be shifted where none is committed.
    """
    places = store.read(lambda state, slot: _places(state, group_id, wanted))
    return [OffsetChange(each.place, each.committed, _new_offset(store, each, reset)) for each in places]


def _places(state: StoreState, group_id: str, wanted: Iterable[str | TopicPartition] | None) -> list[_Place]:
    chosen: set[TopicPartition] = set()
    if wanted is None:
        chosen = {_named(state, place) for place in group_named(state, group_id).offsets}
    for each in wanted or ():
        if isinstance(each, str):
            chosen |= {_named(state, place) for place in topic_named(state, each).partition_ids()}
        else:
            chosen.add(topic_partition(each))
    found = []
    for place in sorted(chosen):
        topic, partition = partition_named(state, place)
        committed = committed_offset(state, group_id, partition.id)
        found.append(_Place(place, topic, partition, committed.offset if committed is not None else None))
    return found


def _named(state: StoreState, place: PartitionId) -> TopicPartition:
    return TopicPartition(state.topics[place.topic_id].topic, place.partition)


def _new_offset(store: Store, at: _Place, reset: OffsetReset) -> int:
    partition = at.partition
    if reset.to_earliest:
        return partition.log_start_offset
    if reset.to_latest:
        return partition.last_stable_offset
    if reset.to_current:
        return partition.last_stable_offset if at.committed is None else at.committed
    if reset.to_offset is not None:
        return _within(partition, reset.to_offset)
    if reset.shift_by is not None:
        if at.committed is None:
            raise InvalidRequest(
                f"offsets of {at.place.topic}-{at.place.partition} cannot be shifted: none is committed"
            )
        return _within(partition, at.committed + reset.shift_by)
    found = offset_for_time(
        store.object_store,
        store.indexes,
        at.topic,
        partition,
        IsolationLevel.READ_COMMITTED,
        _moment_ms(store, reset),
    )
    return partition.last_stable_offset if found is None else found.offset


def _moment_ms(store: Store, reset: OffsetReset) -> int:
    if reset.by_duration is not None:
        return store.now_ms() - reset.by_duration // timedelta(milliseconds=1)
    assert reset.to_datetime is not None
    moment = reset.to_datetime if reset.to_datetime.tzinfo is not None else reset.to_datetime.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _within(partition: Partition, offset: int) -> int:
    return max(partition.log_start_offset, min(offset, partition.high_watermark))
