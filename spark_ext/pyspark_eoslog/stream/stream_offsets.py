"""The offsets of a stream in Spark's checkpoint. Equal offsets give equal JSON text, because Spark compares the
text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eoslog import TopicPartition
from eoslog.errors import CorruptRecord, InvalidOption, UnknownTopicOrPartition

BEFORE_ALL_SLOTS = -1
"""The slot of a stream with isolation level ``snapshot`` that has read nothing."""
_TOPIC_ID = "topic_id"
_LONGEST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Began:
    """The starts of a micro-batch that are not in the offsets before it.

    If the first micro-batch was not committed, Spark forgets its initial offset and asks for another one. A partition
    that joins has no offset before. With ``latest``, or after a deletion, a new answer would differ and rows would be
    skipped. So the starts are kept with the end.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The start of each partition. With isolation level ``snapshot``: for each partition, the slot up to which rows
    were deleted when the micro-batch was planned."""
    slot: int | None = None
    """With isolation level ``snapshot``: the slot at which the stream starts."""

    def as_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, int]] = {}
        for key in sorted(self.offsets):
            topics.setdefault(key.topic, {})[str(key.partition)] = self.offsets[key]
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
    """The position of a stream: the next offset by partition, or a slot of the log for isolation level ``snapshot``.

    Two positions are equal if they are equally far, whatever their starts were.
    """

    store_id: str
    topic_ids: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    slot: int | None = None
    is_initial: bool = field(default=False, compare=False)
    """True if nothing was read yet. A repeated micro-batch may get another initial position than it was planned
    with."""
    began: Began = field(default_factory=Began, compare=False)
    """The starts of the micro-batch that ends here. They are empty in a checkpoint of an earlier version."""

    def as_json(self) -> dict[str, Any]:
        """Topics by name, partitions by number: equal offsets give equal text."""
        topics: dict[str, dict[str, Any]] = {name: {_TOPIC_ID: self.topic_ids[name]} for name in sorted(self.topic_ids)}
        for key in sorted(self.offsets):
            topics[key.topic][str(key.partition)] = self.offsets[key]
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
                store_id=_text(value["store_id"]),
                topic_ids={topic: _text(partitions[_TOPIC_ID]) for topic, partitions in topics.items()},
                offsets=offsets,
                slot=None if slot is None else _number(slot),
                is_initial=value.get("initial") is True,
                began=Began.of(value["began"]) if "began" in value else Began(),
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
            f"the checkpoint belongs to the store {stored.store_id}, but the path leads to {store_id}. Give "
            "the path of the first, or a new checkpointLocation"
        )
    if (stored.slot is not None) != counts_slots:
        raise InvalidOption(
            "the checkpoint has another isolation level: 'snapshot' counts slots, the others count offsets. Use that "
            "level, or give a new checkpointLocation"
        )


def check_joined(begin: StreamOffsets, created_slots: Mapping[str, int]) -> None:
    """Refuse a topic that joins a stream of slots, unless it was created later. Then it is read completely.

    Args:
        created_slots: the slots in which the topics were created.

    Raises:
        InvalidOption: the topic existed before the stream's slot.
    """
    for topic, slot in created_slots.items():
        if begin.slot is not None and topic not in begin.topic_ids and slot <= begin.slot:
            raise InvalidOption(
                f"topic {topic} was not part of this stream, so its position is not in the checkpoint. Give a new "
                "checkpointLocation"
            )
