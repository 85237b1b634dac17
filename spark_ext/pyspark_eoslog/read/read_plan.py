"""What planning a read asks of the log: one consistent look at the topics, and offsets as the options name them."""

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
    """A topic, and those of its partitions that are read, as they stood at the slot of the look."""

    topic: Topic
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Some topics of a store at one slot."""

    store_id: str
    slot: int
    time_ms: int
    """The log's time at ``slot``."""
    topics: tuple[TopicView, ...]
    oldest_start_ms: int | None
    """When the oldest open transaction began."""

    def topic_ids(self) -> dict[str, str]:
        return {replica.topic.topic: replica.topic.topic_id for replica in self.topics}

    def partitions(self) -> dict[TopicPartition, Partition]:
        return {
            TopicPartition(replica.topic.topic, partition.id.partition): partition
            for replica in self.topics
            for partition in replica.partitions
        }


def look_at_topics(store: Store, selection: TopicSelection, *, refresh: bool = True) -> Look:
    """One look at the selected topics, by default as of now. A pattern selects those that match it then, maybe none.

    Raises:
        UnknownTopicOrPartition: there is no topic or partition that was named; the message names those there are.
    """

    return store.read(lambda state, slot: look(state, slot, selection), refresh=refresh)


def look(state: StoreState, slot: int, selection: TopicSelection) -> Look:
    """The selected topics of a state.

    Raises:
        UnknownTopicOrPartition: as ``look_at_topics``.
    """
    views = []
    for topic, places in _selected(state, selection):
        views.append(TopicView(topic, tuple(state.partitions[place] for place in places)))
    return Look(state.store_id, slot, state.time_ms, tuple(views), min(state.ongoing.values(), default=None))


def those_there(selection: TopicSelection, state: StoreState) -> TopicSelection:
    """A selection without the topics and partitions that were named and are not there."""
    assigned = {}
    for name, partitions in selection.assigned.items():
        if name in state.topic_ids:
            there = state.topics[state.topic_ids[name]].partitions
            assigned[name] = tuple(partition for partition in partitions if partition < there)
    names = tuple(name for name in selection.names if name in state.topic_ids)
    return replace(selection, names=names, assigned=assigned)


def _is_held_back(look: Look) -> bool:
    """Whether an open transaction hides rows of these topics from ``read_committed``."""
    return look.oldest_start_ms is not None and any(
        partition.is_held_back for replica in look.topics for partition in replica.partitions
    )


def abort_overdue(store: Store, look: Look) -> bool:
    """Abort the transactions past their timeouts if open transactions hide rows of these topics.

    Returns:
        True if any was aborted: then more rows are visible.
    """
    return _is_held_back(look) and store.overdue_transactions.abort_for_reader()


def resolve_offsets(
    store: Store, option: OffsetsOption, look: Look, isolation: IsolationLevel, option_name: str
) -> dict[TopicPartition, int]:
    """An offset for each partition that is read.

    Raises:
        InvalidOption: the option names other partitions.
        OffsetOutOfRange: a partition has no row as late as the option asks for, and that is to be an error.
    """
    partitions = look.partitions()
    if isinstance(option, ByTimestamp):
        return _offsets_by_time(store, option, look, isolation)
    if isinstance(option, str):
        wanted = dict.fromkeys(partitions, {EARLIEST: EARLIEST_OFFSET, LATEST: LATEST_OFFSET}[option])
    else:
        wanted = _of_each(option, partitions, option_name)
    resolved = {}
    for place, partition in partitions.items():
        offset = wanted[place]
        if offset == EARLIEST_OFFSET:
            offset = partition.log_start_offset
        elif offset == LATEST_OFFSET:
            offset = visible_end(partition, isolation)
        resolved[place] = offset
    return resolved


def piece_of(topic: Topic, plan: PartitionPlan, predicate: Predicate | None) -> Piece:
    return Piece(topic.topic, plan.partition, topic.topic_schema.arrow, tuple(plan.slices), predicate)


def predicate_of(topic: Topic, predicate: str | None) -> Predicate | None:
    """Which of a topic's rows option ``predicate`` asks for; None if it was not given.

    Raises:
        InvalidOption: it is no predicate for this topic's columns.
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
    store: Store, option: ByTimestamp, look: Look, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    partitions = look.partitions()
    times = option.timestamps_ms
    wanted = dict.fromkeys(partitions, times) if isinstance(times, int) else _of_each(times, partitions, option.option)
    topics = {replica.topic.topic: replica.topic for replica in look.topics}

    def find(place: TopicPartition) -> OffsetAndTimestamp | None:
        return offset_for_time(
            store.object_store, store.indexes, topics[place.topic], partitions[place], isolation, wanted[place]
        )

    # Each may fetch a file, to see which of its rows is the first.
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        answers = dict(zip(partitions, threads.map(find, partitions), strict=True))
    resolved = {}
    for place, found in answers.items():
        if found is None and option.if_none != LATEST:
            empty = visible_end(partitions[place], isolation) == partitions[place].log_start_offset
            raise OffsetOutOfRange(
                f"option {option.option!r}: partition {place.topic}-{place.partition} "
                + ("has no rows yet; " if empty else f"has no row with a timestamp of {wanted[place]} or later; ")
                + ("" if empty else "give an earlier one, or ")
                + "begin at its end with option startingOffsetsByTimestampStrategy=latest"
            )
        resolved[place] = visible_end(partitions[place], isolation) if found is None else found.offset
    return resolved


def _of_each(
    numbers: NumbersByPartition, partitions: Mapping[TopicPartition, Partition], option_name: str
) -> dict[TopicPartition, int]:
    """A number for each partition, which must be all that are read.

    Raises:
        InvalidOption: it names others.
    """
    given = {TopicPartition(topic, each): number for topic, parts in numbers.items() for each, number in parts.items()}
    for problem, places in (
        ("lacks", partitions.keys() - given.keys()),
        ("names, but nobody reads,", given.keys() - partitions.keys()),
    ):
        if places:
            listed = ", ".join(f"{place.topic}-{place.partition}" for place in sorted(places))
            raise InvalidOption(f"option {option_name!r} {problem} {listed}; give one for each partition that is read")
    return given
