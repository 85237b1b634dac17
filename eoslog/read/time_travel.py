"""Time travel: the slot or the log time that a snapshot shows.

The log's time never runs backwards. So for each time there is a slot by which the same transactions had ended, and the
snapshot is one consistent cut.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITH_ZONE = "Give a datetime with a time zone, such as 2026-01-31T12:00:00Z, or milliseconds since the epoch"


class AsOf(NamedTuple):
    """The end of a snapshot (inclusive): a slot, or a time of the log (ms). One of them is None."""

    slot: int | None
    time_ms: int | None


def timestamp_ms(timestamp: datetime | int | str) -> int:
    """Return a point in time as milliseconds since the epoch.

    Args:
        timestamp: a text is ISO 8601 with a time zone, or milliseconds.

    Raises:
        InvalidOption: the time has no time zone, so it is ambiguous, or it is not a time.
    """
    if isinstance(timestamp, str):
        timestamp = _parsed(timestamp)
    if isinstance(timestamp, datetime):
        try:
            offset = timestamp.utcoffset()
        except ValueError:  # pandas' NaT is a datetime
            raise InvalidOption(f"timestamp {quoted(timestamp)} is not a point in time. {_WITH_ZONE}") from None
        if offset is None:
            raise InvalidOption(f"timestamp {timestamp.isoformat()} has no time zone. {_WITH_ZONE}")
        timestamp = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    if not is_whole_number(timestamp):
        raise InvalidOption(f"timestamp {quoted(timestamp)} is not a point in time. {_WITH_ZONE}")
    if timestamp < 0:
        raise InvalidOption(f"timestamp {timestamp} lies before 1970. {_WITH_ZONE}")
    return timestamp


def _parsed(text: str) -> datetime | int:
    text = text.strip()
    try:
        return int(text) if text.isascii() and text.isdecimal() else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"timestamp {quoted(text)} is not a point in time. {_WITH_ZONE}") from None


def iso_time(time_ms: int) -> str:
    """Return a time (ms since the epoch) in ISO 8601, such as ``2026-01-31T12:00:00Z``."""
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def resolve(slot: int | None, time_ms: int | None, *, newest_slot: int, log_time_ms: int, now_ms: int) -> AsOf | None:
    """Return the end of a snapshot at a slot or a time; None if neither is given.

    Args:
        slot: the slot to read as of.
        time_ms: the time to read as of (ms since the epoch).
        newest_slot, log_time_ms: the slot and the log time of the planned state. If the log has not passed ``time_ms``,
            the snapshot ends at the newest slot, so that later commits do not change its rows.
        now_ms: the time of the store's clock.

    Raises:
        InvalidOption: both are given, or the slot or time is in the future.
    """
    if slot is not None:
        if time_ms is not None:
            raise InvalidOption("give a slot or a timestamp to read as of, not both")
        if not is_whole_number(slot):
            raise InvalidOption(f"a slot is a number of the log, not {quoted(slot)}")
        if not 0 <= slot <= newest_slot:
            raise InvalidOption(f"slot {slot} is not there: the log holds slots 0 to {newest_slot}")
        return AsOf(slot, None)
    if time_ms is None:
        return None
    if time_ms > max(now_ms, log_time_ms):
        raise InvalidOption(
            f"timestamp {iso_time(time_ms)} lies in the future. The newest commit is slot {newest_slot}, of "
            f"{iso_time(log_time_ms)}. Leave the timestamp out to read the newest rows"
        )
    return AsOf(newest_slot, None) if time_ms >= log_time_ms else AsOf(None, time_ms)


def check_created(topic: Topic, as_of: AsOf | None) -> None:
    """Check that a topic existed at the end of a snapshot.

    Raises:
        OffsetOutOfRange: the topic was created later.
    """
    created = topic.schema_versions[0]
    if as_of is None:
        return
    if as_of.slot is not None and as_of.slot < created.slot:
        asked = f"slot {as_of.slot}"
    elif as_of.time_ms is not None and as_of.time_ms < created.time_ms:
        asked = iso_time(as_of.time_ms)
    else:
        return
    raise OffsetOutOfRange(
        f"topic {topic.topic} did not exist at {asked}. It was created at slot {created.slot}, at "
        f"{iso_time(created.time_ms)}: read as of then or later"
    )


def check_as_of(topic: str, partition: Partition, as_of: AsOf) -> None:
    """Check that all rows of a snapshot still exist.

    Raises:
        OffsetOutOfRange: rows of the snapshot have been removed since.
    """
    floor, floor_ms = partition.snapshot_floor, partition.snapshot_floor_ms
    if as_of.slot is not None and as_of.slot < floor:
        asked = f"the earlier slot {as_of.slot}"
    elif as_of.time_ms is not None and as_of.time_ms < floor_ms:
        asked = f"the earlier time {iso_time(as_of.time_ms)}"
    else:
        return
    raise OffsetOutOfRange(
        f"partition {topic}-{partition.id.partition} has dropped rows at slot {floor}, at {iso_time(floor_ms)}; "
        f"a snapshot of {asked} would lack them"
    )
