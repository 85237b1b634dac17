"""Offsets of a stream as Spark keeps them in the checkpoint: JSON in one form, since Spark compares its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eoslog.errors import CorruptRecord, InvalidOption, UnknownTopicOrPartition
from eoslog.state.names import TopicPartition

_TOPIC_ID = "topic_id"
_LONGEST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Began:
    """Where a micro-batch began that the offsets before it do not tell.

    Spark forgets the initial offset of a micro-batch that did not land and asks for another one, and a partition that
    joins has none: with ``latest``, or after a deletion, the answer would differ, and rows would be passed over.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """With isolation level ``snapshot`` the slots up to which rows were gone when the micro-batch was planned."""
    slot: int | None = None

    def as_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, int]] = {}
        for place in sorted(self.offsets):
            topics.setdefault(place.topic, {})[str(place.partition)] = self.offsets[place]
        slot = {} if self.slot is None else {"slot": self.slot}
        return {**slot, "topics": topics}

    @classmethod
    def of(cls, value: Any) -> Began:
        """Raises: KeyError, TypeError, ValueError, AttributeError: not what ``as_json`` gives."""
        offsets = {
            TopicPartition(topic, int(key)): _number(offset)
            for topic, partitions in value["topics"].items()
            for key, offset in partitions.items()
        }
        slot = value.get("slot")
        return cls(offsets, None if slot is None else _number(slot))


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """How far a stream has read: a next offset by partition, or for isolation level ``snapshot`` a slot of the log.

    Equal are those that have read as far, however they came there.
    """

    store_id: str
    topic_ids: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    slot: int | None = None
    is_initial: bool = field(default=False, compare=False)
    """Whether nothing was read yet: a repeated micro-batch may be given another one than it was planned with."""
    began: Began = field(default_factory=Began, compare=False)
    """Of the micro-batch that ends here; nothing in a checkpoint that an earlier version wrote."""

    def as_json(self) -> dict[str, Any]:
        """Topics by name, partitions by number: equal offsets give equal text."""
        topics: dict[str, dict[str, Any]] = {name: {_TOPIC_ID: self.topic_ids[name]} for name in sorted(self.topic_ids)}
        for place in sorted(self.offsets):
            topics[place.topic][str(place.partition)] = self.offsets[place]
        slot = {} if self.slot is None else {"slot": self.slot}
        initial = {"initial": True} if self.is_initial else {}
        began = {} if self.began == Began() else {"began": self.began.as_json()}
        return {"store_id": self.store_id, **slot, "topics": topics, **initial, **began}

    @classmethod
    def of(cls, value: Any) -> StreamOffsets:
        """Raises: CorruptRecord: not what ``as_json`` gives."""
        try:
            topics = value["topics"]
            offsets = {
                TopicPartition(topic, int(key)): _number(offset)
                for topic, partitions in topics.items()
                for key, offset in partitions.items()
                if key != _TOPIC_ID
            }
            slot = value.get("slot")
            return cls(
                _text(value["store_id"]),
                {topic: _text(partitions[_TOPIC_ID]) for topic, partitions in topics.items()},
                offsets,
                None if slot is None else _number(slot),
                value.get("initial") is True,
                Began.of(value["began"]) if "began" in value else Began(),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            shown = ascii(value) if len(ascii(value)) <= _LONGEST_SHOWN else f"{ascii(value)[:_LONGEST_SHOWN]}..."
            raise CorruptRecord(f"the checkpoint's offsets are not those of an eoslog stream: {shown}") from None


def _number(value: object) -> int:
    if type(value) is not int or not -1 <= value < 2**63:
        raise ValueError("no offset or slot")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


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
