"""The inputs of planning a read: one consistent snapshot of the topics, and the offsets of the options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from eoslog.consumer.offset_lookup import OffsetAndTimestamp, offset_for_time
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import PartitionPlan
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_text import compile_predicate
from eoslog.session.topic_lookup import check_partition
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.store import Store
from pyspark_eoslog.options.offset_options import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    ByTimestamp,
    NumbersByPartition,
    OffsetsOption,
)
from pyspark_eoslog.options.topic_options import TopicSelection
from pyspark_eoslog.read.packing import Piece

_LOOKUPS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic at the slot of the snapshot, with its partitions that are read."""

    topic: Topic
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """A snapshot of some topics of a store at one slot."""

    store_id: str
    slot: int
    time_ms: int
    """The log's time at ``slot``."""
    topics: tuple[TopicView, ...]
    oldest_start_ms: int | None
    """The begin of the oldest open transaction (ms by the store's clock); None if none is open."""

    def topic_ids(self) -> dict[str, str]:
        return {view.topic.topic: view.topic.topic_id for view in self.topics}

    def partitions(self) -> dict[TopicPartition, Partition]:
        return {
            TopicPartition(view.topic.topic, partition.id.partition): partition
            for view in self.topics
            for partition in view.partitions
        }


def topics_snapshot(store: Store, selection: TopicSelection, *, refresh: bool = True) -> TopicsSnapshot:
    """Return a snapshot of the selected topics, by default of the newest state. A pattern may match no topic.

    Raises:
        UnknownTopicOrPartition: a named topic or partition does not exist. The message names the existing ones.
    """

    return store.read(lambda state, slot: snapshot_of(state, slot, selection), refresh=refresh)


def snapshot_of(state: StoreState, slot: int, selection: TopicSelection) -> TopicsSnapshot:
    """Return a snapshot of the selected topics of a state.

    Raises:
        UnknownTopicOrPartition: as ``topics_snapshot``.
    """
    views = []
    for topic, partition_ids in _selected(state, selection):
        views.append(TopicView(topic, tuple(state.partitions[each] for each in partition_ids)))
    return TopicsSnapshot(state.store_id, slot, state.time_ms, tuple(views), min(state.ongoing.values(), default=None))


def existing_only(selection: TopicSelection, state: StoreState) -> TopicSelection:
    """Return the selection without named topics and partitions that do not exist."""
    assigned = {}
    for name, partitions in selection.assigned.items():
        if name in state.topic_ids:
            count = state.topics[state.topic_ids[name]].partitions
            assigned[name] = tuple(partition for partition in partitions if partition < count)
    names = tuple(name for name in selection.names if name in state.topic_ids)
    return replace(selection, names=names, assigned=assigned)


def _is_held_back(snapshot: TopicsSnapshot) -> bool:
    """Return True if an open transaction hides rows of these topics from ``read_committed``."""
    return snapshot.oldest_start_ms is not None and any(
        partition.is_held_back for view in snapshot.topics for partition in view.partitions
    )


def abort_overdue(store: Store, snapshot: TopicsSnapshot) -> bool:
    """Abort the transactions past their timeouts if open transactions hide rows of these topics.

    Returns:
        True if a transaction was aborted: then more rows are visible.
    """
    return _is_held_back(snapshot) and store.overdue_transactions.abort_for_reader()


def resolve_offsets(
    store: Store, option: OffsetsOption, snapshot: TopicsSnapshot, isolation: IsolationLevel, option_name: str
) -> dict[TopicPartition, int]:
    """Return an offset for each partition that is read.

    Raises:
        InvalidOption: the option names other partitions.
        OffsetOutOfRange: a partition has no row at or after the timestamp of the option, and the option does not allow
            that.
    """
    partitions = snapshot.partitions()
    if isinstance(option, ByTimestamp):
        return _offsets_by_time(store, option, snapshot, isolation)
    if isinstance(option, str):
        wanted = dict.fromkeys(partitions, {EARLIEST: EARLIEST_OFFSET, LATEST: LATEST_OFFSET}[option])
    else:
        wanted = _of_each(option, partitions, option_name)
    resolved = {}
    for key, partition in partitions.items():
        offset = wanted[key]
        if offset == EARLIEST_OFFSET:
            offset = partition.log_start_offset
        elif offset == LATEST_OFFSET:
            offset = visible_end(partition, isolation)
        resolved[key] = offset
    return resolved


def piece_of(topic: Topic, plan: PartitionPlan, predicate: Predicate | None) -> Piece:
    return Piece(topic.topic, plan.partition, topic.topic_schema.arrow, tuple(plan.slices), predicate)


def predicate_of(topic: Topic, predicate: str | None) -> Predicate | None:
    """Return the compiled predicate for a topic; None if the option was not given.

    Raises:
        InvalidOption: the predicate does not fit the topic's columns.
    """
    return None if predicate is None else compile_predicate(predicate, topic)


def _selected(state: StoreState, selection: TopicSelection) -> Iterator[tuple[Topic, Sequence[PartitionId]]]:
    names = selection.names
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        names = tuple(name for name in sorted(state.topic_ids) if pattern.fullmatch(name))
    for name in names:
        topic = topic_named(state, name)
        yield topic, topic.partition_ids()
    for name, partitions in selection.assigned.items():
        topic = topic_named(state, name)
        yield topic, [PartitionId(topic.topic_id, check_partition(topic, each)) for each in partitions]


def _offsets_by_time(
    store: Store, option: ByTimestamp, snapshot: TopicsSnapshot, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    partitions = snapshot.partitions()
    times = option.timestamps_ms
    wanted = dict.fromkeys(partitions, times) if isinstance(times, int) else _of_each(times, partitions, option.option)
    topics = {view.topic.topic: view.topic for view in snapshot.topics}

    def find(key: TopicPartition) -> OffsetAndTimestamp | None:
        return offset_for_time(
            store.object_store, store.indexes, topics[key.topic], partitions[key], isolation, wanted[key]
        )

    # Each lookup may fetch a file to find the first row in it, so they run in parallel.
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        answers = dict(zip(partitions, threads.map(find, partitions), strict=True))
    resolved = {}
    for key, found in answers.items():
        if found is None and option.if_none != LATEST:
            empty = visible_end(partitions[key], isolation) == partitions[key].log_start_offset
            raise OffsetOutOfRange(
                f"option {option.option!r}: partition {key.topic}-{key.partition} "
                + ("has no rows yet; " if empty else f"has no row with a timestamp of {wanted[key]} or later; ")
                + ("" if empty else "give an earlier one, or ")
                + "begin at its end with option startingOffsetsByTimestampStrategy=latest"
            )
        resolved[key] = visible_end(partitions[key], isolation) if found is None else found.offset
    return resolved


def _of_each(
    numbers: NumbersByPartition, partitions: Mapping[TopicPartition, Partition], option_name: str
) -> dict[TopicPartition, int]:
    """Return the number of each partition. The option must name exactly the partitions that are read.

    Raises:
        InvalidOption: the option names other partitions.
    """
    given = {TopicPartition(topic, each): number for topic, parts in numbers.items() for each, number in parts.items()}
    for problem, unexpected in (
        ("lacks", partitions.keys() - given.keys()),
        ("names partitions that are not read:", given.keys() - partitions.keys()),
    ):
        if unexpected:
            listed = ", ".join(f"{key.topic}-{key.partition}" for key in sorted(unexpected))
            raise InvalidOption(f"option {option_name!r} {problem} {listed}; give one for each partition that is read")
    return given
