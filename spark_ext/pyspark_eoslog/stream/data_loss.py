"""Data loss, as in the Kafka connector: rows or topics that were deleted before a stream has read them.

With ``failOnDataLoss=true``, the default, data loss ends the stream with an error. With ``false`` it is logged, and the
stream continues with the existing rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from eoslog import TopicPartition
from eoslog.errors import EosLogError, InvalidOption, OffsetOutOfRange, UnknownTopicOrPartition
from pyspark_eoslog.stream.stream_offsets import BEFORE_ALL_SLOTS, StreamOffsets

_logger = logging.getLogger(__name__)
_GO_ON = "To continue all the same, set failOnDataLoss=false"


class DataLoss:
    """The reaction of a stream to data loss."""

    def __init__(self, *, fail: bool) -> None:
        self.fails = fail

    def report(self, error: EosLogError) -> None:
        """Raise ``error``, or only log it with ``failOnDataLoss=false``."""
        if self.fails:
            raise error
        _logger.warning("%s", error)


def carried_over(
    begin: StreamOffsets,
    topic_ids: Mapping[str, str],
    partitions: Collection[TopicPartition],
    *,
    exists: Callable[[str], bool],
    loss: DataLoss,
) -> StreamOffsets:
    """Return the valid part of a stream's offsets: existing topics, and partitions that are read.

    Other offsets are dropped. So a topic that was created again is read from its first offset, like a new one.

    Args:
        topic_ids: the ids of the topics that are read now.
        partitions: the partitions that are read now; unused for ``snapshot``.
        exists: returns True if the store has a topic of this name.

    Raises:
        UnknownTopicOrPartition, InvalidOption: a topic or partition is missing, and ``failOnDataLoss`` is set.
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
                    f"is {found}), so rows of the old topic are lost. To read the new one from its first offset, set "
                    "failOnDataLoss=false, or give a new checkpointLocation"
                )
            )
        elif exists(topic):
            loss.report(
                InvalidOption(
                    f"topic {topic} is in the checkpoint but no longer read. Name it among the topics to read. {_GO_ON}"
                )
            )
        else:
            loss.report(
                UnknownTopicOrPartition(
                    f"topic {topic} is in the checkpoint but was deleted, so its unread rows are lost. {_GO_ON}"
                )
            )
    offsets = {}
    for key, offset in begin.offsets.items():
        if key.topic not in kept:
            continue
        if key in partitions:
            offsets[key] = offset
        else:
            loss.report(
                InvalidOption(
                    f"partition {key.topic}-{key.partition} is in the checkpoint but no longer read. Name it in "
                    f"option 'assign'. {_GO_ON}"
                )
            )
    return StreamOffsets(begin.store_id, kept, offsets, begin.slot, begin.is_initial)


def first_offset(key: TopicPartition, log_start: int, start: int, *, end: int, loss: DataLoss) -> int:
    """Return the first existing offset of the range from ``start`` to ``end`` (exclusive).

    Raises:
        OffsetOutOfRange: rows of the range were deleted, and ``failOnDataLoss`` is set.
    """
    if start >= min(end, log_start):
        return start
    loss.report(
        OffsetOutOfRange(
            f"partition {key.topic}-{key.partition} begins at offset {log_start}: "
            f"{min(end, log_start) - start} offsets from {start} on were deleted before they were "
            f"read. {_GO_ON}"
        )
    )
    return log_start


def check_removed(
    key: TopicPartition, removed_end_slot: int, after_slot: int, *, known_slot: int | None, loss: DataLoss
) -> None:
    """Check that the rows of all transactions that ended after a slot still exist.

    Args:
        removed_end_slot: the last such slot whose rows were deleted.
        known_slot: for a stream that has read nothing: the slot up to which rows were already deleted at its start, if
            it is known.

    Raises:
        OffsetOutOfRange: such rows were deleted, and ``failOnDataLoss`` is set.
    """
    if after_slot == BEFORE_ALL_SLOTS:
        if known_slot is None:
            return
        after_slot = known_slot
    if after_slot < removed_end_slot:
        loss.report(
            OffsetOutOfRange(
                f"partition {key.topic}-{key.partition}: rows of transactions that ended after slot {after_slot}, "
                f"up to slot {removed_end_slot}, were deleted before they were read. {_GO_ON}"
            )
        )
