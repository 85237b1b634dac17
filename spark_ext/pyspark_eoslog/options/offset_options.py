"""The start and the end of a read: offsets or times, for all partitions or each by itself, as in the Kafka connector.

``startingTimestamp`` overrides ``startingOffsetsByTimestamp``, which overrides ``startingOffsets``. The same holds for
the options that begin with ``ending``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eoslog import IsolationLevel, OffsetAndTimestamp, Store, TopicPartition
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.read.isolation import visible_end
from eoslog.read.offset_lookup import offset_for_time
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options.values import numbers_by_partition, whole_number

EARLIEST = "earliest"
LATEST = "latest"
ERROR = "error"
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
_LOOKUPS_AT_ONCE = 8

NumbersByPartition = Mapping[str, Mapping[int, int]]
"""A number for each partition, by the topic's name and the partition."""


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The offset of the first visible row at or after a timestamp (Kafka's ``offsetsForTimes``)."""

    option: str
    """The name of the option, for messages."""
    timestamps_ms: int | NumbersByPartition
    """The timestamps (ms since the epoch): one for all partitions, or one for each."""
    if_none: str
    """The result for a partition without such a row: its end (``latest``), or an ``error``."""


OffsetsOption = str | NumbersByPartition | ByTimestamp
"""``earliest``, ``latest``, offsets by topic and partition, where -2 is the earliest and -1 the latest, or times."""


def starting_offsets(options: Mapping[str, str]) -> OffsetsOption | None:
    """Return the start of a read; None if no option gives it.

    Raises:
        InvalidOption: a value is not allowed.
    """
    strategy = options.get("startingoffsetsbytimestampstrategy", ERROR).strip().lower()
    if strategy not in (ERROR, LATEST):
        raise InvalidOption(
            f"option 'startingOffsetsByTimestampStrategy' is {strategy!r}. Valid are {ERROR!r} and {LATEST!r}, for a "
            "partition without a row at or after the timestamp"
        )
    return _offsets(options, "starting", strategy)


def ending_offsets(options: Mapping[str, str]) -> OffsetsOption | None:
    """Return the end of a batch (exclusive); None if no option gives it.

    With a timestamp, a partition without a row at or after it ends at its present end.

    Raises:
        InvalidOption: a value is not allowed.
    """
    return _offsets(options, "ending", LATEST)


def _offsets(options: Mapping[str, str], end: str, if_none: str) -> OffsetsOption | None:
    """Return the first option that is given. The others must be well-formed, too."""
    one = whole_number(options, f"{end}Timestamp", at_least=0, unit="milliseconds since the epoch")
    each = _by_timestamp(options, f"{end}OffsetsByTimestamp")
    offsets = _by_offset(options, f"{end}Offsets")
    if one is not None:
        return ByTimestamp(f"{end}Timestamp", one, if_none)
    if each is not None:
        return ByTimestamp(f"{end}OffsetsByTimestamp", each, if_none)
    return offsets


def _by_timestamp(options: Mapping[str, str], name: str) -> NumbersByPartition | None:
    value = options.get(name.lower())
    if value is None:
        return None
    found = numbers_by_partition(value, at_least=0)
    if found is None:
        raise InvalidOption(
            f"option {name!r} is {value!r}. Valid are ms since the epoch by topic and partition as JSON, for example "
            '{"flights": {"0": 1767225600000, "1": 1767225600000}}'
        )
    return found


def _by_offset(options: Mapping[str, str], name: str) -> str | NumbersByPartition | None:
    value = options.get(name.lower())
    if value is None:
        return None
    if value.strip().lower() in (EARLIEST, LATEST):
        return value.strip().lower()
    found = numbers_by_partition(value, at_least=EARLIEST_OFFSET)
    if found is None:
        raise InvalidOption(
            f"option {name!r} is {value!r}. Valid are {EARLIEST!r}, {LATEST!r} and offsets by topic and partition as "
            'JSON, for example {"flights": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest'
        )
    return found


def resolve_offsets(
    store: Store, option: OffsetsOption, snapshot: TopicsSnapshot, *, isolation: IsolationLevel, option_name: str
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


def _offsets_by_time(
    store: Store, option: ByTimestamp, snapshot: TopicsSnapshot, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    partitions = snapshot.partitions()
    times = option.timestamps_ms
    wanted = (
        dict.fromkeys(partitions, times) if isinstance(times, int) else _of_each(times, set(partitions), option.option)
    )
    topics = {selected.topic.topic: selected.topic for selected in snapshot.topics}

    def find(key: TopicPartition) -> OffsetAndTimestamp | None:
        return offset_for_time(store, topics[key.topic], partitions[key], isolation=isolation, timestamp_ms=wanted[key])

    # Each lookup may fetch a file to find the first row in it, so they run in parallel.
    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        answers = dict(zip(partitions, threads.map(find, partitions), strict=True))
    resolved = {}
    for key, found in answers.items():
        if found is None and option.if_none != LATEST:
            empty = visible_end(partitions[key], isolation) == partitions[key].log_start_offset
            later = f"has no row with a timestamp of {wanted[key]} or later. Give an earlier one, or begin"
            raise OffsetOutOfRange(
                f"option {option.option!r}: partition {key.topic}-{key.partition} "
                f"{'has no rows yet. Begin' if empty else later} at its end with option "
                "startingOffsetsByTimestampStrategy=latest"
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
            raise InvalidOption(f"option {option_name!r} {problem} {listed}. Give one for each partition that is read")
    return given
