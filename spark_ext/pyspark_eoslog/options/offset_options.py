"""Where a read begins and ends: offsets or times, for all partitions or each by itself, as in the Kafka connector.

``startingTimestamp`` comes before ``startingOffsetsByTimestamp``, and that before ``startingOffsets``; so do the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.errors import InvalidOption
from pyspark_eoslog.options.values import numbers_by_partition, whole_number

EARLIEST = "earliest"
LATEST = "latest"
ERROR = "error"
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1

NumbersByPartition = Mapping[str, Mapping[int, int]]
"""A number for each partition, by the topic's name and the partition."""


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The offset of the first visible row whose timestamp is not earlier (Kafka's ``offsetsForTimes``)."""

    option: str
    """The name of the option, for messages."""
    timestamps_ms: int | NumbersByPartition
    """ms since the epoch: one for all partitions, or one for each."""
    if_none: str
    """The result for a partition without such a row: its end (``latest``), or an ``error``."""


OffsetsOption = str | NumbersByPartition | ByTimestamp
"""``earliest``, ``latest``, offsets by topic and partition, where -2 is the earliest and -1 the latest, or times."""


def starting_offsets(options: Mapping[str, str]) -> OffsetsOption | None:
    """Where a read begins, if an option says so.

    Raises:
        InvalidOption: a value is not allowed.
    """
    strategy = options.get("startingoffsetsbytimestampstrategy", ERROR).strip().lower()
    if strategy not in (ERROR, LATEST):
        raise InvalidOption(
            f"option 'startingOffsetsByTimestampStrategy' is {strategy!r}; valid are {ERROR!r} and {LATEST!r}, for a "
            "partition that has no row as late as the timestamp"
        )
    return _offsets(options, "starting", strategy)


def ending_offsets(options: Mapping[str, str]) -> OffsetsOption | None:
    """Where a batch ends (exclusive), if an option says so; a partition without a row as late ends where it ends now.

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
            f"option {name!r} is {value!r}; valid are ms since the epoch by topic and partition as JSON, for example "
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
            f"option {name!r} is {value!r}; valid are {EARLIEST!r}, {LATEST!r} and offsets by topic and partition as "
            'JSON, for example {"flights": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest'
        )
    return found
