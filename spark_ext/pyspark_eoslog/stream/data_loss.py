"""Data loss, as the Kafka connector has it: rows or topics that are gone before a stream has read them.

With ``failOnDataLoss``, the default, it ends the stream with what is missing and what can be done; without, it is
logged, and the stream goes on with what there is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from eoslog.errors import EosLogError, InvalidOption, OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import NO_SLOT, Partition
from pyspark_eoslog.stream.stream_offsets import StreamOffsets

_logger = logging.getLogger(__name__)
_GO_ON = "go on without with option failOnDataLoss=false"


class DataLoss:
    """What a stream does when something is gone."""

    def __init__(self, *, fail: bool) -> None:
        self.fails = fail

    def report(self, error: EosLogError) -> None:
        """Raises: EosLogError: ``error``, unless the stream may lose data."""
        if self.fails:
            raise error
        _logger.warning("%s", error)


def carried_over(
    begin: StreamOffsets,
    topic_ids: Mapping[str, str],
    places: Collection[TopicPartition],
    exists: Callable[[str], bool],
    loss: DataLoss,
) -> StreamOffsets:
    """What of a stream's offsets still means something: topics that are there, and partitions that are read.

    The others are gone from the answer, so that a topic that was created again is read from its beginning, like any
    that is new.

    Args:
        topic_ids: those of the topics that are read now.
        places: the partitions that are read now; of no account for ``snapshot``.
        exists: whether the store has a topic of this name.

    Raises:
        UnknownTopicOrPartition, InvalidOption: something is gone, and that is to be an error.
    """
    kept = {}
    for topic, topic_id in begin.topic_ids.items():
        found = topic_ids.get(topic)
        if found == topic_id:
            kept[topic] = topic_id
        elif found is not None:
            loss.report(
                UnknownTopicOrPartition(
                    f"topic {topic} was deleted and created again since the checkpoint (its id was {topic_id}, now it "
                    f"is {found}), and what was not read of the former is lost; read the new one from its beginning "
                    "with option failOnDataLoss=false, or give a new checkpointLocation"
                )
            )
        elif exists(topic):
            loss.report(
                InvalidOption(
                    f"topic {topic} is in the checkpoint but no longer read; name it among the topics to read, or "
                    f"{_GO_ON}"
                )
            )
        else:
            loss.report(
                UnknownTopicOrPartition(
                    f"topic {topic} is in the checkpoint but was deleted, and what was not read of it is lost; {_GO_ON}"
                )
            )
    offsets = {}
    for place, offset in begin.offsets.items():
        if place.topic not in kept:
            continue
        if place in places:
            offsets[place] = offset
        else:
            loss.report(
                InvalidOption(
                    f"partition {place.topic}-{place.partition} is in the checkpoint but no longer read; name it in "
                    f"option 'assign', or {_GO_ON}"
                )
            )
    return StreamOffsets(begin.store_id, kept, offsets, begin.slot, begin.is_initial)


def first_offset(place: TopicPartition, partition: Partition, start: int, end: int, loss: DataLoss) -> int:
    """The first offset to read of a range that begins at ``start`` and ends at ``end`` (exclusive).

    Raises:
        OffsetOutOfRange: rows of it are gone, and that is to be an error.
    """
    if start >= min(end, partition.log_start_offset):
        return start
    loss.report(
        OffsetOutOfRange(
            f"partition {place.topic}-{place.partition} begins at offset {partition.log_start_offset}: "
            f"{min(end, partition.log_start_offset) - start} offsets from {start} on were deleted before they were "
            f"read; {_GO_ON}"
        )
    )
    return partition.log_start_offset


def check_removed(
    place: TopicPartition, partition: Partition, after_slot: int, known_slot: int | None, loss: DataLoss
) -> None:
    """A stream that has read up to a slot needs the rows of all transactions that ended later.

    Args:
        known_slot: for one that has read nothing, the slot up to which rows were gone when it began, if that is known.

    Raises:
        OffsetOutOfRange: some of them are gone, and that is to be an error.
    """
    if after_slot == NO_SLOT:
        if known_slot is None:
            return
        after_slot = known_slot
    if after_slot < partition.removed_end_slot:
        loss.report(
            OffsetOutOfRange(
                f"partition {place.topic}-{place.partition}: rows of transactions that ended after slot {after_slot}, "
                f"up to slot {partition.removed_end_slot}, were deleted before they were read; {_GO_ON}"
            )
        )
