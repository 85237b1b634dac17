"""The inputs of planning a read: the offsets and the predicate of the options, and the pieces of plans."""

from __future__ import annotations

from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor

from eoslog import OffsetAndTimestamp, Store, Topic, TopicPartition
from eoslog.consumer.offset_lookup import offset_for_time
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import PartitionPlan
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_text import compile_predicate
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options.offset_options import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    ByTimestamp,
    NumbersByPartition,
    OffsetsOption,
)
from pyspark_eoslog.read.packing import Piece

_LOOKUPS_AT_ONCE = 8


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
        wanted = _of_each(option, set(partitions), option_name)
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


def _offsets_by_time(
    store: Store, option: ByTimestamp, snapshot: TopicsSnapshot, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    partitions = snapshot.partitions()
    times = option.timestamps_ms
    wanted = (
        dict.fromkeys(partitions, times) if isinstance(times, int) else _of_each(times, set(partitions), option.option)
    )
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
    numbers: NumbersByPartition, partitions: Set[TopicPartition], option_name: str
) -> dict[TopicPartition, int]:
    """Return the number of each partition. The option must name exactly the partitions that are read.

    Raises:
        InvalidOption: the option names other partitions.
    """
    given = {TopicPartition(topic, each): number for topic, parts in numbers.items() for each, number in parts.items()}
    for problem, unexpected in (
        ("lacks", partitions - given.keys()),
        ("names partitions that are not read:", given.keys() - partitions),
    ):
        if unexpected:
            listed = ", ".join(f"{key.topic}-{key.partition}" for key in sorted(unexpected))
            raise InvalidOption(f"option {option_name!r} {problem} {listed}; give one for each partition that is read")
    return given
