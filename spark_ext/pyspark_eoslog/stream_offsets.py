"""Offsets of a stream as Spark keeps them in the checkpoint: JSON in one form, since Spark compares its text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eoslog.errors import CorruptRecord, InvalidOption, UnknownTopicOrPartition
from eoslog.rules.names import TopicPartition

_TOPIC_ID = "topic_id"


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """How far a stream has read: a next offset by partition, or for isolation level ``snapshot`` a slot of the log."""

    store_id: str
    topic_ids: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    slot: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Topics by name, partitions by number: equal offsets give equal text."""
        topics: dict[str, dict[str, Any]] = {name: {_TOPIC_ID: self.topic_ids[name]} for name in sorted(self.topic_ids)}
        for place in sorted(self.offsets):
            topics[place.topic][str(place.partition)] = self.offsets[place]
        slot = {} if self.slot is None else {"slot": self.slot}
        return {"store_id": self.store_id, **slot, "topics": topics}

    @classmethod
    def of(cls, value: Any) -> StreamOffsets:
        """Raises: CorruptRecord: not what ``as_json`` gives."""
        try:
            topics = value["topics"]
            offsets = {
                TopicPartition(topic, int(key)): int(offset)
                for topic, partitions in topics.items()
                for key, offset in partitions.items()
                if key != _TOPIC_ID
            }
            slot = value.get("slot")
            return cls(
                str(value["store_id"]),
                {topic: str(partitions[_TOPIC_ID]) for topic, partitions in topics.items()},
                offsets,
                None if slot is None else int(slot),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CorruptRecord(f"the checkpoint's offsets are not those of an eoslog stream: {value!r}") from None


def check_origin(stored: StreamOffsets, current: StreamOffsets) -> None:
    """Refuse offsets of another store, of an earlier incarnation of a topic, or of another kind.

    Raises:
        UnknownTopicOrPartition, InvalidOption
    """
    if stored.store_id != current.store_id:
        raise UnknownTopicOrPartition(
            f"the checkpoint belongs to the store {stored.store_id}, but the path leads to {current.store_id}; give "
            "the path of the former, or a new checkpointLocation"
        )
    if (stored.slot is None) != (current.slot is None):
        raise InvalidOption(
            "the checkpoint was begun with another isolation level: 'snapshot' counts slots, the others offsets; go "
            "back to it, or give a new checkpointLocation"
        )
    for topic, topic_id in stored.topic_ids.items():
        found = current.topic_ids.get(topic)
        if found is not None and found != topic_id:
            raise UnknownTopicOrPartition(
                f"topic {topic} was deleted and created again since the checkpoint (its id was {topic_id}, now it is "
                f"{found}): the offsets mean nothing there; give a new checkpointLocation"
            )
    if current.slot is not None and current.topic_ids.keys() - stored.topic_ids.keys():
        raise InvalidOption(
            f"topic {min(current.topic_ids.keys() - stored.topic_ids.keys())} was not part of this stream, and a "
            "slot does not tell how far it was read; give a new checkpointLocation"
        )


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """An end of about ``max_offsets`` offsets, shared out by how much each partition has, as the Kafka connector does.

    Every partition with something new that gets a share moves on, by one offset at least.
    """
    sizes = {place: max(0, end[place] - start.get(place, 0)) for place in end}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    limited = {}
    for place, size in sizes.items():
        share = max_offsets * size / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[place] = min(start.get(place, 0) + step, end[place])
    return limited
