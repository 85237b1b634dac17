"""Offsets of a stream as Spark keeps them in the checkpoint: JSON in one form, since Spark compares its text."""

from __future__ import annotations

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


def check_origin(stored: StreamOffsets, store_id: str, *, counts_slots: bool) -> None:
    """Refuse offsets of another store, or of another kind.

    Raises:
        UnknownTopicOrPartition, InvalidOption
    """
    if stored.store_id != store_id:
        raise UnknownTopicOrPartition(
            f"the checkpoint belongs to the store {stored.store_id}, but the path leads to {store_id}; give "
            "the path of the former, or a new checkpointLocation"
        )
    if (stored.slot is not None) != counts_slots:
        raise InvalidOption(
            "the checkpoint was begun with another isolation level: 'snapshot' counts slots, the others offsets; go "
            "back to it, or give a new checkpointLocation"
        )


def check_joined(begin: StreamOffsets, created_slots: Mapping[str, int]) -> None:
    """Refuse a topic that joins a stream of slots, unless all that it has came later: then it is read whole.

    Args:
        created_slots: the slots in which the topics that are read were created.

    Raises:
        InvalidOption: the topic was there before.
    """
    for topic, slot in created_slots.items():
        if begin.slot is not None and topic not in begin.topic_ids and slot <= begin.slot:
            raise InvalidOption(
                f"topic {topic} was not part of this stream, and a slot does not tell how far it was read; give a new "
                "checkpointLocation"
            )
